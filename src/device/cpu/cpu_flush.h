/*
 * cpu_flush - sums in which subnormal operands and results count as zeros of their sign,
 * as in the tile unit of a processor; everywhere else they count as what they are.
 *
 * x86-64 has a mode for it, which a thread sets with flush_begin() and leaves with
 * flush_end(), around calls of functions that are not inlined: the compiler does not know
 * that arithmetic depends on the mode. Whether a result is subnormal is decided after it
 * was rounded. AArch64's mode decides before: there, and elsewhere, sums are
 * compared, and begin and end do nothing.
 */
#ifndef DEVICE_CPU_CPU_FLUSH_H
#define DEVICE_CPU_CPU_FLUSH_H

#include "base/dtype.h"

#include <float.h>
#include <math.h>

/* -- by comparing -------------------------------------------------------------------- */

static inline float flush_operand(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0F, x) : x;
}

/* A sum of two floats that is subnormal is exact. */
static inline float flush_add_compared(float x, float y)
{
    return flush_operand(flush_operand(x) + flush_operand(y));
}

/* Of a * b + c that was rounded up to FLT_MIN: whether it is less when it is rounded to a
 * float's bits without a least exponent. */
static inline bool flush_is_below_least(float a, float b, float c)
{
    const double least_kept = (double)FLT_MIN - 0x1p-151;
    double product = (double)a * (double)b, sum = product + (double)c; // product: exact
    double of_c = sum - product;
    double error = (product - (sum - of_c)) + ((double)c - of_c);
    double size = fabs(sum);
    return size < least_kept || (size <= least_kept && (sum > 0 ? error : -error) < 0);
}

static inline float flush_fused_compared(float a, float b, float c)
{
    float x = flush_operand(a), y = flush_operand(b), z = flush_operand(c);
    float sum = flush_operand(fmaf(x, y, z));
    if (fabsf(sum) <= FLT_MIN && flush_is_below_least(x, y, z))
        return copysignf(0.0F, sum);
    return sum;
}

/* -- by the processor's mode, where it is the same ----------------------------------- */

#ifdef __x86_64__

/* Returns what flush_end() takes. */
static inline uint32_t flush_begin(void)
{
    const uint32_t flush_and_zeros = 0x8040u; // FTZ and DAZ
    uint32_t before, within;
    __asm__ volatile("stmxcsr %0" : "=m"(before) : : "memory");
    within = before | flush_and_zeros;
    __asm__ volatile("ldmxcsr %0" : : "m"(within) : "memory");
    return before;
}

static inline void flush_end(uint32_t before)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
}

static inline float flush_add(float x, float y)
{
    return x + y;
}

static inline float flush_fused(float a, float b, float c)
{
    return fmaf(a, b, c);
}

#else

static inline uint32_t flush_begin(void)
{
    return 0;
}

static inline void flush_end(uint32_t before)
{
    (void)before;
}

static inline float flush_add(float x, float y)
{
    return flush_add_compared(x, y);
}

static inline float flush_fused(float a, float b, float c)
{
    return flush_fused_compared(a, b, c);
}

#endif

/* -- what the unit computes ---------------------------------------------------------- */

/*
 * c[n] += one row of a, 32 values of k, times b: row k / 2 of b has the values of k and
 * k + 1 of each of its 16 columns side by side. e over the even k, o over the odd ones,
 * chains of fused multiply-adds from +0; then c = c + (e + o). Between flush_begin() and
 * flush_end().
 */
static __attribute__((noinline, unused)) void
flush_dot_bf16(float c[16], const uint16_t a[32], const uint16_t *b)
{
    float e[16] = {0}, o[16] = {0};
    for (int k = 0; k < 32; k += 2) {
        float even = bf16_to_f32(a[k]), odd = bf16_to_f32(a[k + 1]);
        for (int n = 0; n < 16; n++) {
            e[n] = flush_fused(even, bf16_to_f32(b[k * 16 + 2 * n]), e[n]);
            o[n] = flush_fused(odd, bf16_to_f32(b[k * 16 + 2 * n + 1]), o[n]);
        }
    }
    for (int n = 0; n < 16; n++)
        c[n] = flush_add(c[n], flush_add(e[n], o[n]));
}

#endif
