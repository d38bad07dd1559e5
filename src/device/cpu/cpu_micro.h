/*
 * cpu_micro - the innermost block of a product: MICRO_ROWS x MICRO_COLUMNS sums in
 * registers, over packed panels.
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

/* C(rows, columns) = A B, or C += A B. a is a panel (k, MICRO_ROWS), b one of (k,
 * MICRO_COLUMNS). */
struct micro {
    const float *a, *b;
    int64_t k;
    float *c;
    int64_t c_row;
    bool accumulate;
};

/* `rows` is a constant where this is inlined, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void micro_rows(const struct micro *t,
                                                             const int rows)
{
    vec sum[MICRO_ROWS][MICRO_VECS];
    const float *a = t->a, *b = t->b, *end = b + t->k * MICRO_COLUMNS;
    float *c = t->c;
    const int64_t c_row = t->c_row;
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(c + r * c_row, 1);
        __builtin_prefetch(c + r * c_row + MICRO_COLUMNS - 1, 1);
        for (int i = 0; i < MICRO_VECS; i++)
            sum[r][i] = (vec){0};
    }
    for (; b < end; a += MICRO_ROWS, b += MICRO_COLUMNS) {
        vec column[MICRO_VECS];
        for (int i = 0; i < MICRO_VECS; i++)
            column[i] = vecs(b)[i];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < MICRO_VECS; i++)
                sum[r][i] = vec_fused(vec_of(a[r]), column[i], sum[r][i]);
    }
    if (t->accumulate)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < MICRO_VECS; i++)
                sum[r][i] = vecs(c + r * c_row)[i] + sum[r][i];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            ((vec *)(c + r * c_row))[i] = sum[r][i];
}

static inline void micro_whole(const struct micro *t, int64_t rows)
{
    switch (rows) {
#if MICRO_ROWS >= 12
    case 12:
        micro_rows(t, 12);
        break;
    case 11:
        micro_rows(t, 11);
        break;
    case 10:
        micro_rows(t, 10);
        break;
    case 9:
        micro_rows(t, 9);
        break;
#endif
#if MICRO_ROWS >= 8
    case 8:
        micro_rows(t, 8);
        break;
    case 7:
        micro_rows(t, 7);
        break;
#endif
#if MICRO_ROWS >= 6
    case 6:
        micro_rows(t, 6);
        break;
    case 5:
        micro_rows(t, 5);
        break;
#endif
    case 4:
        micro_rows(t, 4);
        break;
    case 3:
        micro_rows(t, 3);
        break;
    case 2:
        micro_rows(t, 2);
        break;
    default:
        micro_rows(t, 1);
    }
}

#endif
