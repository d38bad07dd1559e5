/*
 * Sums of elements of 16 bits: addends are widened into an accumulator of floats, which
 * is rounded at the end.
 *
 * Each loop is there twice, with the same bits: in plain C, and for processors with AVX2
 * and F16C, where it keeps up with memory (ten times faster for float16).
 */
#include "comm/comm_combine.h"

#include <immintrin.h>

#define FAST __attribute__((target("avx2,f16c")))

/* -- float16 ------------------------------------------------------------------------- */

static void widen_f16(float *restrict sum, const void *restrict x_, bool accumulate,
                      int64_t n)
{
    const uint16_t *x = x_;
    for (int64_t i = 0; i < n; i++)
        sum[i] = accumulate ? sum[i] + f16_to_f32(x[i]) : f16_to_f32(x[i]);
}

static void narrow_f16(void *restrict x_, const float *restrict sum, int64_t n)
{
    uint16_t *x = x_;
    for (int64_t i = 0; i < n; i++)
        x[i] = f32_to_f16(sum[i]);
}

FAST static void widen_f16_fast(float *restrict sum, const void *restrict x_,
                                bool accumulate, int64_t n)
{
    const uint16_t *x = x_;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i)));
        if (accumulate)
            wide = _mm256_add_ps(_mm256_loadu_ps(sum + i), wide);
        _mm256_storeu_ps(sum + i, wide);
    }
    widen_f16(sum + i, x + i, accumulate, n - i);
}

FAST static void narrow_f16_fast(void *restrict x_, const float *restrict sum, int64_t n)
{
    uint16_t *x = x_;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(x + i), _mm256_cvtps_ph(_mm256_loadu_ps(sum + i),
                                                          _MM_FROUND_TO_NEAREST_INT));
    narrow_f16(x + i, sum + i, n - i);
}

/* -- bfloat16: loops that the compiler turns into vectors of either size ------------- */

static inline void widen_bf16_loop(float *restrict sum, const uint16_t *restrict x,
                                   bool accumulate, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = accumulate ? sum[i] + bf16_to_f32(x[i]) : bf16_to_f32(x[i]);
}

static inline void narrow_bf16_loop(uint16_t *restrict x, const float *restrict sum,
                                    int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = f32_to_bf16(sum[i]);
}

static void widen_bf16(float *sum, const void *x, bool accumulate, int64_t n)
{
    widen_bf16_loop(sum, x, accumulate, n);
}

static void narrow_bf16(void *x, const float *sum, int64_t n)
{
    narrow_bf16_loop(x, sum, n);
}

FAST static void widen_bf16_fast(float *sum, const void *x, bool accumulate, int64_t n)
{
    widen_bf16_loop(sum, x, accumulate, n);
}

FAST static void narrow_bf16_fast(void *x, const float *sum, int64_t n)
{
    narrow_bf16_loop(x, sum, n);
}

/* -- choosing ------------------------------------------------------------------------ */

const struct comm_op *comm_op_sum_half(enum dtype dtype, bool can_be_fast)
{
    static const struct comm_op ops[2][2] = {
        {{.elem_bytes = 2, .widen = widen_f16, .narrow = narrow_f16},
         {.elem_bytes = 2, .widen = widen_f16_fast, .narrow = narrow_f16_fast}},
        {{.elem_bytes = 2, .widen = widen_bf16, .narrow = narrow_bf16},
         {.elem_bytes = 2, .widen = widen_bf16_fast, .narrow = narrow_bf16_fast}},
    };
    bool has_fast = __builtin_cpu_supports("avx2") && dtype_has_f16c();
    return &ops[dtype == DTYPE_BF16][can_be_fast && has_fast];
}
