/*
 * base - what every file may use: fixed-size types, attributes, CHECK.
 *
 * Layer: libc only. Everything else may include this.
 *
 * Dimension glossary, used with these letters everywhere:
 *   B samples of a micro-batch   S sequence length   N = B*S tokens of a micro-batch
 *   H hidden size   A attention heads   D = H/A head size   F ffn size
 *   V vocabulary    L layers            P position embeddings
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREFOIL_VERSION "2.0.0"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Marks a function that kernels of a GPU call as well. */
#ifdef __CUDACC__
#define HOST_AND_DEVICE __host__ __device__
#else
#define HOST_AND_DEVICE
#endif

/* For our own bugs, never for input: says where and what, then aborts. */
#define CHECK(cond, ...)                                                                 \
    do {                                                                                 \
        if (!(cond))                                                                     \
            check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__);                        \
    } while (0)

void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
    PRINTF_LIKE(4, 5) __attribute__((noreturn));

static inline int64_t i64_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t i64_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The least multiple of `unit` that is not below `n`; n >= 0, unit > 0. */
static inline int64_t i64_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

#endif
