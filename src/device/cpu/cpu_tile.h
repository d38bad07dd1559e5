/*
 * cpu_tile - products of matrices that lie in the first caches, over a right-hand side
 * that was packed into panels of PANEL columns of floats; a block of rows by columns of
 * the result stays in registers.
 *
 * Two orders of sums, each the same whatever block computes an element and on every
 * processor:
 *   chain   of floats: over k in ascending order;
 *   join    of numbers of 16 bits, widened: for each GROUP values of k, counted from the
 *           first of the tile, e = a chain over the even ones, o = a chain over the odd
 *           ones, both from +0, then c = c + (e + o), subnormal numbers being zeros: what
 *           tiles of AMX do.
 *
 * Products as small as attention's tiles want less packing than large ones
 * (docs/performance.md has what this gained).
 */
#ifndef DEVICE_CPU_CPU_TILE_H
#define DEVICE_CPU_CPU_TILE_H

#include "device/cpu/cpu.h"
#include "device/cpu/cpu_convert.h"
#include "device/cpu/cpu_flush.h"

#include <string.h>

#define TILE 128  // rows of a tile; a multiple of DROPOUT_GROUP, so that tiles own groups
#define PANEL 32  // columns of a panel
#define P_ROW 160 // between rows of scores: no power of two, which would share few sets
#define GROUP 32  // values of k that are joined

/* A block of chains has CHAIN_ROWS rows, the last of a tile CHAIN_LAST: TILE is 10 * 12 +
 * 8. One of joined sums has JOIN_ROWS. */
#define CHAIN_ROWS 12
#define CHAIN_LAST 8
#define JOIN_ROWS 16

/* The part of a block that is in registers, with what it is made of. */
#if VEC == 16
#define TILE_PARTS 1 // chains: 27 of 32 registers
#else
#define TILE_PARTS 2 // by rows and by columns: 15 of 16
#endif
#define TILE_WIDTH (PANEL / TILE_PARTS)
#define JOIN_PART 6 // and 6, and 4 rows

/* How the left-hand side lies in memory. */
enum tile_lie {
    TILE_PANELS,    // panels of PANEL columns of a tile of rows
    TILE_SCORES,    // rows P_ROW apart
    TILE_SCORES_BY, // columns P_ROW apart
};

/* C = A B or C += A B, a block of rows by PANEL columns. All its rows are read. */
struct tile_block {
    int64_t rows, columns; // of it that are wanted
    int64_t k;             // a multiple of GROUP where sums are joined
    const float *a;
    const float *b; // (k, PANEL)
    float *c;
    int64_t c_row;
    bool accumulate;
};

static inline int64_t tile_row(const enum tile_lie lie)
{
    return lie == TILE_PANELS ? PANEL : lie == TILE_SCORES ? P_ROW : 1;
}

/* -- chains -------------------------------------------------------------------------- */

/* `rows` and `lie` are constants where this is inlined, so that sums stay in registers. */
static inline __attribute__((always_inline)) void
tile_chain(float *c, int64_t c_row, bool accumulate, const float *a, const float *b,
           int64_t k, const enum tile_lie lie, const int rows)
{
    const int64_t a_row = tile_row(lie);
    const int64_t a_col = lie == TILE_SCORES_BY ? P_ROW : 1;
    vec sum[CHAIN_ROWS][TILE_WIDTH / VEC];
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
    const int64_t a_row = tile_row(lie);
    const int most = CHAIN_ROWS / TILE_PARTS, least = CHAIN_LAST / TILE_PARTS;
    int here = t->rows > CHAIN_LAST ? most : least;
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
    float part[CHAIN_ROWS * PANEL];
    if (t->columns == PANEL && (t->rows == CHAIN_ROWS || t->rows == CHAIN_LAST)) {
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

/* -- joined sums --------------------------------------------------------------------- */

#ifdef __x86_64__
/* Between flush_begin() and flush_end(). */
static inline vec tile_fused(vec a, vec b, vec c)
{
    return vec_fused(a, b, c);
}

static inline vec tile_add(vec x, vec y)
{
    return x + y;
}
#else
static inline vec tile_fused(vec a, vec b, vec c)
{
    vec sum;
    for (int i = 0; i < VEC; i++)
        sum[i] = flush_fused(a[i], b[i], c[i]);
    return sum;
}

static inline vec tile_add(vec x, vec y)
{
    vec sum;
    for (int i = 0; i < VEC; i++)
        sum[i] = flush_add(x[i], y[i]);
    return sum;
}
#endif

/* sum[r] += column k of a times row k of b, one k. */
static inline __attribute__((always_inline)) void
tile_step(vec sum[JOIN_PART][TILE_WIDTH / VEC], const float *a, const float *b,
          const enum tile_lie lie, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_WIDTH / VEC; i++)
            sum[r][i] = tile_fused(vec_of(a[r * tile_row(lie)]), vecs(b)[i], sum[r][i]);
}

/* e and o of GROUP values of k: at once where there are registers for both. */
static inline __attribute__((always_inline)) void
tile_even_odd(vec even[JOIN_PART][TILE_WIDTH / VEC], vec odd[JOIN_PART][TILE_WIDTH / VEC],
              const float *a, const float *b, const enum tile_lie lie, const int rows)
{
    const int64_t a_col = lie == TILE_SCORES_BY ? P_ROW : 1;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_WIDTH / VEC; i++)
            even[r][i] = odd[r][i] = (vec){0};
#if VEC == 16
    for (int k = 0; k < GROUP; k += 2) {
        tile_step(even, a + k * a_col, b + k * PANEL, lie, rows);
        tile_step(odd, a + (k + 1) * a_col, b + (k + 1) * PANEL, lie, rows);
    }
#else
    for (int k = 0; k < GROUP; k += 2)
        tile_step(even, a + k * a_col, b + k * PANEL, lie, rows);
    for (int k = 1; k < GROUP; k += 2)
        tile_step(odd, a + k * a_col, b + k * PANEL, lie, rows);
#endif
}

