/*
 * GEMMs with weights, and what follows them element by element: on each part of the result
 * while it is in the cache, by the thread that computed it.
 */
#include "device/cpu/cpu_product.h"
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

static enum dtype type_of(const struct stream *s, const struct weight *w)
{
    enum dtype dtype = s->dev->dtype;
    CHECK(w->dtype == dtype, "a weight of %s in a model of %s", dtype_name(w->dtype),
          dtype_name(dtype));
    return dtype;
}

/* -- forward ------------------------------------------------------------------------- */

struct forward {
    const struct linear *l;
    enum dtype dtype; // of the model
};

/* y = sums + bias, rounded. */
INLINE void add_bias(const struct linear *l, const struct product_sums *sums,
                     enum dtype dtype)
{
    for (int64_t r = 0; r < sums->rows; r++) {
        const float *x = sums->at + r * sums->stride;
        int64_t at = (sums->row + r) * l->w->rows + sums->column;
        for (int64_t c = 0; c < sums->columns; c += VEC) {
            int64_t n = i64_min(VEC, sums->columns - c);
            vec y = vec_load(x, c, n, DTYPE_F32) +
                    vec_load(l->bias, sums->column + c, n, DTYPE_F32);
            vec_store(l->y, at + c, y, n, dtype);
        }
    }
}

/* y = sums rounded; of floats it is there already. */
INLINE void round_sums(const struct linear *l, const struct product_sums *sums,
                       enum dtype dtype)
{
    for (int64_t r = 0; dtype != DTYPE_F32 && r < sums->rows; r++) {
        const float *x = sums->at + r * sums->stride;
        int64_t at = (sums->row + r) * l->w->rows + sums->column;
        for (int64_t c = 0; c < sums->columns; c += VEC) {
            int64_t n = i64_min(VEC, sums->columns - c);
            vec_store(l->y, at + c, vec_load(x, c, n, DTYPE_F32), n, dtype);
        }
    }
}

static void finish_bias(const struct product *p, const struct product_sums *sums)
{
    const struct forward *f = p->context;
    TYPED(f->l->y_dtype, add_bias, f->l, sums);
}

static void finish_activation(const struct product *p, const struct product_sums *sums)
{
    const struct forward *f = p->context;
    const struct linear *l = f->l;
    struct activation_fwd pass = {.act = l->act,
                                  .y = l->act_y,
                                  .x = l->y,
                                  .b = l->bias,
                                  .N = l->N,
                                  .C = l->w->rows};
    TYPED(l->y_dtype, round_sums, l, sums);
    for (int64_t r = 0; r < sums->rows; r++)
        K(activation_run)
    (&pass, sums->row + r, sums->column, sums->column + sums->columns, f->dtype);
}

void K(linear_fwd)(struct stream *s, const struct linear *l)
{
    int64_t I = l->w->cols, O = l->w->rows;
    struct forward f = {l, type_of(s, l->w)};
    struct product p = {.m = l->N,
                        .n = O,
                        .k = I,
                        .dtype = f.dtype,
                        .a = l->x,
                        .a_row = I,
                        .a_col = 1,
                        .b = l->w->data,
                        .b_row = 1,
                        .b_col = I,
                        .c_dtype = l->y_dtype,
                        .c = l->y,
                        .c_row = O,
                        .c_col = 1,
                        .context = &f};
    if (l->act == ACTIVATION_NONE && l->bias)
        p.finish = finish_bias;
    if (l->act != ACTIVATION_NONE && l->act_y)
        p.finish = finish_activation;
    K(product)(&p);
}

/* -- backward ------------------------------------------------------------------------ */

void K(linear_bwd_input)(struct stream *s, const struct linear_bwd_input *l)
{
    int64_t I = l->w->cols, O = l->w->rows;
    struct product p = {.m = l->N,
                        .n = I,
                        .k = O,
                        .dtype = type_of(s, l->w),
                        .a = l->dy,
                        .a_row = l->dy_row,
                        .a_col = 1,
                        .b = l->w->data,
                        .b_row = I,
                        .b_col = 1,
                        .c_dtype = l->dx_dtype,
                        .c = l->dx,
                        .c_row = I,
                        .c_col = 1};
    K(product)(&p);
}

void K(linear_bwd_weight)(struct stream *s, const struct linear_bwd_weight *l)
{
    int64_t I = l->dw->cols, O = l->dw->rows;
    struct product p = {.m = O,
                        .n = I,
                        .k = l->N,
                        .dtype = s->dev->dtype,
                        .a = l->dy,
                        .a_row = 1,
                        .a_col = l->dy_row,
                        .b = l->x,
                        .b_row = I,
                        .b_col = 1,
                        .c_dtype = l->dw->dtype,
                        .c = l->dw->data,
                        .c_row = I,
                        .c_col = 1,
                        .accumulate = l->accumulate};
    K(product)(&p);
}
