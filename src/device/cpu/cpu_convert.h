/*
 * cpu_convert - short runs of numbers between storage types and float, on one thread:
 * what the kernels that read or write stored numbers are made of.
 *
 * They work through runs of CONVERT_RUN elements, which stay in the first cache between
 * one step and the next.
 */
#ifndef DEVICE_CPU_CPU_CONVERT_H
#define DEVICE_CPU_CPU_CONVERT_H

#include "device/cpu/cpu_vec.h"

#define CONVERT_RUN 1024

INLINE void widen_run(float *y, const void *x, int64_t n, enum dtype dtype)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        *(vec *)(y + i) = vec_load(x, i, VEC, dtype);
    if (i < n)
        vec_store(y, i, vec_load(x, i, n - i, dtype), n - i, DTYPE_F32);
}

INLINE void narrow_run(void *y, const float *x, int64_t n, enum dtype dtype)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y, i, *vecs(x + i), VEC, dtype);
    if (i < n)
        vec_store(y, i, vec_load(x, i, n - i, DTYPE_F32), n - i, dtype);
}

/* y = x */
static inline void widen(float *restrict y, const void *restrict x, enum dtype dtype,
                         int64_t n)
{
    switch (dtype) {
    case DTYPE_F32:
        memcpy(y, x, (size_t)n * sizeof *y);
        break;
    case DTYPE_F16:
        widen_run(y, x, n, DTYPE_F16);
        break;
    case DTYPE_BF16:
        widen_run(y, x, n, DTYPE_BF16);
        break;
    }
}

/* y = x rounded */
static inline void narrow(void *restrict y, const float *restrict x, enum dtype dtype,
                          int64_t n)
{
    switch (dtype) {
    case DTYPE_F32:
        memcpy(y, x, (size_t)n * sizeof *x);
        break;
    case DTYPE_F16:
        narrow_run(y, x, n, DTYPE_F16);
        break;
    case DTYPE_BF16:
        narrow_run(y, x, n, DTYPE_BF16);
        break;
    }
}

#endif
