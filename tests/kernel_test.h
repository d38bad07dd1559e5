/*
 * kernel_test - what the kernel tests share: the tables, random buffers, comparisons.
 */
#ifndef TESTS_KERNEL_TEST_H
#define TESTS_KERNEL_TEST_H

#include "test.h"

#include "device/kernels.h"

#define MAX_TABLES 8

struct tables {
    const struct kernels *at[MAX_TABLES]; // the reference first
    int n;
};

static inline struct tables all_tables(void)
{
    struct tables t;
    t.n = kernels_list(t.at, MAX_TABLES);
    assert_in_range(t.n, 2, MAX_TABLES);
    assert_string_equal(t.at[0]->name, "ref");
    return t;
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

#endif
