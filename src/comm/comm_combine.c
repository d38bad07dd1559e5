/*
 * The loops that combine numbers of the host, of which there are few.
 */
#include "comm/comm_combine.h"

static void sum_f64(void *out_, const void *a_, const void *b_, int64_t n)
{
    double *out = out_;
    const double *a = a_, *b = b_;
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void sum_i64(void *out_, const void *a_, const void *b_, int64_t n)
{
    int64_t *out = out_;
    const int64_t *a = a_, *b = b_;
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void max_i64(void *out_, const void *a_, const void *b_, int64_t n)
{
    int64_t *out = out_;
    const int64_t *a = a_, *b = b_;
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] > b[i] ? a[i] : b[i];
}

const struct comm_op *comm_op_sum(enum dtype dtype)
{
    static const struct comm_op ops[] = {
        [DTYPE_F32] = {.elem_bytes = 4, .reduce = REDUCE_SUM, .dtype = DTYPE_F32},
        [DTYPE_F16] = {.elem_bytes = 2, .reduce = REDUCE_SUM, .dtype = DTYPE_F16},
        [DTYPE_BF16] = {.elem_bytes = 2, .reduce = REDUCE_SUM, .dtype = DTYPE_BF16},
    };
    return &ops[dtype];
}

const struct comm_op comm_op_max_f32 = {
    .elem_bytes = sizeof(float), .reduce = REDUCE_MAX, .dtype = DTYPE_F32};
const struct comm_op comm_op_sum_f64 = {.elem_bytes = sizeof(double), .combine = sum_f64};
const struct comm_op comm_op_sum_i64 = {.elem_bytes = sizeof(int64_t),
                                        .combine = sum_i64};
const struct comm_op comm_op_max_i64 = {.elem_bytes = sizeof(int64_t),
                                        .combine = max_i64};
