/*
 * GEMMs with weights.
 *
 * A float32 weight goes into the GEMM as it is. A 16-bit one is widened panel by panel
 * (some of its rows), and each panel is used while it is in the cache: so the memory read
 * is half, and the scratch needed does not grow with the matrix. A 16-bit gradient is
 * rounded when its panel is complete, and again when another micro-batch is added.
 *
 * Panels have a fixed size, so reductions depend on nothing but the matrix. Those over
 * its rows are cut where the GEMM cuts its own, at multiples of its block of 256.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/product.h"
#include "device/device.h"

/* Rows of I elements that a panel has. */
static int64_t panel_rows(int64_t I)
{
    return i64_max(LINEAR_PANEL_ROWS,
                   LINEAR_PANEL_ELEMENTS / I / LINEAR_PANEL_ROWS * LINEAR_PANEL_ROWS);
}

static void *weight_row(const struct weight *w, int64_t row)
{
    return (char *)w->data + row * w->cols * (int64_t)dtype_bytes(w->dtype);
}

/* Rows [first, first + n) of w as floats: where they are, or in `panel`. */
static const float *widened_rows(struct stream *s, const struct weight *w, int64_t first,
                                 int64_t n, float *panel)
{
    if (w->dtype == DTYPE_F32)
        return weight_row(w, first);
    K(load)(s, panel, weight_row(w, first), w->dtype, n * w->cols);
    return panel;
}

/* How many rows of w to take at a time. */
static int64_t rows_at_a_time(const struct weight *w)
{
    return w->dtype == DTYPE_F32 ? w->rows : panel_rows(w->cols);
}

/* -- forward ------------------------------------------------------------------------- */

/* Rows [first, first + N) of y = x w^T. */
static void gemm_rows(struct stream *s, const struct linear *l, int64_t first, int64_t N)
{
    int64_t I = l->w->cols, O = l->w->rows, step = rows_at_a_time(l->w);
    for (int64_t o = 0; o < O; o += step) {
        int64_t R = i64_min(step, O - o);
        struct gemm g = {.m = N,
                         .n = R,
                         .k = I,
                         .a = l->x + first * I,
                         .a_row = I,
                         .a_col = 1,
                         .b = widened_rows(s, l->w, o, R, l->scratch),
                         .b_row = 1,
                         .b_col = I,
                         .c = l->y + first * O + o,
                         .c_row = O,
                         .c_col = 1};
        K(gemm)(s, &g);
    }
}

/* What follows the GEMM, on the same rows. */
static void finish_rows(struct stream *s, const struct linear *l, int64_t first,
                        int64_t N)
{
    int64_t O = l->w->rows;
    float *y = l->y + first * O;
    if (l->act == ACTIVATION_NONE && l->bias)
        K(bias_add)(s, y, l->bias, N, O);
    if (l->stash)
        K(stash_store)
    (s, (char *)l->stash + first * O * (int64_t)dtype_bytes(s->dev->dtype), y, N * O);
    struct activation_fwd pass = {.act = l->act, .x = y, .b = l->bias, .N = N, .C = O};
    if (l->act == ACTIVATION_NONE || !l->act_y)
        return;
    pass.y = l->act_y + first * O;
    K(activation_fwd)(s, &pass);
}

/* Fused, the element-wise pass over a part of the rows finds them in the last-level
 * cache, however many there are in all. BLIS packs the weight once per part, so parts
 * have many rows, and a GEMM that no pass follows is done whole. A 16-bit weight would be
 * widened once per part: it is not fused. */
void K(linear_fwd)(struct stream *s, const struct linear *l)
{
    enum { FUSED_ROWS = 1024 };
    bool has_pass = l->act == ACTIVATION_NONE ? l->bias != NULL : l->act_y != NULL;
    bool is_fused = l->is_fused && has_pass && l->w->dtype == DTYPE_F32;
    int64_t step = is_fused ? FUSED_ROWS : l->N;
    for (int64_t first = 0; first < l->N; first += step) {
        int64_t N = i64_min(step, l->N - first);
        gemm_rows(s, l, first, N);
        finish_rows(s, l, first, N);
    }
}

/* -- backward ------------------------------------------------------------------------ */

void K(linear_bwd_input)(struct stream *s, const struct linear_bwd_input *l)
{
    int64_t I = l->w->cols, O = l->w->rows, step = rows_at_a_time(l->w);
    for (int64_t o = 0; o < O; o += step) {
        int64_t R = i64_min(step, O - o);
        struct gemm g = {.m = l->N,
                         .n = I,
                         .k = R,
                         .a = l->dy + o,
                         .a_row = O,
                         .a_col = 1,
                         .b = widened_rows(s, l->w, o, R, l->scratch),
                         .b_row = I,
                         .b_col = 1,
                         .c = l->dx,
                         .c_row = I,
                         .c_col = 1,
                         .accumulate = o > 0};
        K(gemm)(s, &g);
    }
}

void K(linear_bwd_weight)(struct stream *s, const struct linear_bwd_weight *l)
{
    const struct weight *dw = l->dw;
    int64_t I = dw->cols, O = dw->rows, step = rows_at_a_time(dw);
    bool is_direct = dw->dtype == DTYPE_F32;
    for (int64_t o = 0; o < O; o += step) {
        int64_t R = i64_min(step, O - o);
        struct gemm g = {.m = R,
                         .n = I,
                         .k = l->N,
                         .a = l->dy + o,
                         .a_row = 1,
                         .a_col = O,
                         .b = l->x,
                         .b_row = I,
                         .b_col = 1,
                         .c = is_direct ? weight_row(dw, o) : l->scratch,
                         .c_row = I,
                         .c_col = 1,
                         .accumulate = is_direct && l->accumulate};
        K(gemm)(s, &g);
        if (is_direct)
            continue;
        (l->accumulate ? K(store_add) : K(store))(s, weight_row(dw, o), l->scratch,
                                                  dw->dtype, R * I);
    }
}
