/*
 * cpu - what the fast kernels share. Each file of this folder is compiled once for every
 * instruction set; K(name) gives the functions of each compilation their own name.
 *
 * Three rules keep results independent of alignment, length, threads and processor:
 *   - an element-wise loop may be vectorised as the compiler likes;
 *   - a sum runs over LANES fixed partial sums, added in one fixed order at the end;
 *   - a product is fused with a sum where fused() says so and nowhere else: the compiler
 *     is told to join none (-ffp-contract=off).
 */
#ifndef DEVICE_CPU_CPU_H
#define DEVICE_CPU_CPU_H

#include "device/cpu/cpu_simd.h"
#include "device/kernels.h"

#include <string.h>

/* Program order is the CPU's stream: kernels take one and have nothing to ask it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define K_PASTE_(name, isa) name##_##isa
#define K_PASTE(name, isa) K_PASTE_(name, isa)
#define K(name) K_PASTE(name, KERNEL_ISA)

#define LANES 16

/* For functions whose arguments are constants where they are called. */
#define INLINE static inline __attribute__((always_inline))

/* What one register holds, wherever it lies in memory. Where sums have to stay in
 * registers, loops are written with it: the compiler would spill arrays of lanes. */
#if KERNEL_AVX512
#define VEC 16
#elif KERNEL_AVX2
#define VEC 8
#else
#define VEC 4
#endif
typedef float vec __attribute__((vector_size(VEC * 4), aligned(4), may_alias));
typedef uint32_t uvec __attribute__((vector_size(VEC * 4), aligned(4), may_alias));

static inline const vec *vecs(const float *x)
{
    return (const vec *)x;
}

/*
 * a * b + c rounded once, alone and by vectors. A processor without the instruction adds
 * the exact product in double, rounded to odd: an inexact sum takes the neighbour with an
 * odd last bit, which cannot lie halfway between two floats, so that rounding it to float
 * rounds the exact sum. Loops over either form vectorise.
 */
#if defined(__FMA__) || defined(__aarch64__)
static inline float fused(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

INLINE vec vec_fused(vec a, vec b, vec c)
{
#ifdef KERNEL_EMULATED // not SIMDe's, which rounds twice where there is no FMA for x86
    for (int i = 0; i < VEC; i++)
        c[i] = fused(a[i], b[i], c[i]);
    return c;
#elif KERNEL_AVX512
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif KERNEL_AVX2
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}
#else
static inline float fused(float a, float b, float c)
{
    union {
        double d;
        uint64_t bits;
    } sum, rest;
    double product = (double)a * (double)b, addend = (double)c;
    sum.d = product + addend;
    double part = sum.d - product;
    rest.d = (product - (sum.d - part)) + (addend - part); // exact; NaN beside inf
    rest.d = rest.d > 0.0 || rest.d < 0.0 ? rest.d : 0.0;
    // in the shape that compilers turn into vectors: no comparison gives an integer
    uint64_t size = rest.bits << 1, is_inexact = (size | -size) >> 63;
    uint64_t is_below = (rest.bits ^ sum.bits) >> 63; // towards zero from the sum
    sum.bits += (1 - 2 * is_below) & -(is_inexact & ~sum.bits);
    return (float)sum.d;
}

// a call: in line it would be most of the code, and of the time to compile it
static __attribute__((noinline, unused)) vec vec_fused(vec a, vec b, vec c)
{
    typedef double dvec __attribute__((vector_size(VEC * 8)));
    typedef int64_t ivec __attribute__((vector_size(VEC * 8)));
    dvec product = __builtin_convertvector(a, dvec) * __builtin_convertvector(b, dvec);
    dvec addend = __builtin_convertvector(c, dvec), sum = product + addend;
    dvec part = sum - product;
    dvec rest = (product - (sum - part)) + (addend - part);
    ivec away = 1 | (ivec)((rest > 0.0) ^ (sum > 0.0));
    ivec is_inexact = (ivec)((rest < 0.0) | (rest > 0.0)), bits = (ivec)sum;
    bits += away & is_inexact & ((bits & 1) - 1);
    return __builtin_convertvector((dvec)bits, vec);
}
#endif

/* The same number in every lane. */
INLINE vec vec_of(float x)
{
    return x - (vec){0};
}

static inline void lanes_store(float lane[LANES], const vec sum[LANES / VEC])
{
    for (int i = 0; i < LANES / VEC; i++)
        ((vec *)lane)[i] = sum[i];
}

/* The sum of the lanes, always in the same order. */
static inline float lanes_sum(const float lane[LANES])
{
    float s[LANES / 2];
    for (int i = 0; i < LANES / 2; i++)
        s[i] = lane[i] + lane[i + LANES / 2];
    for (int i = 0; i < LANES / 4; i++)
        s[i] += s[i + LANES / 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The largest of n >= 1 numbers. Compared as whole numbers of the same order, since the
 * compiler takes a maximum of floats one by one: they may be no numbers. */
static inline float lanes_max(const float *x, int64_t n)
{
    union {
        int32_t bits;
        float f;
    } top;
    int32_t most = INT32_MIN;
    for (int64_t c = 0; c < n; c++) {
        int32_t bits;
        memcpy(&bits, x + c, sizeof bits);
        bits ^= bits >> 31 & INT32_MAX; // of negative numbers the smaller bits are larger
        most = bits > most ? bits : most;
    }
    top.bits = most ^ (most >> 31 & INT32_MAX);
    return top.f;
}

static inline float lanes_total(const float *x, int64_t n)
{
    float lane[LANES] = {0};
    vec sum[LANES / VEC] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES / VEC; i++)
            sum[i] += vecs(x + c)[i];
    lanes_store(lane, sum);
    for (int i = 0; c + i < n; i++)
        lane[i] += x[c + i];
    return lanes_sum(lane);
}

static inline float lanes_dot(const float *x, const float *y, int64_t n)
{
    float lane[LANES] = {0};
    vec sum[LANES / VEC] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES / VEC; i++)
            sum[i] = vec_fused(vecs(x + c)[i], vecs(y + c)[i], sum[i]);
    lanes_store(lane, sum);
    for (int i = 0; c + i < n; i++)
        lane[i] = fused(x[c + i], y[c + i], lane[i]);
    return lanes_sum(lane);
}

#define EXP_MOST 8 // vectors that take the steps of an exponential together

/* a where it is less than b, else b: what is no number stays none in b. */
INLINE vec vec_min(vec a, vec b)
{
#if KERNEL_AVX512
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif KERNEL_AVX2
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    uvec less = (uvec)(a < b);
    return (vec)((less & (uvec)a) | (~less & (uvec)b));
#endif
}

/* y, and 0 where x is less than `least`. */
INLINE vec vec_cut(vec y, vec x, float least)
{
#if KERNEL_AVX512
    __mmask16 keep = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(least), _CMP_NLT_UQ);
    return (vec)_mm512_maskz_mov_ps(keep, (__m512)y);
#else
    return (vec)((uvec)y & ~(uvec)(x < least));
#endif
}

