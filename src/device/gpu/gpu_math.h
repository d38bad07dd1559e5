/*
 * gpu_math - what kernels compute with: exp and log, dropout's words, sums over a warp or
 * a block, and runs of elements in and out of memory.
 *
 * exp, dropout and conversions have the bits of the processor's kernels; sums have one
 * order for a given number of threads, whichever comes first.
 */
#ifndef DEVICE_GPU_GPU_MATH_H
#define DEVICE_GPU_GPU_MATH_H

#include "device/gpu/gpu.h"
#include "device/gpu/gpu_args.h"

#include <string.h>

/* -- numbers ------------------------------------------------------------------------- */

GPU_FN uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

GPU_FN float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

GPU_FN float widen_as(uint16_t half, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_bits_to_float(half) : half_bits_to_float(half);
}

GPU_FN uint16_t narrow_as(float x, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? float_to_bf16_bits(x) : float_to_half_bits(x);
}

/* What a number becomes when it is stored and loaded again. */
GPU_FN float rounded_as(float x, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? x : widen_as(narrow_as(x, dtype), dtype);
}

/* e^x within 2 units in the last place; 0 below -87.3, never inf (x is cut at 88.3). The
 * steps of fast_exp() of the processor, and its bits. */
GPU_FN float gpu_exp(float x)
{
    // adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits
    const float magic = 12582912.0F;
    float cut = 88.3F < x ? 88.3F : x;
    float whole = fmaf(cut, 1.44269504088896341F, magic);
    float count = whole - magic;
    float r = fmaf(-count, 0.693359375F, cut);
    r = fmaf(count, 2.12194440e-4F, r);
    float p = fmaf(1.9875691500e-4F, r, 1.3981999507e-3F);
    p = fmaf(p, r, 8.3334519073e-3F);
    p = fmaf(p, r, 4.1665795894e-2F);
    p = fmaf(p, r, 1.6666665459e-1F);
    p = fmaf(p, r, 5.0000001201e-1F);
    p = fmaf(p * r, r, r) + 1.0F;
    uint32_t power = (bits_of_float(whole) - 0x4B400000u + 127u) << 23;
    return x < -87.3F ? 0.0F : p * float_of_bits(power);
}

/* The natural logarithm, in double and rounded: the float nearest to it, but for a few in
 * a thousand million. -inf of 0, NaN of negative numbers and of NaN. */
GPU_FN float gpu_log(float x)
{
    if (!(x > 0 && x < INFINITY))
        return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    double wide = (double)x; // normal, whatever x is
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    // log m = 2 (f + f^3 / 3 + f^5 / 5 + ...), |f| < 0.172
    double f = (m - 1.0) / (m + 1.0), f2 = f * f, series = 0;
    for (int k = 21; k > 0; k -= 2)
        series = series * f2 + 1.0 / k;
    return (float)(exponent * 0.69314718055994531 + 2.0 * f * series);
}

/* -- dropout, see kernels.h ---------------------------------------------------------- */

#define DROPOUT_BLOCKS 16 // of a group: block j decides its elements j, 16 + j, ...

/* The words of block `block` (of all, counted from the sample's first) of a sample. */
GPU_FN void dropout_words(uint32_t words[4], const struct dropout *drop, uint32_t sample,
                          uint32_t block)
{
    uint32_t counter[4];
    counter[0] = block;
    counter[1] = drop->first_sample + sample;
    counter[2] = drop->step;
    counter[3] = drop->key.seed_high;
    philox_4x32(drop->key.k, counter, words);
}

/* The factor that half-word `half` of a block decides: that of element 16 * half + j. */
GPU_FN float dropout_decide(const uint32_t words[4], int half, const struct dropout *drop)
{
    uint32_t bits = words[half / 2] >> (half % 2 ? 16 : 0) & 0xFFFFu;
    return bits < drop->threshold ? 0.0F : drop->scale;
}

/* -- sums over threads --------------------------------------------------------------- */

#define GPU_WARPS_MOST 32 // of a block

