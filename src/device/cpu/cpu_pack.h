/*
 * cpu_pack - what packing one side of a product is made of: blocks of lines that lie along
 * k, turned so that the values of one k of several lines lie behind each other.
 *
 * An element is 32 bits: a float, or two 16-bit numbers of neighbouring k.
 */
#ifndef DEVICE_CPU_CPU_PACK_H
#define DEVICE_CPU_CPU_PACK_H

#include "device/cpu/cpu_product.h"

typedef uint32_t pack_4 __attribute__((vector_size(16), aligned(1), may_alias));
#if KERNEL_AVX2
typedef uint32_t pack_8 __attribute__((vector_size(32), aligned(1), may_alias));
#endif

INLINE pack_4 pack_load(const char *x)
{
    return *(const pack_4 *)x;
}

/* y[k] := element k of each of 4 lines, `line` bytes apart. */
INLINE void pack_4_lines(pack_4 y[4], const char *from, int64_t line)
{
    pack_4 a = pack_load(from), b = pack_load(from + line);
    pack_4 c = pack_load(from + 2 * line), d = pack_load(from + 3 * line);
    pack_4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    pack_4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    pack_4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    pack_4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    y[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    y[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    y[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    y[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#if KERNEL_AVX2
/* Lines i and i + 4, four elements of each. */
INLINE pack_8 pack_load_pair(const char *from, int64_t line)
{
    pack_4 low = pack_load(from), high = pack_load(from + 4 * line);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* The same of 8 lines: within the halves of registers, where moving is cheap. */
INLINE void pack_8_lines(pack_8 y[4], const char *from, int64_t line)
{
    pack_8 a = pack_load_pair(from, line), b = pack_load_pair(from + line, line);
    pack_8 c = pack_load_pair(from + 2 * line, line);
    pack_8 d = pack_load_pair(from + 3 * line, line);
    pack_8 ab_low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pack_8 ab_high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    pack_8 cd_low = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    pack_8 cd_high = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    y[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 8, 9, 4, 5, 12, 13);
    y[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 10, 11, 6, 7, 14, 15);
    y[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 8, 9, 4, 5, 12, 13);
    y[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 10, 11, 6, 7, 14, 15);
}
#endif

/* Far enough ahead that memory has answered when it is needed: no processor foresees as
 * many lines as are turned. */
INLINE void pack_prefetch(const char *from, int64_t line, int64_t n)
{
    enum { AHEAD = 4 * 64 };
    uintptr_t at = (uintptr_t)from + AHEAD; // maybe past the end of what is allocated
    for (int64_t i = 0; i < n; i++)
        __builtin_prefetch((const void *)(at + (uintptr_t)(i * line)));
}

/* to(n_k, width) := n lines turned; n and n_k are multiples of 4. */
INLINE void pack_some_turned(char *to, int64_t width, const char *from, int64_t line,
                             int64_t n, int64_t n_k)
{
    enum { CACHE_LINE = 16, BYTES = 4 };
    for (int64_t first_k = 0; first_k < n_k; first_k += CACHE_LINE) {
        int64_t end_k = i64_min(first_k + CACHE_LINE, n_k), i = 0;
        pack_prefetch(from + first_k * BYTES, line, n);
#if KERNEL_AVX2
        for (; i + 8 <= n; i += 8)
            for (int64_t k = first_k; k < end_k; k += 4) {
                pack_8 y[4];
                pack_8_lines(y, from + i * line + k * BYTES, line);
                for (int j = 0; j < 4; j++)
                    *(pack_8 *)(to + ((k + j) * width + i) * BYTES) = y[j];
            }
#endif
        for (; i + 4 <= n; i += 4)
            for (int64_t k = first_k; k < end_k; k += 4) {
                pack_4 y[4];
                pack_4_lines(y, from + i * line + k * BYTES, line);
                for (int j = 0; j < 4; j++)
                    *(pack_4 *)(to + ((k + j) * width + i) * BYTES) = y[j];
            }
    }
}

/* The same, a few lines at a time: many that lie a power of two apart would push each
 * other out of the first cache. */
INLINE void pack_turned(char *to, int64_t width, const char *from, int64_t line,
                        int64_t n, int64_t n_k)
{
    enum { FEW = 16, BYTES = 4 };
    int64_t i = 0;
    for (; i + FEW <= n; i += FEW)
        pack_some_turned(to + i * BYTES, width, from + i * line, line, FEW, n_k);
    if (i < n)
        pack_some_turned(to + i * BYTES, width, from + i * line, line, n - i, n_k);
}

#endif
