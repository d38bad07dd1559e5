/*
 * dtype - the number formats that parameters, activations and gradients are stored in,
 * and what a float becomes in each. Sums are float or double whatever the storage.
 *
 * Rounding is to nearest, ties to even. What is too large becomes infinity, what is too
 * small a subnormal or zero, exactly; a NaN stays a NaN of the same sign and the same
 * leading bits. The conversions below give the bits of the F16C instructions, and assume
 * what they do: rounding to nearest, subnormal floats not flushed to zero.
 */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include "base/base.h"

#include <string.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,  // IEEE 754 half: 5 bits of exponent, 10 of fraction, 65504 the largest
    DTYPE_BF16, // the upper half of a float: 8 bits of exponent, 7 of fraction
};

size_t dtype_bytes(enum dtype dtype);     // of one element
const char *dtype_name(enum dtype dtype); // "float32", "float16", "bfloat16"

/* y[0, n) := x widened; and rounded. In one thread: for what has a thread of its own. */
void dtype_load(float *y, const void *x, enum dtype dtype, int64_t n);
void dtype_store(void *y, const float *x, enum dtype dtype, int64_t n);

static inline uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* All cases are computed and one is taken, so that loops over these vectorise. */

static inline uint16_t f32_to_f16(float x)
{
    uint32_t bits = f32_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    // a half's exponent counts from 15, a float's from 127
    uint32_t normal = (size - (112u << 23) + 0xFFFu + (size >> 13 & 1)) >> 13;
    // one unit of a subnormal half is one of the last place of 0.5: the sum rounds
    uint32_t subnormal = f32_bits(f32_from_bits(size) + 0.5F) - 0x3F000000u;
    uint32_t nan = 0x7E00u | (size >> 13 & 0x3FFu);
    uint32_t half = size < 0x38800000u ? subnormal : normal; // 2^-14
    half = size >= 0x477FF000u ? 0x7C00u : half;             // 65520 and above
    half = size > 0x7F800000u ? nan : half;
    return (uint16_t)(sign | half);
}

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = (uint32_t)(half & 0x7FFF)
                                                            << 13;
    uint32_t normal = size + (112u << 23);
    uint32_t not_finite = size + (224u << 23);
    // as the fraction of 2^-14, from which 2^-14 is then taken
    const uint32_t least = 113u << 23;
    uint32_t subnormal = f32_bits(f32_from_bits(size + least) - f32_from_bits(least));
    uint32_t bits = size < 1u << 23 ? subnormal : normal;
    bits = size >= 31u << 23 ? not_finite : bits;
    bits |= size > 31u << 23 ? 1u << 22 : 0; // a NaN becomes a quiet one
    return f32_from_bits(sign | bits);
}

static inline uint16_t f32_to_bf16(float x)
{
    uint32_t bits = f32_bits(x);
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

#endif