/*
 * x[i] := exp(x[i]), i < n, within 2 units in the last place over the float range; 0
 * below -87.3, never inf (x is cut at 88.3). Several vectors take each step together:
 * one alone would wait for its own results.
 */
INLINE void vec_exp(vec *x, const int n)
{
    // adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits
    const float magic = 12582912.0F;
    const uint32_t magic_bits = 0x4B400000u;
    const float factor[] = {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                            1.6666665459e-1F, 5.0000001201e-1F};
    vec cut[EXP_MOST], whole[EXP_MOST], r[EXP_MOST], p[EXP_MOST];
    for (int i = 0; i < n; i++) {
        cut[i] = vec_min(vec_of(88.3F), x[i]);
        whole[i] = vec_fused(cut[i], vec_of(1.44269504088896341F), vec_of(magic));
    }
    for (int i = 0; i < n; i++) {
        vec count = whole[i] - magic;
        r[i] = vec_fused(-count, vec_of(0.693359375F), cut[i]);
        r[i] = vec_fused(count, vec_of(2.12194440e-4F), r[i]);
        p[i] = vec_of(1.9875691500e-4F);
    }
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < n; i++)
            p[i] = vec_fused(p[i], r[i], vec_of(factor[k]));
    for (int i = 0; i < n; i++)
        p[i] = vec_fused(p[i] * r[i], r[i], r[i]) + 1.0F;
    for (int i = 0; i < n; i++) {
        uvec power = ((uvec)whole[i] - magic_bits + 127u) << 23;
        x[i] = vec_cut(p[i] * (vec)power, x[i], -87.3F);
    }
}

static inline float fast_exp(float x)
{
    vec y = vec_of(x);
    vec_exp(&y, 1);
    return y[0];
}

/* x := exp(x * scale - shift); the sum of the results. */
static inline float lanes_exp(float *x, int64_t n, float scale, float shift)
{
    enum { STEP = 2 * LANES / VEC };
    float lane[LANES] = {0};
    vec sum[LANES / VEC] = {{0}}, e[STEP];
    int64_t c = 0;
    for (; c + 2 * LANES <= n; c += 2 * LANES) {
        for (int i = 0; i < STEP; i++)
            e[i] = vec_fused(vecs(x + c)[i], vec_of(scale), vec_of(-shift));
        vec_exp(e, STEP);
        for (int i = 0; i < STEP; i++) {
            ((vec *)(x + c))[i] = e[i];
            sum[i % (LANES / VEC)] += e[i];
        }
    }
    lanes_store(lane, sum);
    for (int64_t i = 0; c + i < n; i++) {
        x[c + i] = fast_exp(fused(x[c + i], scale, -shift));
        lane[i % LANES] += x[c + i];
    }
    return lanes_sum(lane);
}

#define DROPOUT_LANES 16

/* factor[i] := the dropout factor of element i of group `group` (see kernels.h). */
void K(dropout_group)(float factor[DROPOUT_GROUP], const struct dropout *drop,
                      uint32_t sample, uint64_t group);

#define CPU_KERNEL(name, args) void K(name)(struct stream * s, const struct args *a);
OPERATIONS(CPU_KERNEL)
#undef CPU_KERNEL

/* Columns [c, end) of row n, on one thread. */
void K(activation_run)(const struct activation_fwd *a, int64_t n, int64_t c, int64_t end,
                       enum dtype dtype);

#endif
