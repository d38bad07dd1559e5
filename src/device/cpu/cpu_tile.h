/*
 * cpu_tile - products of matrices that lie in the first caches, over a right-hand side
 * that was packed into panels of PANEL columns; a block of rows by columns of the result
 * stays in registers.
 *
 * A sum runs over k in ascending order, whatever block computes it; so the bits of an
 * element do not depend on how rows are grouped, nor on the processor.
 *
 * BLIS packs both sides of every product, which costs too much for products as small as
 * attention's tiles (docs/performance.md has what this gained).
 */
#ifndef DEVICE_CPU_CPU_TILE_H
#define DEVICE_CPU_CPU_TILE_H

#include "device/cpu/cpu.h"

#include <string.h>

#define TILE 128  // rows of a tile; a multiple of DROPOUT_GROUP, so that tiles own groups
#define PANEL 32  // columns of a panel
#define P_ROW 144 // between rows of scores: no power of two, which would share few sets

/* A block has TILE_ROWS rows, the last of a tile TILE_LAST: TILE is 10 * 12 + 8. */
#define TILE_ROWS 12
#define TILE_LAST 8

/* Its part in registers, with what it is made of: 27 of 32 with AVX-512, 15 of 16 else. */
#if VEC == 16
#define TILE_PARTS 1
#else
#define TILE_PARTS 2 // by rows and by columns
#endif
#define TILE_WIDTH (PANEL / TILE_PARTS)

/* How the left-hand side lies in memory. */
enum tile_lie {
    TILE_PANELS,    // panels of PANEL columns of a tile of rows
    TILE_SCORES,    // rows P_ROW apart
    TILE_SCORES_BY, // columns P_ROW apart
};

/* C = A B or C += A B, up to TILE_ROWS rows by PANEL columns. What A has below `rows` is
 * read, and where `is_whole` written to C. */
struct tile_block {
    int64_t rows, columns, k;
    const float *a;
    const float *b; // (k, PANEL)
    float *c;
    int64_t c_row;
    bool accumulate;
};

/* `rows` and `lie` are constants where this is inlined, so that sums stay in registers. */
static inline __attribute__((always_inline)) void
tile_chain(float *c, int64_t c_row, bool accumulate, const float *a, const float *b,
           int64_t k, const enum tile_lie lie, const int rows)
{
    const int64_t a_row = lie == TILE_PANELS ? PANEL : lie == TILE_SCORES ? P_ROW : 1;
    const int64_t a_col = lie == TILE_SCORES_BY ? P_ROW : 1;
    vec sum[TILE_ROWS][TILE_WIDTH / VEC];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_WIDTH / VEC; i++)
            sum[r][i] = (vec){0};
    while (k > 0) {
        int64_t run = lie == TILE_PANELS ? i64_min(PANEL, k) : k;
        for (int64_t n = 0; n < run; n++) {
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < TILE_WIDTH / VEC; i++)
                    sum[r][i] = vec_fused(vec_of(a[r * a_row]), vecs(b)[i], sum[r][i]);
            a += a_col;
            b += PANEL;
        }
        a += (TILE - 1) * PANEL; // the next panel; of scores there is one run
        k -= run;
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_WIDTH / VEC; i++) {
            vec *to = (vec *)(c + r * c_row) + i;
            if (accumulate)
                sum[r][i] += *to;
            *to = sum[r][i];
        }
}

static inline __attribute__((always_inline)) void tile_whole(const struct tile_block *t,
                                                             float *c, int64_t c_row,
                                                             bool accumulate,
                                                             const enum tile_lie lie)
{
    const int64_t a_row = lie == TILE_PANELS ? PANEL : lie == TILE_SCORES ? P_ROW : 1;
    const int most = TILE_ROWS / TILE_PARTS, least = TILE_LAST / TILE_PARTS;
    int here = t->rows > TILE_LAST ? most : least;
    for (int i = 0; i < TILE_PARTS; i++) {
        const float *b = t->b + i * TILE_WIDTH;
        for (int64_t r = 0; r < t->rows; r += here) {
            const float *a = t->a + r * a_row;
            float *to = c + r * c_row + i * TILE_WIDTH;
            if (here == most)
                tile_chain(to, c_row, accumulate, a, b, t->k, lie, most);
            else
                tile_chain(to, c_row, accumulate, a, b, t->k, lie, least);
        }
    }
}

/* All rows of the block are there, in A and in C, and all columns. */
static inline __attribute__((always_inline)) void
tile_multiply(const struct tile_block *t, const enum tile_lie lie)
{
    tile_whole(t, t->c, t->c_row, t->accumulate, lie);
}

/* C has no more than t->rows rows and t->columns columns. */
static inline __attribute__((always_inline)) void
tile_multiply_part(const struct tile_block *t, const enum tile_lie lie)
{
    float part[TILE_ROWS * PANEL];
    if (t->columns == PANEL && (t->rows == TILE_ROWS || t->rows == TILE_LAST)) {
        for (int64_t r = 0; r < t->rows; r++) { // far from each other
            __builtin_prefetch(t->c + r * t->c_row, 1);
            __builtin_prefetch(t->c + r * t->c_row + PANEL / 2, 1);
        }
        tile_multiply(t, lie);
        return;
    }
    tile_whole(t, part, PANEL, false, lie);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->columns; c++) {
            float *to = t->c + r * t->c_row + c;
            *to = t->accumulate ? part[r * PANEL + c] + *to : part[r * PANEL + c];
        }
}

/* -- packing ------------------------------------------------------------------------- */

/* x(rows, n) as panels of TILE rows; zeros past n, and in rows that fill a block. */
static inline void tile_pack(float *restrict packed, const float *restrict x,
                             int64_t x_row, int64_t rows, int64_t n)
{
    int64_t end = i64_min(TILE, rows + TILE_ROWS);
    for (int64_t r = 0; r < end; r++)
        for (int64_t c = 0; c < n; c += PANEL) {
            float *to = packed + c * TILE + r * PANEL;
            int64_t columns = r < rows ? i64_min(PANEL, n - c) : 0;
            if (columns == PANEL) {
                memcpy(to, x + r * x_row + c, PANEL * sizeof *to);
                continue;
            }
            for (int64_t i = 0; i < PANEL; i++)
                to[i] = i < columns ? x[r * x_row + c + i] : 0.0F;
        }
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

/* The transpose of x(rows, n) as the right-hand side of a product: a panel is PANEL rows
 * of x, n high. */
static inline void tile_pack_transposed(float *restrict packed, const float *restrict x,
                                        int64_t x_row, int64_t rows, int64_t n)
{
    for (int64_t first = 0; first < rows; first += PANEL) {
        float *panel = packed + first * n;
        const float *from = x + first * x_row;
        int64_t here = i64_min(PANEL, rows - first), c = 0;
        if (here < PANEL)
            memset(panel, 0, (size_t)(n * PANEL) * sizeof *panel);
        for (; here == PANEL && c + VEC <= n; c += VEC)
            for (int r = 0; r < PANEL; r += VEC)
                tile_transpose(panel + c * PANEL + r, PANEL, from + r * x_row + c, x_row);
        for (; c < n; c++)
            for (int64_t r = 0; r < here; r++)
                panel[c * PANEL + r] = from[r * x_row + c];
    }
}

#endif
