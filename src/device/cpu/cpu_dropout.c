/*
 * Dropout, and the residual sum it is part of: one pass over memory each. Most of the
 * time goes into random words, so the Philox blocks of a group are computed side by side,
 * each in 64 bits of which the lower 32 count: what a multiplication leaves.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#define FEW 2048 // elements that one thread computes sooner than it wakes another

/* -- the factors of a group ---------------------------------------------------------- */

typedef uint64_t qvec __attribute__((vector_size(VEC * 4)));

/* The product of the lower halves and of m, which has 32 bits. */
INLINE qvec wide_product(qvec x, uint64_t m)
{
#if KERNEL_AVX512
    return (qvec)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64((int64_t)m));
#elif KERNEL_AVX2
    return (qvec)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x((int64_t)m));
#elif defined(__aarch64__)
    return (qvec)vmull_u32(vmovn_u64((uint64x2_t)x), vdup_n_u32((uint32_t)m));
#else
    return (x & UINT32_MAX) * m;
#endif
}

/* Two registers of blocks, the even and the odd ones of VEC. */
struct blocks {
    qvec word[4][2];
};

INLINE void philox_round(struct blocks *b, qvec k0, qvec k1)
{
    for (int i = 0; i < 2; i++) {
        qvec p0 = wide_product(b->word[0][i], PHILOX_M0);
        qvec p1 = wide_product(b->word[2][i], PHILOX_M1);
        b->word[0][i] = p1 >> 32 ^ b->word[1][i] ^ k0;
        b->word[1][i] = p1;
        b->word[2][i] = p0 >> 32 ^ b->word[3][i] ^ k1;
        b->word[3][i] = p0;
    }
}

/* The first two rounds of the blocks from counter `first`: what they have in common is
 * computed once. */
INLINE void philox_begin(struct blocks *b, const struct dropout *drop, uint32_t sample,
                         uint32_t first)
{
    uint32_t k0 = drop->key.k[0], k1 = drop->key.k[1], counter[VEC];
    uint64_t p1 = (uint64_t)PHILOX_M1 * drop->step;
    uint64_t p0 = (uint64_t)PHILOX_M0 * ((uint32_t)(p1 >> 32) ^ sample ^ k0);
    qvec all;
    for (uint32_t j = 0; j < VEC; j++)
        counter[j] = first + j;
    memcpy(&all, counter, sizeof counter);
    for (int i = 0; i < 2; i++) {
        qvec q0 = wide_product(i == 0 ? all : all >> 32, PHILOX_M0);
        qvec q1 = wide_product(q0 >> 32 ^ (drop->key.seed_high ^ k1), PHILOX_M1);
        b->word[0][i] = q1 >> 32 ^ ((uint32_t)p1 ^ (k0 + PHILOX_W0));
        b->word[1][i] = q1;
        b->word[2][i] = q0 ^ (p0 >> 32 ^ (k1 + PHILOX_W1));
        b->word[3][i] = (uint32_t)p0 + (qvec){0};
    }
}

