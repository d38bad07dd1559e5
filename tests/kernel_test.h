/*
 * kernel_test - what the kernel tests share: the tables, random buffers, comparisons.
 */
#ifndef TESTS_KERNEL_TEST_H
#define TESTS_KERNEL_TEST_H

#include "test.h"

#include "device/device.h"
#include "kernel_tables.h"

#define MAX_TABLES 8

#ifndef TEST_TABLES // a program that tries the kernels of a device has others
#define TEST_TABLES kernels_list
#endif

struct tables {
    const struct kernels *at[MAX_TABLES]; // the reference first
    int n;
};

static inline struct tables all_tables(void)
{
    struct tables t;
    t.n = TEST_TABLES(t.at, MAX_TABLES);
    assert_in_range(t.n, 2, MAX_TABLES);
    assert_string_equal(t.at[0]->name, "ref");
    return t;
}

/* The same, and what this processor lacks, emulated: for the bits of `generic`. */
static inline struct tables emulated_tables_too(void)
{
    struct tables t;
    t.n = kernel_tables(t.at, MAX_TABLES);
    return t;
}

/* -- the kernels, each on a stream of a device of its table -------------------------- */

static inline struct stream *typed_stream_of(const struct kernels *k, enum dtype dtype)
{
    static struct device devices[3 * MAX_TABLES];
    int i = 0;
    while (devices[i].k && (devices[i].k != k || devices[i].dtype != dtype))
        i++;
    if (!devices[i].k)
        device_cpu_over(&devices[i], k, dtype);
    return device_stream(&devices[i], STREAM_COMPUTE);
}

static inline struct stream *stream_of(const struct kernels *k)
{
    return typed_stream_of(k, DTYPE_F32);
}

static inline void embedding_fwd(const struct kernels *k, float *x, const float *wte,
                                 const float *wpe, const int32_t *tokens,
                                 const int32_t *positions, int64_t B, int64_t S,
                                 int64_t H)
{
    struct weight words = {.data = (void *)(uintptr_t)wte};
    struct weight places = {.data = (void *)(uintptr_t)wpe};
    struct embedding e = {x, &words, wpe ? &places : NULL, tokens, positions, B, S, H};
    k->embedding_fwd(stream_of(k), &e);
}

static inline void embedding_bwd(const struct kernels *k, float *dwte, float *dwpe,
                                 const float *dx, const int32_t *tokens,
                                 const int32_t *positions, int64_t B, int64_t S,
                                 int64_t H)
{
    k->embedding_bwd(stream_of(k),
                     &(struct embedding_bwd){dwte, dwpe, dx, tokens, positions, B, S, H});
}

static inline void layernorm_fwd(const struct kernels *k, float *y, float *mean,
                                 float *rstd, const float *x, const float *g,
                                 const float *b, int64_t N, int64_t C)
{
    k->layernorm_fwd(stream_of(k),
                     &(struct layernorm){y, mean, rstd, x, g, b, N, C, 1e-5F});
}

static inline void layernorm_again(const struct kernels *k, float *y, const float *x,
                                   float *mean, float *rstd, const float *g,
                                   const float *b, int64_t N, int64_t C)
{
    k->layernorm_again(stream_of(k),
                       &(struct layernorm){y, mean, rstd, x, g, b, N, C, 1e-5F});
}

static inline void layernorm_bwd(const struct kernels *k, float *dx, float *dg, float *db,
                                 const float *dy, const float *x, const float *g,
                                 const float *mean, const float *rstd, float *partial,
                                 int64_t N, int64_t C)
{
    k->layernorm_bwd(stream_of(k), &(struct layernorm_bwd){dx, dg, db, dy, x, g, mean,
                                                           rstd, partial, N, C});
}

