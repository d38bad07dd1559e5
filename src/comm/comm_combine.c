/*
 * The loops that add. Plain C that the compiler vectorises: `out` is exactly `a` or `b`,
 * or disjoint from both, so no iteration reads what another one wrote, which is what the
 * simd pragma promises.
 */
#include "comm/comm_combine.h"

#include <math.h>

static void sum_f32(void *out_, const void *a_, const void *b_, int64_t n)
{
    float *out = out_;
    const float *a = a_, *b = b_;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void max_f32(void *out_, const void *a_, const void *b_, int64_t n)
{
    float *out = out_;
    const float *a = a_, *b = b_;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] > b[i] || isnan(a[i]) ? a[i] : b[i];
}

static void sum_f64(void *out_, const void *a_, const void *b_, int64_t n)
{
    double *out = out_;
    const double *a = a_, *b = b_;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void sum_i64(void *out_, const void *a_, const void *b_, int64_t n)
{
    int64_t *out = out_;
    const int64_t *a = a_, *b = b_;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void max_i64(void *out_, const void *a_, const void *b_, int64_t n)
{
    int64_t *out = out_;
    const int64_t *a = a_, *b = b_;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] > b[i] ? a[i] : b[i];
}

const struct comm_op *comm_op_sum(enum dtype dtype)
{
    static const struct comm_op op_sum_f32 = {.elem_bytes = sizeof(float),
                                              .combine = sum_f32};
    return dtype == DTYPE_F32 ? &op_sum_f32 : comm_op_sum_half(dtype, true);
}

const struct comm_op comm_op_max_f32 = {.elem_bytes = sizeof(float), .combine = max_f32};
const struct comm_op comm_op_sum_f64 = {.elem_bytes = sizeof(double), .combine = sum_f64};
const struct comm_op comm_op_sum_i64 = {.elem_bytes = sizeof(int64_t),
                                        .combine = sum_i64};
const struct comm_op comm_op_max_i64 = {.elem_bytes = sizeof(int64_t),
                                        .combine = max_i64};
