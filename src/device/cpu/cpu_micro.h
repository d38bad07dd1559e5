/*
 * cpu_micro - the sums of the innermost block of a product: MICRO_ROWS x MICRO_COLUMNS in
 * registers.
 *
 * Vectors run over columns, never over k: so an element's bits depend on k alone, and are
 * the same for every instruction set that multiplies and adds with one rounding.
 */
#ifndef DEVICE_CPU_CPU_MICRO_H
#define DEVICE_CPU_CPU_MICRO_H

#include "device/cpu/cpu.h"

/* Sums, vectors of b and one of a fill the registers. */
#if VEC == 16
#define MICRO_ROWS 12
#define MICRO_VECS 2
#elif VEC == 8
#define MICRO_ROWS 6
#define MICRO_VECS 2
#elif defined(__aarch64__)
#define MICRO_ROWS 8
#define MICRO_VECS 3
#else
#define MICRO_ROWS 4
#define MICRO_VECS 2
#endif
#define MICRO_COLUMNS (MICRO_VECS * VEC)

/* `rows` is a constant wherever these are inlined. Loops are unrolled by order: sums that
 * are indexed by a loop would be kept in memory. */
INLINE void micro_zero(vec sum[MICRO_ROWS][MICRO_VECS], const int rows)
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            sum[r][i] = (vec){0};
}

/* One k. */
INLINE void micro_step(vec sum[MICRO_ROWS][MICRO_VECS], const float *a, const float *b,
                       const int rows)
{
    vec column[MICRO_VECS];
    for (int i = 0; i < MICRO_VECS; i++)
        column[i] = vecs(b)[i];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            sum[r][i] = vec_fused(vec_of(a[r]), column[i], sum[r][i]);
}

/* sum = c + sum */
INLINE void micro_add(vec sum[MICRO_ROWS][MICRO_VECS], const float *c, int64_t c_row,
                      const int rows)
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            sum[r][i] = vecs(c + r * c_row)[i] + sum[r][i];
}

INLINE void micro_store(float *c, int64_t c_row, vec sum[MICRO_ROWS][MICRO_VECS],
                        const int rows)
{
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            ((vec *)(c + r * c_row))[i] = sum[r][i];
}

/* function(t, rows) with a constant for the number of rows. */
#if MICRO_ROWS == 12
#define MICRO_OF_ROWS(rows, function, t)                                                 \
    ((rows) == 12   ? function(t, 12)                                                    \
     : (rows) == 11 ? function(t, 11)                                                    \
     : (rows) == 10 ? function(t, 10)                                                    \
     : (rows) == 9  ? function(t, 9)                                                     \
     : (rows) == 8  ? function(t, 8)                                                     \
     : (rows) == 7  ? function(t, 7)                                                     \
     : (rows) == 6  ? function(t, 6)                                                     \
     : (rows) == 5  ? function(t, 5)                                                     \
                    : MICRO_OF_FEW(rows, function, t))
#elif MICRO_ROWS == 8
#define MICRO_OF_ROWS(rows, function, t)                                                 \
    ((rows) == 8   ? function(t, 8)                                                      \
     : (rows) == 7 ? function(t, 7)                                                      \
     : (rows) == 6 ? function(t, 6)                                                      \
     : (rows) == 5 ? function(t, 5)                                                      \
                   : MICRO_OF_FEW(rows, function, t))
#elif MICRO_ROWS == 6
#define MICRO_OF_ROWS(rows, function, t)                                                 \
    ((rows) == 6   ? function(t, 6)                                                      \
     : (rows) == 5 ? function(t, 5)                                                      \
                   : MICRO_OF_FEW(rows, function, t))
#else
#define MICRO_OF_ROWS(rows, function, t) MICRO_OF_FEW(rows, function, t)
#endif
#define MICRO_OF_FEW(rows, function, t)                                                  \
    ((rows) == 4   ? function(t, 4)                                                      \
     : (rows) == 3 ? function(t, 3)                                                      \
     : (rows) == 2 ? function(t, 2)                                                      \
                   : function(t, 1))

#endif