/* w and x are of `dtype`, y of y_dtype. */
static inline void matvec(const struct kernels *k, void *y, enum dtype y_dtype,
                          const void *w, enum dtype dtype, const void *x, const float *b,
                          int64_t R, int64_t O, int64_t I)
{
    struct weight weight = {
        .data = (void *)(uintptr_t)w, .dtype = dtype, .rows = O, .cols = I};
    k->matvec(typed_stream_of(k, dtype), &(struct matvec){y, y_dtype, &weight, x, b, R});
}

static inline void gelu_fwd(const struct kernels *k, enum activation act, float *y,
                            const float *x, const float *b, int64_t N, int64_t C)
{
    k->activation_fwd(stream_of(k), &(struct activation_fwd){act, y, x, b, N, C});
}

static inline void gelu_bwd(const struct kernels *k, enum activation act, float *dx,
                            float *y, float *db, const float *dy, const float *x,
                            const float *b, float *partial, int64_t N, int64_t C)
{
    k->activation_bwd(stream_of(k),
                      &(struct activation_bwd){act, dx, y, db, dy, x, b, partial, N, C});
}

static inline void bias_dropout_residual(const struct kernels *k, float *y,
                                         const float *res, const float *x, const float *b,
                                         int64_t B, int64_t S, int64_t C,
                                         const struct dropout *drop)
{
    k->bias_dropout_residual(stream_of(k),
                             &(struct residual){y, res, x, b, B, S, C, *drop});
}

static inline void xent_max(const struct kernels *k, float *row_max, float *logits,
                            int64_t R, int64_t V)
{
    k->xent_max(stream_of(k),
                &(struct xent){.row_max = row_max, .logits = logits, .R = R, .V = V});
}

static inline void xent_exp(const struct kernels *k, float *row_sum, float *target_logit,
                            float *logits, float *row_max, const int32_t *targets,
                            int64_t R, int64_t V)
{
    k->xent_exp(stream_of(k), &(struct xent){.row_sum = row_sum,
                                             .target_logit = target_logit,
                                             .logits = logits,
                                             .row_max = row_max,
                                             .targets = targets,
                                             .R = R,
                                             .V = V});
}

static inline void xent_grad(const struct kernels *k, float *logits, float *row_sum,
                             const int32_t *targets, const float *weight, int64_t R,
                             int64_t V)
{
    k->xent_grad(stream_of(k), &(struct xent){.logits = logits,
                                              .row_sum = row_sum,
                                              .targets = targets,
                                              .mask = weight,
                                              .weight = 1,
                                              .R = R,
                                              .V = V});
}

/* -- random numbers: fast, fixed by the seed ----------------------------------------- */

struct rng {
    uint64_t state;
};

static inline uint32_t rng_word(struct rng *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

/* Uniform in [low, high). */
static inline double rng_uniform(struct rng *r, double low, double high)
{
    return low + (high - low) * (double)rng_word(r) * 0x1p-32;
}

/* Bell-shaped, mean 0, variance 1, within +-3.5. */
static inline float rng_bell(struct rng *r)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += rng_uniform(r, -1, 1);
    return (float)(sum * 0.8660254037844386);
}

static inline int64_t rng_below(struct rng *r, int64_t n)
{
    return (int64_t)(rng_word(r) % (uint32_t)n);
}

/* Bit patterns of all kinds: mostly numbers of every size, at times inf and NaN. */
static inline float rng_any(struct rng *r)
{
    uint32_t bits = rng_word(r);
    if (rng_below(r, 16) > 0) // a size that a half can hold, or nearly
        bits = (bits & 0x807FFFFF) | (uint32_t)(127 - 27 + rng_below(r, 45)) << 23;
    return f32_from_bits(bits);
}

/* A size about that at which a product of two is the smallest normal number. */
static inline float rng_small(struct rng *r)
{
    return rng_bell(r) * (rng_below(r, 9) > 0 ? 0x1p-62F : 0x1p-72F);
}

/* -- buffers ------------------------------------------------------------------------- */

/* n elements of 4 bytes, 64-byte aligned; free() releases them. */
static inline void *words_new(int64_t n)
{
    void *p = aligned_alloc(64, (size_t)i64_round_up(4 * n + 1, 64));
    assert_non_null(p);
    return p;
}

