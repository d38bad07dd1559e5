/*
 * cpu_vec - vectors of floats in and out of their storage types, in registers: what row
 * kernels read and write activations with.
 *
 * The type is a constant where these are inlined: a kernel is written once, as a function
 * of it, and TYPED() calls the copy that was made for one.
 */
#ifndef DEVICE_CPU_CPU_VEC_H
#define DEVICE_CPU_CPU_VEC_H

#include "device/cpu/cpu.h"

typedef uint16_t hvec __attribute__((vector_size(VEC * 2), aligned(2), may_alias));

/* function(..., dtype) with a constant for the type. */
#define TYPED(dtype, function, ...)                                                      \
    ((dtype) == DTYPE_F32    ? function(__VA_ARGS__, DTYPE_F32)                          \
     : (dtype) == DTYPE_BF16 ? function(__VA_ARGS__, DTYPE_BF16)                         \
                             : function(__VA_ARGS__, DTYPE_F16))

/* -- one vector, see dtype.h for what a number becomes ------------------------------- */

/* a where the mask is all ones, b where it is zero. */
INLINE uvec uvec_select(uvec mask, uvec a, uvec b)
{
#if KERNEL_AVX2 && !KERNEL_AVX512
    return (uvec)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)mask);
#else
    return (mask & a) | (~mask & b);
#endif
}

/* 16 bits as 32, and back: what compilers make of a conversion takes twice the steps. */
INLINE uvec uvec_from_halves(hvec half)
{
#ifdef KERNEL_EMULATED
    return __builtin_convertvector(half, uvec);
#elif KERNEL_AVX512
    return (uvec)_mm512_cvtepu16_epi32((__m256i)half);
#elif KERNEL_AVX2
    return (uvec)_mm256_cvtepu16_epi32((__m128i)half);
#else
    return __builtin_convertvector(half, uvec);
#endif
}

INLINE hvec uvec_to_halves(uvec x)
{
#ifdef KERNEL_EMULATED
    return __builtin_convertvector(x, hvec);
#elif KERNEL_AVX512
    return (hvec)_mm512_cvtepi32_epi16((__m512i)x);
#elif KERNEL_AVX2
    return (hvec)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                                  _mm256_extracti128_si256((__m256i)x, 1));
#else
    return __builtin_convertvector(x, hvec);
#endif
}

INLINE vec vec_from_bf16(hvec half)
{
    return (vec)(uvec_from_halves(half) << 16);
}

/* x rounded to bfloat16, in the upper half of each element; the lower is of no meaning. */
INLINE uvec vec_bf16_above(vec x)
{
    uvec bits = (uvec)x, rounded = bits + 0x7FFFu + (bits >> 16 & 1);
#if KERNEL_AVX512
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (uvec)_mm512_mask_or_epi32((__m512i)rounded, is_nan, (__m512i)bits,
                                      _mm512_set1_epi32(0x400000));
#else
    // NOLINTNEXTLINE(misc-redundant-expression): what is no number is not itself
    return uvec_select((uvec)(x != x), bits | 0x400000u, rounded);
#endif
}

/* The upper halves of the elements. */
INLINE hvec uvec_above(uvec x)
{
    return uvec_to_halves(x >> 16);
}

INLINE hvec vec_to_bf16(vec x)
{
    return uvec_above(vec_bf16_above(x));
}

#if KERNEL_AVX512 && !defined(KERNEL_EMULATED)
INLINE vec vec_from_f16(hvec half)
{
    return (vec)_mm512_cvtph_ps((__m256i)half);
}

INLINE hvec vec_to_f16(vec x)
{
    return (hvec)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
}
#elif KERNEL_AVX2 && !KERNEL_AVX512
INLINE vec vec_from_f16(hvec half)
{
    return (vec)_mm256_cvtph_ps((__m128i)half);
}

INLINE hvec vec_to_f16(vec x)
{
    return (hvec)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__) && VEC == 4
INLINE vec vec_from_f16(hvec half)
{
    return (vec)vcvt_f32_f16((float16x4_t)half);
}

INLINE hvec vec_to_f16(vec x)
{
    return (hvec)vcvt_f16_f32((float32x4_t)x);
}
#else
INLINE vec vec_from_f16(hvec half)
{
    uvec wide = __builtin_convertvector(half, uvec), size = (wide & 0x7FFFu) << 13;
    // a half's exponent counts from 15, a float's from 127: exact for subnormals, too
    uvec bits = (uvec)((vec)size * 0x1p112F);
    bits |= (uvec)(size >= 31u << 23) & 0x7F800000u;
    bits |= (uvec)(size > 31u << 23) & 0x400000u; // a NaN becomes a quiet one
    return (vec)((wide & 0x8000u) << 16 | bits);
}

INLINE hvec vec_to_f16(vec x)
{
    uvec bits = (uvec)x, sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    uvec normal = (size - (112u << 23) + 0xFFFu + (size >> 13 & 1)) >> 13;
    // one unit of a subnormal half is one of the last place of 0.5: the sum rounds
    uvec subnormal = (uvec)((vec)size + 0.5F) - 0x3F000000u;
    uvec nan = 0x7E00u | (size >> 13 & 0x3FFu);
    uvec half = uvec_select((uvec)(size < 0x38800000u), subnormal, normal);    // 2^-14
    half = uvec_select((uvec)(size >= 0x477FF000u), 0x7C00u + 0 * size, half); // 65520
    half = uvec_select((uvec)(size > 0x7F800000u), nan, half);
    return __builtin_convertvector(sign | half, hvec);
}
#endif

/* -- elements [at, at + n) of a tensor, n at most VEC: zeros follow in the vector ---- */

INLINE vec vec_load(const void *x, int64_t at, int64_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        float part[VEC] = {0};
        if (n == VEC)
            return *vecs((const float *)x + at);
        memcpy(part, (const float *)x + at, (size_t)n * sizeof *part);
        return *vecs(part);
    }
    const uint16_t *from = (const uint16_t *)x + at;
    uint16_t part[VEC] = {0};
    if (n < VEC) {
        memcpy(part, from, (size_t)n * sizeof *part);
        from = part;
    }
    hvec half = *(const hvec *)from;
    return dtype == DTYPE_BF16 ? vec_from_bf16(half) : vec_from_f16(half);
}

INLINE void vec_store(void *y, int64_t at, vec x, int64_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        if (n == VEC)
            *(vec *)((float *)y + at) = x;
        else
            memcpy((float *)y + at, &x, (size_t)n * sizeof(float));
        return;
    }
    hvec half = dtype == DTYPE_BF16 ? vec_to_bf16(x) : vec_to_f16(x);
    if (n == VEC)
        *(hvec *)((uint16_t *)y + at) = half;
    else
        memcpy((uint16_t *)y + at, &half, (size_t)n * sizeof(uint16_t));
}

/* What a number becomes when it is stored and loaded again. */
INLINE vec vec_rounded(vec x, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return x;
    return dtype == DTYPE_BF16 ? (vec)(vec_bf16_above(x) & 0xFFFF0000u)
                               : vec_from_f16(vec_to_f16(x));
}

#endif
