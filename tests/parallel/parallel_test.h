/*
 * parallel_test - what the tests that run on several ranks share.
 *
 * The world is opened by the group's set-up and handed to the tests as their state.
 * Values of every rank can be computed by every rank, so that a serial sum is at hand to
 * compare with.
 */
#ifndef TESTS_PARALLEL_PARALLEL_TEST_H
#define TESTS_PARALLEL_PARALLEL_TEST_H

#include "test.h"

#include "base/base.h"
#include "comm/comm.h"

/* What rank r holds at element i of buffer `b`: of magnitudes 1e-3 to 1e3 and any sign,
 * so that another order of adding shows. */
static inline float value_at(int b, int r, int64_t i)
{
    uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15u + (uint64_t)(r * 131 + b * 7919 + 1);
    h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 29) * 0x94D049BB133111EBu;
    h ^= h >> 32;
    static const float scales[] = {1e-3f, 1e-2f, 1e-1f, 1, 1e1f, 1e2f, 1e3f};
    return ((float)(h >> 8 & 0xFFFFFF) / 16777216.0f - 0.5f) * scales[h % 7];
}

/* The sum that comm.h promises. */
static inline float sum_at(int b, int size, int64_t i)
{
    float sum = value_at(b, 0, i);
    for (int r = 1; r < size; r++)
        sum += value_at(b, r, i);
    return sum;
}

/* n values of this rank; the caller frees them. One spare element marks the end. */
static inline float *values_new(const struct comm *c, int b, int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = value_at(b, comm_rank(c), i);
    x[n] = -77.0f;
    return x;
}

/* Fails unless x[begin, end) holds exactly the sums. */
static inline void assert_sums(const float *x, int b, int size, int64_t begin,
                               int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        float want = sum_at(b, size, i);
        if (memcmp(&x[i], &want, sizeof want) != 0)
            fail_msg("buffer %d, element %lld: %a, the sum in rank order is %a", b,
                     (long long)i, (double)x[i], (double)want);
    }
}

/* Numbers of elements: none, few, one block and a bit, many blocks. */
static const int64_t sizes[] = {0, 1, 2, 7, 64, 65537, 1000003};

/* Ways to cut n elements, some with empty ranges and some that leave elements out. */
enum { N_CUTS = 5 };

static inline void cut(int way, int64_t n, int size, int64_t *bounds)
{
    comm_even_bounds(n, size, bounds);
    for (int r = 0; r <= size; r++) {
        int64_t ways[N_CUTS] = {
            bounds[r],                  // evenly
            r == 0 ? 0 : n,             // all to rank 0
            r == size ? n : 0,          // all to the last
            n * r / size * r / size,    // ever longer
            n / 5 + (n / 2) * r / size, // the middle only
        };
        bounds[r] = ways[way];
    }
}

/* Room for bounds; the caller frees it. */
static inline int64_t *bounds_new(const struct comm *c)
{
    int64_t *bounds = calloc((size_t)comm_size(c) + 1, sizeof *bounds);
    assert_non_null(bounds);
    return bounds;
}

static inline int open_world(void **state)
{
    struct error err;
    struct comm *world;
    const char *n_ranks = getenv("TEST_RANKS");
    if (comm_world_open(&world, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    *state = world;
    if (n_ranks && atoi(n_ranks) != comm_size(world)) {
        print_error("started on %s ranks, but there are %d\n", n_ranks, comm_size(world));
        return -1;
    }
    return 0;
}

static inline int close_world(void **state)
{
    comm_world_close(*state);
    return 0;
}

#endif
