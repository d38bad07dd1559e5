/*
 * Attention of one query over a cache of keys and values. A head is one thread's where
 * there are heads for all of them; otherwise threads share its keys, then its columns.
 *
 * A score is a sum over 16 lanes of D, the sum of probabilities one over 16 lanes of keys,
 * an output a chain over keys in ascending order: of floats they are divided by their sum
 * before, of a type of 16 bits they are rounded to it, and the output is divided.
 */
#include "device/cpu/cpu_attention.h"
#include "device/device.h"

#include <omp.h>

#define KEYS 256   // that a thread takes at a time
#define COLUMNS 64 // of an output, likewise
#define AHEAD 24   // rows of the cache that are under way

/* One head. */
struct decode {
    const struct attention_decode *at;
    int64_t h, kv; // where its keys and values begin in a row of the cache
    float *p;      // (n_keys)
    float scale;
};

static struct decode decode_of(const struct attention_decode *at, int64_t h)
{
    return (struct decode){.at = at,
                           .h = h,
                           .kv = h / (at->A / at->A_kv) * at->D,
                           .p = at->scores + h * at->n_keys,
                           .scale = 1.0F / sqrtf((float)at->D)};
}

/* n elements that will be needed. A head's parts of the rows of the cache lie too far apart
 * for the processor to guess the next. */
INLINE void fetch(const void *x, int64_t n, const enum dtype dtype)
{
    int64_t bytes =
        n * (dtype == DTYPE_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t));
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)x + (uintptr_t)i));
}

INLINE void scores(const struct decode *d, int64_t first, int64_t end,
                   const enum dtype dtype)
{
    const struct attention_decode *at = d->at;
    const void *q = element(at->q, d->h * at->D, dtype);
    for (int64_t i = first; i < end; i++) {
        const void *key = element(at->keys, i * at->kv_row + d->kv, dtype);
        if (i + AHEAD < end)
            fetch(element(key, AHEAD * at->kv_row, dtype), at->D, dtype);
        d->p[i] = row_dot(q, key, at->D, dtype);
    }
}

/* p := exp(scores - their maximum); of floats over the sum of it. */
static void probabilities(const struct decode *d, enum dtype dtype)
{
    int64_t n = d->at->n_keys;
    float top = lanes_max(d->p, n) * d->scale;
    float inverse = 1.0F / lanes_exp(d->p, n, d->scale, top);
    for (int64_t i = 0; dtype == DTYPE_F32 && i < n; i++)
        d->p[i] *= inverse;
}

/* sum += p[i] * v[i] of n keys, for n_columns columns of v, COLUMNS at most. */
INLINE void add_keys(vec sum[COLUMNS / VEC], const float *p, const void *v, int64_t row,
                     int64_t n, int64_t n_columns, const enum dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const void *from = element(v, i * row, dtype);
        if (i + AHEAD < n)
            fetch(element(from, AHEAD * row, dtype), n_columns, dtype);
        for (int j = 0; j < COLUMNS / VEC; j++)
            if (j * VEC < n_columns)
                sum[j] = vec_fused(
                    vec_of(p[i]),
                    vec_load(from, j * VEC, i64_min(VEC, n_columns - j * VEC), dtype),
                    sum[j]);
    }
}

/* Columns [first, first + n) of the output, COLUMNS at most. */
INLINE void output(const struct decode *d, int64_t first, int64_t n,
                   const enum dtype dtype)
{
    const struct attention_decode *at = d->at;
    vec sum[COLUMNS / VEC] = {{0}};
    for (int64_t i = 0; i < at->n_keys; i += KEYS) {
        int64_t keys = i64_min(KEYS, at->n_keys - i);
        const void *v = element(at->values, i * at->kv_row + d->kv + first, dtype);
        float operand[KEYS];
        for (int64_t c = 0; c < keys; c += VEC)
            vec_store(
                operand, c,
                vec_rounded(vec_load(d->p, i + c, i64_min(VEC, keys - c), DTYPE_F32),
                            dtype),
                VEC, DTYPE_F32);
        if (n == COLUMNS)
            add_keys(sum, operand, v, at->kv_row, keys, COLUMNS, dtype);
        else
            add_keys(sum, operand, v, at->kv_row, keys, n, dtype);
    }
    float inverse = dtype == DTYPE_F32 ? 1.0F : 1.0F / lanes_total(d->p, at->n_keys);
    for (int j = 0; j < COLUMNS / VEC; j++)
        if (j * VEC < n)
            vec_store(at->out, d->h * at->D + first + j * VEC, sum[j] * inverse,
                      i64_min(VEC, n - j * VEC), dtype);
}

INLINE void whole_head(const struct attention_decode *at, int64_t h,
                       const enum dtype dtype)
{
    struct decode d = decode_of(at, h);
    scores(&d, 0, at->n_keys, dtype);
    probabilities(&d, dtype);
    for (int64_t first = 0; first < at->D; first += COLUMNS)
        output(&d, first, i64_min(COLUMNS, at->D - first), dtype);
}

/* Inside a parallel region: the heads' keys, the heads, their columns. */
INLINE void shared_heads(const struct attention_decode *at, const enum dtype dtype)
{
#pragma omp for collapse(2) schedule(static)
    for (int64_t h = 0; h < at->A; h++)
        for (int64_t first = 0; first < at->n_keys; first += KEYS) {
            struct decode d = decode_of(at, h);
            scores(&d, first, i64_min(first + KEYS, at->n_keys), dtype);
        }
#pragma omp for schedule(static)
    for (int64_t h = 0; h < at->A; h++) {
        struct decode d = decode_of(at, h);
        probabilities(&d, dtype);
    }
#pragma omp for collapse(2) schedule(static)
    for (int64_t h = 0; h < at->A; h++)
        for (int64_t first = 0; first < at->D; first += LANES) {
            struct decode d = decode_of(at, h);
            output(&d, first, i64_min(LANES, at->D - first), dtype);
        }
}

INLINE void decode(const struct attention_decode *at, const enum dtype dtype)
{
    if (at->A < omp_get_max_threads()) {
#pragma omp parallel
        shared_heads(at, dtype);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < at->A; h++)
        whole_head(at, h, dtype);
}

void K(attention_decode)(struct stream *s, const struct attention_decode *at)
{
    TYPED(s->dev->dtype, decode, at);
}