/* All lanes of a warp call these and have the result. */
GPU_FN float warp_sum(float x)
{
    for (int step = GPU_WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(GPU_ALL_LANES, x, step);
    return x;
}

GPU_FN int32_t warp_max(int32_t x)
{
    for (int step = GPU_WARP / 2; step > 0; step /= 2) {
        int32_t other = __shfl_xor_sync(GPU_ALL_LANES, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* All threads of a block, of whole warps, call these once for each `warps`, an array of
 * shared memory, and have the result. */
GPU_FN float block_sum(float x, float warps[GPU_WARPS_MOST])
{
    uint32_t n_warps = blockDim.x / GPU_WARP;
    float sum = 0;
    x = warp_sum(x);
    if (threadIdx.x % GPU_WARP == 0)
        warps[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    for (uint32_t i = 0; i < n_warps; i++)
        sum += warps[i];
    return sum;
}

GPU_FN int32_t block_max(int32_t x, int32_t warps[GPU_WARPS_MOST])
{
    uint32_t n_warps = blockDim.x / GPU_WARP;
    x = warp_max(x);
    if (threadIdx.x % GPU_WARP == 0)
        warps[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    for (uint32_t i = 0; i < n_warps; i++)
        x = warps[i] > x ? warps[i] : x;
    return x;
}

/* -- runs of elements ---------------------------------------------------------------- */

/* What one instruction moves: 16 bytes, or 8, of whatever type. */
struct gpu_four_words {
    uint32_t at[4];
} __attribute__((aligned(16), may_alias));
struct gpu_two_words {
    uint32_t at[2];
} __attribute__((aligned(8), may_alias));

GPU_FN bool is_aligned(const void *x, uintptr_t bytes)
{
    return ((uintptr_t)x & (bytes - 1)) == 0;
}

GPU_FN float load_one(const void *x, int64_t i, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? ((const float *)x)[i]
                              : widen_as(((const uint16_t *)x)[i], dtype);
}

GPU_FN void store_one(void *y, int64_t i, float v, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        ((float *)y)[i] = v;
    else
        ((uint16_t *)y)[i] = narrow_as(v, dtype);
}

/* Whether all elements of a run are there, and its address allows to move it at once. */
GPU_FN bool is_whole_run(const void *x, int width, int64_t n, enum dtype dtype)
{
    return n >= width && is_aligned(x, dtype != DTYPE_F32 && width == 4 ? 8 : 16);
}

/* Words that `width` elements take. */
GPU_FN int run_words(int width, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? width : width / 2;
}

/*
 * A run is `width` elements of memory: 4, or 8 where a thread takes 16 bytes of 16-bit
 * numbers. Of those from `at` on, n are there; the others are taken for zeros, and not
 * written. Width and type are constants where speed counts.
 *
 * A run is moved by 16 bytes (or 8) where it can be, elsewhere one by one: which thread
 * has which element does not depend on it. load_raw() gets it as it is in memory and
 * widen_raw() makes floats of that: a thread that loads several runs does so before it
 * widens one, as that waits for the memory.
 */
GPU_FN void load_raw(uint32_t *raw, int width, const void *x, int64_t at, int64_t n,
                     enum dtype dtype)
{
    const char *from = (const char *)x + at * (dtype == DTYPE_F32 ? 4 : 2);
    if (!is_whole_run(from, width, n, dtype)) {
        for (int i = 0; dtype == DTYPE_F32 && i < width; i++)
            raw[i] = i < n ? bits_of_float(((const float *)x)[at + i]) : 0;
        for (int i = 0; dtype != DTYPE_F32 && i < width; i += 2) {
            uint16_t half[2];
            half[0] = i < n ? ((const uint16_t *)x)[at + i] : 0;
            half[1] = i + 1 < n ? ((const uint16_t *)x)[at + i + 1] : 0;
            memcpy(&raw[i / 2], half, sizeof half);
        }
    } else if (dtype != DTYPE_F32 && width == 4) {
        check_aligned(from, 8);
        struct gpu_two_words w = *(const struct gpu_two_words *)(const void *)from;
        raw[0] = w.at[0];
        raw[1] = w.at[1];
    } else {
        check_aligned(from, 16);
        for (int i = 0; i < run_words(width, dtype); i += 4) {
            struct gpu_four_words w =
                ((const struct gpu_four_words *)(const void *)from)[i / 4];
            for (int j = 0; j < 4; j++)
                raw[i + j] = w.at[j];
        }
    }
}

GPU_FN void widen_raw(float *v, const uint32_t *raw, int width, enum dtype dtype)
{
    for (int i = 0; dtype == DTYPE_F32 && i < width; i++)
        v[i] = float_of_bits(raw[i]);
    for (int i = 0; dtype != DTYPE_F32 && i < width; i += 2) {
        uint16_t half[2];
        memcpy(half, &raw[i / 2], sizeof half);
        v[i] = widen_as(half[0], dtype);
        v[i + 1] = widen_as(half[1], dtype);
    }
}

#define GPU_RUN_MOST 8 // elements of a run

GPU_FN void load_run(float *v, int width, const void *x, int64_t at, int64_t n,
                     enum dtype dtype)
{
    uint32_t raw[GPU_RUN_MOST];
    load_raw(raw, width, x, at, n, dtype);
    widen_raw(v, raw, width, dtype);
}

GPU_FN void store_run(void *y, int64_t at, const float *v, int width, int64_t n,
                      enum dtype dtype)
{
    char *to = (char *)y + at * (dtype == DTYPE_F32 ? 4 : 2);
    uint32_t raw[GPU_RUN_MOST];
    if (!is_whole_run(to, width, n, dtype)) {
        for (int i = 0; i < width; i++)
            if (i < n)
                store_one(y, at + i, v[i], dtype);
        return;
    }
    for (int i = 0; dtype == DTYPE_F32 && i < width; i++)
        raw[i] = bits_of_float(v[i]);
    for (int i = 0; dtype != DTYPE_F32 && i < width; i += 2) {
        uint16_t half[2];
        half[0] = narrow_as(v[i], dtype);
        half[1] = narrow_as(v[i + 1], dtype);
        memcpy(&raw[i / 2], half, sizeof half);
    }
    if (dtype != DTYPE_F32 && width == 4) {
        struct gpu_two_words w;
        w.at[0] = raw[0];
        w.at[1] = raw[1];
        check_aligned(to, 8);
        *(struct gpu_two_words *)(void *)to = w;
        return;
    }
    check_aligned(to, 16);
    for (int i = 0; i < run_words(width, dtype); i += 4) {
        struct gpu_four_words w;
        for (int j = 0; j < 4; j++)
            w.at[j] = raw[i + j];
        ((struct gpu_four_words *)(void *)to)[i / 4] = w;
    }
}

/* -- the type of a file that is compiled for each ------------------------------------ */

#if defined(GPU_DTYPE)
#define T_DTYPE ((enum dtype)GPU_DTYPE)
#define WIDE ((int)(16 / sizeof(T))) // elements of 16 bytes
#endif

#endif
