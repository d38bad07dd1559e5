/*
 * cpu_tile - products of matrices that lie in the first caches: TILE_ROWS rows by
 * TILE_COLUMNS columns at a time in registers, over a right-hand side that was packed
 * into panels of TILE_COLUMNS columns.
 *
 * A sum runs over k in ascending order, whatever block computes it; so the bits of an
 * element do not depend on how rows are grouped.
 *
 * BLIS packs both sides of every product, which costs too much for products as small as
 * attention's tiles (docs/performance.md has what this gained).
 */
#ifndef DEVICE_CPU_CPU_TILE_H
#define DEVICE_CPU_CPU_TILE_H

#include "device/cpu/cpu.h"

#include <string.h>

#define TILE_ROWS 6 // 12 sums of 8 floats, and what they are made of, fill 16 registers
#define TILE_COLUMNS 16

/* C(rows, columns) = A B or C += A B. A is strided, B a panel (k, TILE_COLUMNS). */
struct tile_block {
    int64_t rows, columns, k; // at most TILE_ROWS, TILE_COLUMNS
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    float *c;
    int64_t c_row;
    bool accumulate;
};

/* `rows` is a constant where this is inlined, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void tile_rows(float *c, int64_t c_row,
                                                            bool accumulate,
                                                            const struct tile_block *t,
                                                            const int rows)
{
    vec sum[TILE_ROWS][TILE_COLUMNS / VEC];
    const float *a = t->a, *b = t->b;
    int64_t a_row = t->a_row, a_col = t->a_col;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_COLUMNS / VEC; i++)
            sum[r][i] = (vec){0};
    for (int64_t k = 0; k < t->k; k++) {
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < TILE_COLUMNS / VEC; i++)
                sum[r][i] = vec_fused(vec_of(a[r * a_row]), vecs(b)[i], sum[r][i]);
        a += a_col;
        b += TILE_COLUMNS;
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_COLUMNS / VEC; i++) {
            vec *to = (vec *)(c + r * c_row) + i;
            if (accumulate)
                sum[r][i] += *to;
            *to = sum[r][i];
        }
}

static inline void tile_whole(float *c, int64_t c_row, bool accumulate,
                              const struct tile_block *t)
{
    switch (t->rows) {
    case 6:
        tile_rows(c, c_row, accumulate, t, 6);
        break;
    case 5:
        tile_rows(c, c_row, accumulate, t, 5);
        break;
    case 4:
        tile_rows(c, c_row, accumulate, t, 4);
        break;
    case 3:
        tile_rows(c, c_row, accumulate, t, 3);
        break;
    case 2:
        tile_rows(c, c_row, accumulate, t, 2);
        break;
    default:
        tile_rows(c, c_row, accumulate, t, 1);
    }
}

static inline void tile_multiply(const struct tile_block *t)
{
    if (t->columns == TILE_COLUMNS) {
        tile_whole(t->c, t->c_row, t->accumulate, t);
        return;
    }
    float part[TILE_ROWS * TILE_COLUMNS];
    tile_whole(part, TILE_COLUMNS, false, t);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->columns; c++) {
            float *to = t->c + r * t->c_row + c;
            *to = t->accumulate ? *to + part[r * TILE_COLUMNS + c]
                                : part[r * TILE_COLUMNS + c];
        }
}

/* Columns [first, first + TILE_COLUMNS) of x(rows, n), zeros past n, as a panel. */
static inline void tile_pack_panel(float *restrict panel, const float *restrict x,
                                   int64_t x_row, int64_t rows, int64_t n, int64_t first)
{
    int64_t columns = i64_min(TILE_COLUMNS, n - first);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x + r * x_row + first;
        float *to = panel + r * TILE_COLUMNS;
        if (columns == TILE_COLUMNS) {
            memcpy(to, from, TILE_COLUMNS * sizeof *to);
            continue;
        }
        for (int64_t c = 0; c < TILE_COLUMNS; c++)
            to[c] = c < columns ? from[c] : 0.0F;
    }
}

/* x(rows, n) as the right-hand side of a product over its rows; panels of `height`
 * rows, of which `rows` are filled. */
static inline void tile_pack(float *packed, int64_t height, const float *x, int64_t x_row,
                             int64_t rows, int64_t n)
{
    for (int64_t c = 0; c < n; c += TILE_COLUMNS)
        tile_pack_panel(packed + c * height, x, x_row, rows, n, c);
}

/* The lower and the upper halves of two vectors, element by element in turn. */
#if VEC == 16
#define TILE_LOWER(x, y)                                                                 \
    __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TILE_UPPER(x, y)                                                                 \
    __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,  \
                            15, 31)
#elif VEC == 8
#define TILE_LOWER(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define TILE_UPPER(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define TILE_LOWER(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define TILE_UPPER(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)
#endif

/* to(VEC, VEC) := the transpose of from(VEC, VEC). */
static inline void tile_transpose(float *restrict to, int64_t to_row,
                                  const float *restrict from, int64_t from_row)
{
    vec x[VEC], y[VEC];
    for (int i = 0; i < VEC; i++)
        x[i] = *vecs(from + i * from_row);
    for (int n = 1; n < VEC; n *= 2) { // rows that are one: each turn pairs two of them
        for (int i = 0; i < VEC / 2; i++) {
            y[2 * i] = TILE_LOWER(x[i], x[i + VEC / 2]);
            y[2 * i + 1] = TILE_UPPER(x[i], x[i + VEC / 2]);
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < VEC; i++)
        memcpy(to + i * to_row, &x[i], sizeof x[i]);
}

/* The transpose of x(rows, n) as the right-hand side of a product: a panel is
 * TILE_COLUMNS rows of x, n high. */
static inline void tile_pack_transposed(float *restrict packed, const float *restrict x,
                                        int64_t x_row, int64_t rows, int64_t n)
{
    for (int64_t first = 0; first < rows; first += TILE_COLUMNS) {
        float *panel = packed + first * n;
        const float *from = x + first * x_row;
        int64_t here = i64_min(TILE_COLUMNS, rows - first), c = 0;
        if (here < TILE_COLUMNS)
            memset(panel, 0, (size_t)(n * TILE_COLUMNS) * sizeof *panel);
        for (; here == TILE_COLUMNS && c + VEC <= n; c += VEC)
            for (int r = 0; r < TILE_COLUMNS; r += VEC)
                tile_transpose(panel + c * TILE_COLUMNS + r, TILE_COLUMNS,
                               from + r * x_row + c, x_row);
        for (; c < n; c++)
            for (int64_t r = 0; r < here; r++)
                panel[c * TILE_COLUMNS + r] = from[r * x_row + c];
    }
}

#endif
