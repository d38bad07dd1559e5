/*
 * cpu_convert - short runs of numbers between storage types and float, on one thread:
 * what the kernels that read or write stored numbers are made of.
 *
 * They work through runs of CONVERT_RUN elements, which stay in the first cache between
 * one step and the next.
 */
#ifndef DEVICE_CPU_CPU_CONVERT_H
#define DEVICE_CPU_CPU_CONVERT_H

#include "base/dtype.h"

#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#define CONVERT_RUN 1024

static inline void widen_f16(float *restrict y, const uint16_t *restrict x, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#endif
    for (; i < n; i++)
        y[i] = f16_to_f32(x[i]);
}

static inline void narrow_f16(uint16_t *restrict y, const float *restrict x, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i),
                                                          _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = f32_to_f16(x[i]);
}

static inline void widen_bf16(float *restrict y, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_to_f32(x[i]);
}

static inline void narrow_bf16(uint16_t *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f32_to_bf16(x[i]);
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
        widen_f16(y, x, n);
        break;
    case DTYPE_BF16:
        widen_bf16(y, x, n);
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
        narrow_f16(y, x, n);
        break;
    case DTYPE_BF16:
        narrow_bf16(y, x, n);
        break;
    }
}

#endif
