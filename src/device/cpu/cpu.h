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

static inline vec vec_fused(vec a, vec b, vec c)
{
#if KERNEL_AVX512
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
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

static inline vec vec_fused(vec a, vec b, vec c)
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
static inline vec vec_of(float x)
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

/*
 * exp(x), within 2 units in the last place over the float range; 0 below -87.3, never
 * inf (x is cut at 88.3). Branch-free, so that loops over it vectorise.
 */
static inline float fast_exp(float x)
{
    // adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits
    const float magic = 12582912.0F;
    const uint32_t magic_bits = 0x4B400000u;
    union {
        float f;
        uint32_t bits;
    } rounded, power, y;
    float cut = 88.3F < x ? 88.3F : x;
    rounded.f = fused(cut, 1.44269504088896341F, magic);
    float n = rounded.f - magic;
    float r = fused(-n, 0.693359375F, cut);
    r = fused(n, 2.12194440e-4F, r);
    float p = 1.9875691500e-4F;
    p = fused(p, r, 1.3981999507e-3F);
    p = fused(p, r, 8.3334519073e-3F);
    p = fused(p, r, 4.1665795894e-2F);
    p = fused(p, r, 1.6666665459e-1F);
    p = fused(p, r, 5.0000001201e-1F);
    p = fused(p * r, r, r) + 1.0F;
    power.bits = (rounded.bits - magic_bits + 127u) << 23;
    y.f = p * power.f;
    y.bits &= (uint32_t)(x < -87.3F) - 1u; // what is no number stays none
    return y.f;
}

/* x := exp(x * scale - shift); the sum of the results. */
static inline float lanes_exp(float *x, int64_t n, float scale, float shift)
{
    float lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) {
            float e = fast_exp(fused(x[c + i], scale, -shift));
            x[c + i] = e;
            lane[i] += e;
        }
    for (int i = 0; c + i < n; i++) {
        x[c + i] = fast_exp(fused(x[c + i], scale, -shift));
        lane[i] += x[c + i];
    }
    return lanes_sum(lane);
}

#define DROPOUT_LANES 16

/* factor[i] := the dropout factor of element i of group `group` (see kernels.h). */
void K(dropout_group)(float factor[DROPOUT_GROUP], const struct dropout *drop,
                      uint32_t sample, uint64_t group);

void K(embedding_fwd)(struct stream *s, float *x, const struct embedding *e);
void K(embedding_bwd)(struct stream *s, const struct embedding_bwd *e);
void K(layernorm_fwd)(struct stream *s, const struct layernorm *ln);
void K(layernorm_again)(struct stream *s, const struct layernorm *ln);
void K(layernorm_bwd)(struct stream *s, const struct layernorm_bwd *ln);
void K(gemm)(struct stream *s, const struct gemm *g);
void K(linear_fwd)(struct stream *s, const struct linear *l);
void K(linear_bwd_input)(struct stream *s, const struct linear_bwd_input *l);
void K(linear_bwd_weight)(struct stream *s, const struct linear_bwd_weight *l);
void K(stash_columns)(struct stream *s, float *y, const void *stash, int64_t first,
                      int64_t rows, int64_t cols, int64_t stride);
float *K(stash_work)(struct stream *s, void *stash, float *scratch);
void K(stash_store)(struct stream *s, void *stash, float *x, int64_t n);
const float *K(stash_load)(struct stream *s, const void *stash, float *scratch,
                           int64_t n);
void K(matvec)(struct stream *s, const struct matvec *m);
void K(bias_add)(struct stream *s, float *x, const float *b, int64_t N, int64_t C);
void K(bias_grad)(struct stream *s, float *db, const float *dy, float *partial, int64_t N,
                  int64_t C);
void K(add_partials)(struct stream *s, float *out, const float *partial, int64_t N,
                     int64_t stride, int64_t C);
void K(activation_fwd)(struct stream *s, const struct activation_fwd *a);
void K(activation_bwd)(struct stream *s, const struct activation_bwd *a);
void K(bias_dropout_residual)(struct stream *s, const struct residual *r);
const float *K(dropout_bwd)(struct stream *s, float *dx, const float *dy, int64_t B,
                            int64_t S, int64_t C, const struct dropout *drop);
void K(attention_fwd)(struct stream *s, const struct attention *at);
void K(attention_bwd)(struct stream *s, const struct attention_bwd *at);
void K(attention_decode)(struct stream *s, const struct attention_decode *at);
void K(xent_max)(struct stream *s, const struct xent *x);
void K(xent_exp)(struct stream *s, const struct xent *x);
void K(xent_grad)(struct stream *s, const struct xent *x);
void K(reduce)(struct stream *s, const struct reduction *r);
void K(adamw)(struct stream *s, const struct update *u, const struct adamw *a);
void K(sum_squares)(struct stream *s, double *partial, const void *x, enum dtype dtype,
                    int64_t n);
void K(load)(struct stream *s, float *y, const void *x, enum dtype dtype, int64_t n);
void K(store)(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n);
void K(store_rounded)(struct stream *s, void *y, float *x, enum dtype dtype, int64_t n);
void K(add_stored)(struct stream *s, void *y, const void *x, enum dtype dtype, int64_t n);
void K(store_add)(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n);
void K(load_matrix)(struct stream *s, float *y, const void *x, enum dtype dtype,
                    int64_t rows, int64_t cols, int64_t x_stride);
void K(store_matrix)(struct stream *s, void *y, const float *x, enum dtype dtype,
                     bool accumulate, int64_t rows, int64_t cols, int64_t y_stride);
void K(copy)(struct stream *s, float *x, const float *y, int64_t n);
void K(add_rows)(struct stream *s, float *x, const float *y, const int32_t *rows,
                 int64_t n, int64_t C);
void K(xent_top)(struct stream *s, int32_t *column, const struct xent *x);
void K(add)(struct stream *s, float *x, const float *y, int64_t n);
void K(fill)(struct stream *s, float *x, float value, int64_t n);

#endif
