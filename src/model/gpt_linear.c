/*
 * Products with the matrices of a layer, whatever they are stored as.
 *
 * A float32 matrix goes into the product as it is. A 16-bit one is widened panel by panel
 * (some of its rows), and each panel is used while it is in the cache: so the memory read
 * is half, and the room needed does not grow with the matrix. A 16-bit gradient is
 * rounded when its panel is complete, and again when another micro-batch is added.
 *
 * Panels have a fixed size, so sums do not depend on anything but the matrix. Those that
 * run over its rows are cut where the product cuts its own sums, at multiples of its
 * block of 256.
 */
#include "base/beat.h"
#include "model/gpt_internal.h"

#define PANEL_ELEMENTS ((int64_t)1 << 20) // 4 MB: a panel and its result fit the cache
#define PANEL_ROWS 512                    // at least, and a multiple of it

/* Rows of I elements that a panel has. */
static int64_t panel_rows(int64_t I)
{
    return i64_max(PANEL_ROWS, PANEL_ELEMENTS / I / PANEL_ROWS * PANEL_ROWS);
}

int64_t gpt_panel_elements(const struct gpt *g)
{
    const struct gpt_dims *d = &g->dims;
    int64_t widest = i64_max(d->H, i64_max(d->F, d->A * d->D));
    if (g->dtype == DTYPE_F32 && g->grad_dtype == DTYPE_F32)
        return 0;
    return i64_max(PANEL_ELEMENTS, PANEL_ROWS * widest);
}

static const void *element(const void *x, enum dtype dtype, int64_t i)
{
    return (const char *)x + i * (int64_t)dtype_bytes(dtype);
}

/* y (N, O columns of stride y_row) = x (N, I) w^T, w (O, I). */
static struct gemm product_fwd(float *y, int64_t y_row, const float *x, const float *w,
                               int64_t N, int64_t I, int64_t O)
{
    return (struct gemm){.m = N,
                         .n = O,
                         .k = I,
                         .a = x,
                         .a_row = I,
                         .a_col = 1,
                         .b = w,
                         .b_row = 1,
                         .b_col = I,
                         .c = y,
                         .c_row = y_row,
                         .c_col = 1};
}

/* dx (N, I) (+)= R columns of dy (N, O) times w (R, I). */
static void product_bwd(const struct gpt *g, float *dx, const float *dy, const float *w,
                        int64_t N, int64_t I, int64_t O, int64_t R, bool accumulate)
{
    g->k->gemm(g->s, &(struct gemm){.m = N,
                                    .n = I,
                                    .k = R,
                                    .a = dy,
                                    .a_row = O,
                                    .a_col = 1,
                                    .b = w,
                                    .b_row = I,
                                    .b_col = 1,
                                    .c = dx,
                                    .c_row = I,
                                    .c_col = 1,
                                    .accumulate = accumulate});
}

/* dw (R, I) (+)= R columns of dy (N, O), transposed, times x (N, I). */
static void product_weight(const struct gpt *g, float *dw, const float *dy,
                           const float *x, int64_t N, int64_t I, int64_t O, int64_t R,
                           bool accumulate)
{
    g->k->gemm(g->s, &(struct gemm){.m = R,
                                    .n = I,
                                    .k = N,
                                    .a = dy,
                                    .a_row = 1,
                                    .a_col = O,
                                    .b = x,
                                    .b_row = I,
                                    .b_col = 1,
                                    .c = dw,
                                    .c_row = I,
                                    .c_col = 1,
                                    .accumulate = accumulate});
}

void gpt_linear_fwd(const struct gpt *g, float *y, const float *x, const void *w,
                    int64_t N, int64_t I, int64_t O)
{
    int64_t rows = panel_rows(I);
    struct gemm product = product_fwd(y, O, x, w, N, I, O);
    beat_count();
    if (g->dtype == DTYPE_F32) {
        g->k->gemm(g->s, &product);
        return;
    }
    for (int64_t o = 0; o < O; o += rows) {
        int64_t R = i64_min(rows, O - o);
        g->k->load(g->s, g->scratch.panel, element(w, g->dtype, o * I), g->dtype, R * I);
        product = product_fwd(y + o, O, x, g->scratch.panel, N, I, R);
        g->k->gemm(g->s, &product);
    }
}

/* Fusing is for float32: a 16-bit result is rounded between the product and what follows,
 * which is a pass of its own. */
static bool is_fused(const struct gpt *g)
{
    return g->fuses_bias && g->dtype == DTYPE_F32;
}

void gpt_linear_bias_fwd(const struct gpt *g, float *y, const float *x, const void *w,
                         const float *bias, int64_t N, int64_t I, int64_t O)
{
    if (is_fused(g)) {
        g->k->linear(g->s, &(struct linear){.product = product_fwd(y, O, x, w, N, I, O),
                                            .bias = bias});
        return;
    }
    gpt_linear_fwd(g, y, x, w, N, I, O);
    g->k->bias_add(g->s, y, bias, N, O);
}

bool gpt_linear_gelu_fwd(const struct gpt *g, float *c, float *y, const float *x,
                         const void *w, const float *bias, int64_t N, int64_t I,
                         int64_t O)
{
    if (!is_fused(g)) {
        gpt_linear_fwd(g, c, x, w, N, I, O);
        return false;
    }
    g->k->linear(g->s, &(struct linear){.product = product_fwd(c, O, x, w, N, I, O),
                                        .bias = bias,
                                        .act = ACTIVATION_GELU,
                                        .y = y});
    return true;
}

void gpt_linear_bwd_input(const struct gpt *g, float *dx, const float *dy, const void *w,
                          int64_t N, int64_t I, int64_t O)
{
    int64_t rows = panel_rows(I);
    beat_count();
    if (g->dtype == DTYPE_F32) {
        product_bwd(g, dx, dy, w, N, I, O, O, false);
        return;
    }
    for (int64_t o = 0; o < O; o += rows) {
        int64_t R = i64_min(rows, O - o);
        g->k->load(g->s, g->scratch.panel, element(w, g->dtype, o * I), g->dtype, R * I);
        product_bwd(g, dx, dy + o, g->scratch.panel, N, I, O, R, o > 0);
    }
}

void gpt_linear_bwd_weight(const struct gpt *g, void *dw, enum dtype dtype,
                           const float *dy, const float *x, int64_t N, int64_t I,
                           int64_t O, bool accumulate)
{
    int64_t rows = panel_rows(I);
    beat_count();
    if (dtype == DTYPE_F32) {
        product_weight(g, dw, dy, x, N, I, O, O, accumulate);
        return;
    }
    for (int64_t o = 0; o < O; o += rows) {
        int64_t R = i64_min(rows, O - o);
        void *to = (char *)dw + o * I * (int64_t)dtype_bytes(dtype);
        product_weight(g, g->scratch.panel, dy + o, x, N, I, O, R, false);
        if (accumulate)
            g->k->store_add(g->s, to, g->scratch.panel, dtype, R * I);
        else
            g->k->store(g->s, to, g->scratch.panel, dtype, R * I);
    }
}