static inline __attribute__((always_inline)) void
tile_join_part(float *c, int64_t c_row, bool accumulate, const float *a, const float *b,
               int64_t k, const enum tile_lie lie, const int rows)
{
    const int64_t a_group = lie == TILE_PANELS   ? TILE * PANEL
                            : lie == TILE_SCORES ? GROUP
                                                 : GROUP * P_ROW;
    vec even[JOIN_PART][TILE_WIDTH / VEC], odd[JOIN_PART][TILE_WIDTH / VEC];
    for (; k > 0; k -= GROUP) {
        tile_even_odd(even, odd, a, b, lie, rows);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < TILE_WIDTH / VEC; i++) {
                vec *to = (vec *)(c + r * c_row) + i, before = {0};
                if (accumulate)
                    before = *to;
                *to = tile_add(before, tile_add(even[r][i], odd[r][i]));
            }
        accumulate = true;
        a += a_group;
        b += GROUP * PANEL;
    }
}

/* JOIN_ROWS rows by PANEL columns, all of which are there in A and C. */
static inline __attribute__((always_inline)) void tile_join(const struct tile_block *t,
                                                            const enum tile_lie lie)
{
    const int64_t a_row = tile_row(lie);
    for (int i = 0; i < TILE_PARTS; i++) {
        const float *b = t->b + i * TILE_WIDTH;
        float *c = t->c + i * TILE_WIDTH;
        for (int64_t r = 0; r < 2 * JOIN_PART; r += JOIN_PART)
            tile_join_part(c + r * t->c_row, t->c_row, t->accumulate, t->a + r * a_row, b,
                           t->k, lie, JOIN_PART);
        tile_join_part(c + 2 * JOIN_PART * t->c_row, t->c_row, t->accumulate,
                       t->a + 2 * JOIN_PART * a_row, b, t->k, lie,
                       JOIN_ROWS - 2 * JOIN_PART);
    }
}

/* -- packing ------------------------------------------------------------------------- */

/* x(rows, n) of a type, widened, as panels of TILE rows; zeros past n and below the rows,
 * as far as a block or a group of them reaches. */
static inline void tile_pack(float *restrict packed, const void *restrict x,
                             enum dtype dtype, int64_t x_row, int64_t rows, int64_t n)
{
    const size_t bytes = dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    int64_t end = i64_min(TILE, rows + GROUP);
    for (int64_t r = 0; r < end; r++)
        for (int64_t c = 0; c < n; c += PANEL) {
            float *to = packed + c * TILE + r * PANEL;
            const char *from = (const char *)x + (size_t)(r * x_row + c) * bytes;
            int64_t columns = r < rows ? i64_min(PANEL, n - c) : 0;
            if (columns == PANEL) {
                widen(to, from, dtype, PANEL);
                continue;
            }
            widen(to, from, dtype, columns);
            memset(to + columns, 0, (size_t)(PANEL - columns) * sizeof *to);
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

/* The transpose of x(rows, n) of floats as the right-hand side of a product: a panel is
 * PANEL rows of x, n high. */
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

/* The same of numbers of 16 bits; n is rounded up to GROUP, with zeros, and at most
 * TILE_DEPTH. */
#define TILE_DEPTH 256
static inline void tile_widen_transposed(float *restrict packed, const void *restrict x,
                                         enum dtype dtype, int64_t x_row, int64_t rows,
                                         int64_t n)
{
    _Alignas(64) float wide[PANEL * (TILE_DEPTH + 16)]; // no power of two
    const int64_t row = TILE_DEPTH + 16, height = i64_round_up(n, GROUP);
    for (int64_t first = 0; first < rows; first += PANEL) {
        int64_t here = i64_min(PANEL, rows - first);
        for (int64_t r = 0; r < PANEL; r++) {
            int64_t columns = r < here ? n : 0;
            widen(wide + r * row, (const uint16_t *)x + (first + r) * x_row, dtype,
                  columns);
            memset(wide + r * row + columns, 0,
                   (size_t)(height - columns) * sizeof *wide);
        }
        tile_pack_transposed(packed + first * height, wide, row, PANEL, height);
    }
}

#endif
