/*
 * cpu_pack - one side of a product, packed into panels: for each k the values of `width`
 * rows (or columns) behind each other, so that the innermost block reads both sides from
 * its start to its end.
 */
#ifndef DEVICE_CPU_CPU_PACK_H
#define DEVICE_CPU_CPU_PACK_H

#include "device/cpu/cpu.h"

/* A factor: element (i, k) of it is x[i * line + k * step]. */
struct pack_from {
    const float *x;
    int64_t line, step;
};

typedef float pack_4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float pack_8 __attribute__((vector_size(32), aligned(4), may_alias));

static inline pack_4 pack_load_4(const float *x)
{
    return *(const pack_4 *)x;
}

/* to(4 k, 4) := the transpose of 4 lines of 4. */
static inline void pack_4x4(float *restrict to, int64_t width, const float *restrict from,
                            int64_t line)
{
    pack_4 a = pack_load_4(from), b = pack_load_4(from + line);
    pack_4 c = pack_load_4(from + 2 * line), d = pack_load_4(from + 3 * line);
    pack_4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    pack_4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    pack_4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    pack_4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(pack_4 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(pack_4 *)(to + width) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(pack_4 *)(to + 2 * width) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(pack_4 *)(to + 3 * width) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#ifdef __AVX__
/* Lines i and i + 4, four of each. */
static inline pack_8 pack_load_pair(const float *from, int64_t line)
{
    pack_4 low = pack_load_4(from), high = pack_load_4(from + 4 * line);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* to(4 k, 8) := the transpose of 8 lines of 4: within the halves of registers. */
static inline void pack_8x4(float *restrict to, int64_t width, const float *restrict from,
                            int64_t line)
{
    pack_8 a = pack_load_pair(from, line), b = pack_load_pair(from + line, line);
    pack_8 c = pack_load_pair(from + 2 * line, line);
    pack_8 d = pack_load_pair(from + 3 * line, line);
    pack_8 ab_low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pack_8 ab_high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    pack_8 cd_low = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    pack_8 cd_high = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    *(pack_8 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 8, 9, 4, 5, 12, 13);
    *(pack_8 *)(to + width) =
        __builtin_shufflevector(ab_low, cd_low, 2, 3, 10, 11, 6, 7, 14, 15);
    *(pack_8 *)(to + 2 * width) =
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 8, 9, 4, 5, 12, 13);
    *(pack_8 *)(to + 3 * width) =
        __builtin_shufflevector(ab_high, cd_high, 2, 3, 10, 11, 6, 7, 14, 15);
}
#endif

/* Lines [first, first + n) that lie along k. A cache line of each is taken at a time:
 * lines that lie a power of two apart would push each other out. */
static inline void pack_lines(float *restrict to, int64_t width,
                              const float *restrict from, int64_t line, int64_t n,
                              int64_t n_k)
{
    enum { CACHE_LINE = 16 };
    for (int64_t first_k = 0; first_k < n_k; first_k += CACHE_LINE) {
        int64_t end_k = i64_min(first_k + CACHE_LINE, n_k), i = 0;
#ifdef __AVX__
        for (; i + 8 <= n; i += 8)
            for (int64_t k = first_k; k + 4 <= end_k; k += 4)
                pack_8x4(to + k * width + i, width, from + i * line + k, line);
#endif
        for (; i + 4 <= n; i += 4)
            for (int64_t k = first_k; k + 4 <= end_k; k += 4)
                pack_4x4(to + k * width + i, width, from + i * line + k, line);
        for (int64_t l = 0; l < n; l++)
            for (int64_t k = l < i ? end_k - (end_k - first_k) % 4 : first_k; k < end_k;
                 k++)
                to[k * width + l] = from[l * line + k];
    }
}

/* A panel (n_k, width) of n <= width lines; zeros past them. */
static inline __attribute__((always_inline)) void pack_panel(float *restrict to,
                                                             const int width,
                                                             const struct pack_from *f,
                                                             int64_t n, int64_t n_k)
{
    const float *from = f->x;
    if (n < width)
        memset(to, 0, (size_t)(n_k * width) * sizeof *to);
    if (f->line == 1 && n == width)
        for (int64_t k = 0; k < n_k; k++)
            memcpy(to + k * width, from + k * f->step, (size_t)width * sizeof *to);
    else if (f->step == 1 && n == width)
        pack_lines(to, width, from, f->line, width, n_k);
    else if (f->step == 1)
        pack_lines(to, width, from, f->line, n, n_k);
    else
        for (int64_t k = 0; k < n_k; k++)
            for (int64_t i = 0; i < n; i++)
                to[k * width + i] = from[i * f->line + k * f->step];
}

#endif