static inline void floats_bell(float *x, int64_t n, struct rng *r)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_bell(r);
}

static inline void floats_set(float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

static inline float *floats_new_bell(int64_t n, uint64_t seed)
{
    struct rng r = {seed};
    float *x = words_new(n);
    floats_bell(x, n, &r);
    return x;
}

static inline float *floats_new_set(int64_t n, float value)
{
    float *x = words_new(n);
    floats_set(x, n, value);
    return x;
}

static inline void assert_same_floats(const float *got, const float *want, int64_t n,
                                      const char *what)
{
    if (memcmp(got, want, (size_t)n * sizeof *got) == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof got[i]) != 0)
            fail_msg("%s: element %lld of %lld is %.9g, not %.9g", what, (long long)i,
                     (long long)n, (double)got[i], (double)want[i]);
}

/* -- elements of any type, one at a time --------------------------------------------- */

static inline float element(const void *x, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F32   ? ((const float *)x)[i]
           : dtype == DTYPE_F16 ? f16_to_f32(((const uint16_t *)x)[i])
                                : bf16_to_f32(((const uint16_t *)x)[i]);
}

static inline void set_element(void *x, enum dtype dtype, int64_t i, float value)
{
    if (dtype == DTYPE_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

static inline void *element_at(const void *x, enum dtype dtype, int64_t i)
{
    return (char *)(uintptr_t)x + i * (int64_t)dtype_bytes(dtype);
}

/* n bell-shaped numbers as `dtype` stores them. */
static inline void *stored_new_bell(int64_t n, enum dtype dtype, uint64_t seed)
{
    float *x = floats_new_bell(n, seed);
    void *y = words_new(n);
    dtype_store(y, x, dtype, n);
    free(x);
    return y;
}

/* -- attention over q, k and v in one buffer (B, S, A + 2 A_kv, D) ------------------- */

static inline void set_qkv(struct attention *at, enum dtype dtype, const void *qkv)
{
    if (at->A_kv == 0)
        at->A_kv = at->A;
    at->q = qkv;
    at->k = element_at(qkv, dtype, at->A * at->D);
    at->v = element_at(qkv, dtype, (at->A + at->A_kv) * at->D);
    at->q_row = at->kv_row = (at->A + 2 * at->A_kv) * at->D;
}

static inline void typed_attention_fwd(const struct kernels *k, enum dtype dtype,
                                       struct attention at, const void *qkv)
{
    set_qkv(&at, dtype, qkv);
    k->attention_fwd(typed_stream_of(k, dtype), &at);
}

/* The gradients lie in dqkv as q, k and v in qkv. */
static inline void typed_attention_bwd(const struct kernels *k, enum dtype dtype,
                                       struct attention_bwd at, const void *qkv,
                                       void *dqkv)
{
    const struct attention *fwd = &at.fwd;
    set_qkv(&at.fwd, dtype, qkv);
    int64_t n = attention_scratch(dtype, fwd->S, fwd->A, fwd->A_kv, fwd->D);
    at.dq = dqkv;
    at.dk = element_at(dqkv, dtype, fwd->A * fwd->D);
    at.dv = element_at(at.dk, dtype, fwd->A_kv * fwd->D);
    at.scratch = floats_new_set(n, NAN);
    k->attention_bwd(typed_stream_of(k, dtype), &at);
    free(at.scratch);
}

static inline void attention_fwd(const struct kernels *k, struct attention at,
                                 const float *qkv)
{
    typed_attention_fwd(k, DTYPE_F32, at, qkv);
}

static inline void attention_bwd(const struct kernels *k, struct attention_bwd at,
                                 const float *qkv, float *dqkv)
{
    typed_attention_bwd(k, DTYPE_F32, at, qkv, dqkv);
}

/* Runs `check` for every table, the reference too. */
static inline void for_each_table(void (*check)(const struct kernels *k))
{
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++)
        check(t.at[i]);
}

#endif