INLINE void philox_blocks(struct blocks *b, const struct dropout *drop, uint32_t sample,
                          uint32_t first)
{
    qvec k0 = (drop->key.k[0] + 2 * PHILOX_W0) + (qvec){0};
    qvec k1 = (drop->key.k[1] + 2 * PHILOX_W1) + (qvec){0};
    philox_begin(b, drop, sample, first);
    for (int round = 2; round < 10; round++) {
        philox_round(b, k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

/* The factors that 16 bits each decide; without a branch, which would be guessed wrong
 * once in 1 / rate elements. */
INLINE vec decide(uvec half, const struct dropout *drop)
{
    int32_t most = (int32_t)drop->threshold - 1; // of what is dropped
#if KERNEL_AVX512
    __mmask16 keep = _mm512_cmpgt_epi32_mask((__m512i)half, _mm512_set1_epi32(most));
    return (vec)_mm512_maskz_mov_ps(keep, _mm512_set1_ps(drop->scale));
#else
    typedef int32_t ivec __attribute__((vector_size(VEC * 4)));
    return (vec)((uvec)((ivec)half > most) & (uvec)vec_of(drop->scale));
#endif
}

/* The lower words of two registers, in turn. */
INLINE uvec joined(qvec even, qvec odd)
{
#if KERNEL_AVX512
    return (uvec)_mm512_mask_mov_epi32((__m512i)even, 0xAAAA, (__m512i)(odd << 32));
#elif KERNEL_AVX2
    return (uvec)_mm256_blend_epi32((__m256i)even, (__m256i)(odd << 32), 0xAA);
#else
    return (uvec)((even & UINT32_MAX) | odd << 32);
#endif
}

/* Factors [j, j + VEC) of each sixteen of a group. */
INLINE void decide_blocks(float *factor, uint32_t j, const struct blocks *b,
                          const struct dropout *drop)
{
    for (int w = 0; w < 4; w++) {
        uvec words = joined(b->word[w][0], b->word[w][1]);
        float *low = factor + 2 * w * DROPOUT_LANES + j;
        *(vec *)low = decide(words & 0xFFFFu, drop);
        *(vec *)(low + DROPOUT_LANES) = decide(words >> 16, drop);
    }
}

void K(dropout_group)(float factor[DROPOUT_GROUP], const struct dropout *drop,
                      uint32_t sample, uint64_t group)
{
    struct dropout own = *drop; // which a store cannot be to, as the compiler sees
    for (uint32_t j = 0; j < DROPOUT_LANES; j += VEC) {
        struct blocks b;
        philox_blocks(&b, &own, sample, (uint32_t)group * DROPOUT_LANES + j);
        decide_blocks(factor, j, &b, &own);
    }
}

/* -- kernels ------------------------------------------------------------------------- */

#define COLUMNS (8 * DROPOUT_GROUP) // of a row that a thread takes at a time

/* A row of C columns, as dropout counts them. */
struct drop_row {
    const struct dropout *drop;
    uint32_t sample;
    uint64_t group; // its first
};

/* Row n of samples of S rows. */
static struct drop_row drop_row(const struct dropout *drop, int64_t n, int64_t S,
                                int64_t C)
{
    int64_t n_groups = i64_round_up(C, DROPOUT_GROUP) / DROPOUT_GROUP;
    return (struct drop_row){
        .drop = drop,
        .sample = drop->first_sample + (uint32_t)(n / S),
        .group = (uint64_t)((drop->first_row + n % S) * n_groups),
    };
}

/* The factors of the group that begins in column c. */
static void row_factors(float factor[DROPOUT_GROUP], const struct drop_row *row,
                        int64_t c)
{
    K(dropout_group)
    (factor, row->drop, row->sample, row->group + (uint64_t)(c / DROPOUT_GROUP));
}

/* y = res + (x + b), or res + (x + b) * factor, of n elements from `at`, column c. */
INLINE void residual_step(const struct residual *r, const float *factor, int64_t at,
                          int64_t c, int64_t n, enum dtype dtype)
{
    vec x = vec_load(r->x, at, n, DTYPE_F32) + vec_load(r->b, c, n, DTYPE_F32);
    vec res = vec_load(r->res, at, n, dtype);
    vec y = res + x;
    if (factor)
        y = vec_fused(x, *vecs(factor), res);
    vec_store(r->y, at, y, n, dtype);
}

/* What is computed with is copied: a store may be to anything, as far as the compiler
 * knows. */
INLINE void residual_run(const struct residual *residual, const float *factor, int64_t at,
                         int64_t c, int64_t n, enum dtype dtype)
{
    struct residual r = *residual;
    int64_t i = 0;
    for (; factor && i + VEC <= n; i += VEC)
        residual_step(&r, factor + i, at + i, c + i, VEC, dtype);
    for (; !factor && i + VEC <= n; i += VEC)
        residual_step(&r, NULL, at + i, c + i, VEC, dtype);
    if (i < n)
        residual_step(&r, factor ? factor + i : NULL, at + i, c + i, n - i, dtype);
}

static void residual_typed_run(const struct residual *r, const float *factor, int64_t at,
                               int64_t c, int64_t n, enum dtype dtype)
{
    TYPED(dtype, residual_run, r, factor, at, c, n);
}

/* Columns [c, end) of row n. */
static void residual_columns(const struct residual *r, int64_t n, int64_t c, int64_t end,
                             enum dtype dtype)
{
    struct drop_row row = drop_row(&r->drop, n, r->S, r->C);
    if (r->drop.threshold == 0)
        residual_typed_run(r, NULL, n * r->C + c, c, end - c, dtype);
    for (; r->drop.threshold > 0 && c < end; c += DROPOUT_GROUP) {
        _Alignas(64) float factor[DROPOUT_GROUP];
        row_factors(factor, &row, c);
        residual_typed_run(r, factor, n * r->C + c, c, i64_min(DROPOUT_GROUP, end - c),
                           dtype);
    }
}

void K(bias_dropout_residual)(struct stream *s, const struct residual *r)
{
    int64_t C = r->C, N = r->B * r->S;
#pragma omp parallel for collapse(2) schedule(static) if (N * C > FEW)
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c += COLUMNS)
            residual_columns(r, n, c, i64_min(C, c + COLUMNS), s->dev->dtype);
}

/* y = x * factor, of n elements from `at`. */
INLINE void dropped_step(void *y, const void *x, const float *factor, int64_t at,
                         int64_t n, enum dtype x_dtype, enum dtype dtype)
{
    vec_store(y, at, vec_load(x, at, n, x_dtype) * *vecs(factor), n, dtype);
}

INLINE void dropped_run(void *y, const void *x, const float *factor, int64_t at,
                        int64_t n, enum dtype x_dtype, enum dtype dtype)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        dropped_step(y, x, factor + i, at + i, VEC, x_dtype, dtype);
    if (i < n)
        dropped_step(y, x, factor + i, at + i, n - i, x_dtype, dtype);
}

static void dropped_float_run(void *y, const void *x, const float *factor, int64_t at,
                              int64_t n, enum dtype dtype)
{
    TYPED(dtype, dropped_run, y, x, factor, at, n, DTYPE_F32);
}

static void dropped_typed_run(void *y, const void *x, const float *factor, int64_t at,
                              int64_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        dropped_run(y, x, factor, at, n, DTYPE_F32, DTYPE_F32);
    else if (dtype == DTYPE_BF16)
        dropped_run(y, x, factor, at, n, DTYPE_BF16, DTYPE_BF16);
    else
        dropped_run(y, x, factor, at, n, DTYPE_F16, DTYPE_F16);
}

static void drop_rows(const struct dropped *d, bool is_float, enum dtype dtype)
{
    int64_t N = d->B * d->S, C = d->C;
#pragma omp parallel for collapse(2) schedule(static) if (N * C > FEW)
    for (int64_t n = 0; n < N; n++)
        for (int64_t first = 0; first < C; first += COLUMNS) {
            struct drop_row row = drop_row(&d->drop, n, d->S, C);
            int64_t end = i64_min(C, first + COLUMNS);
            for (int64_t c = first; c < end; c += DROPOUT_GROUP) {
                _Alignas(64) float factor[DROPOUT_GROUP];
                row_factors(factor, &row, c);
                (is_float ? dropped_float_run
                          : dropped_typed_run)(d->y, d->x, factor, n * C + c,
                                               i64_min(DROPOUT_GROUP, end - c), dtype);
            }
        }
}

void K(dropout_fwd)(struct stream *s, const struct dropped *d)
{
    enum dtype dtype = s->dev->dtype;
    if (!dropout_is_none(&d->drop))
        drop_rows(d, true, dtype);
    else if (d->y != d->x)
        K(store)(s, &(struct convert){d->y, d->x, dtype, d->B * d->S * d->C});
}

void K(dropout_bwd)(struct stream *s, const struct dropped *d)
{
    drop_rows(d, false, s->dev->dtype);
}
