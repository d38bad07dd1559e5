/*
 * Matrix products: C = A B or C += A B, any strides.
 *
 * The order of every sum is fixed: for each block of PRODUCT_K values of k a chain of
 * fused multiply-adds in ascending k from 0, then c = c + p; the first block overwrites c
 * unless it is accumulated into. Rows, columns, threads and instruction sets decide who
 * computes an element and when, never how.
 *
 * C is divided over a grid of threads. Those of one column of the grid share B: together
 * they pack a slab of it (some columns, some blocks of k), wait for each other once, and
 * then multiply their own rows with it, packing A as they go into memory of their own.
 * The next slab goes into the other of two buffers, so nobody waits before packing it.
 * With one row in the grid nobody waits at all: then slabs are small enough to be read
 * from the thread's second cache, and B is read from memory once.
 */
#include "device/cpu/cpu_micro.h"
#include "device/cpu/cpu_pack.h"
#include "device/cpu/product.h"

#include <omp.h>

struct division { // of a product over threads, and of its work in time
    const struct gemm *g;
    const struct product_room *room;
    int row_parts, column_parts;
    int64_t part_columns;         // of a part, but for the last one
    int64_t slab_columns, slab_k; // what a slab holds at most
};

/* What one thread multiplies with a slab. */
struct work {
    const struct gemm *g;
    int64_t row, n_rows; // its own rows
    int64_t column, n_columns, k, n_k;
    const float *slab;
    float *own;
    bool is_packed; // A is in `own` since another slab of the same k
};

/* -- the division -------------------------------------------------------------------- */

/* Less work than this is not worth another thread. */
#define WORK_PER_THREAD (1 << 16)
/* Rows of A that are packed at a time. */
#define BLOCK_ROWS (PRODUCT_OWN_ELEMENTS / PRODUCT_K / MICRO_ROWS * MICRO_ROWS)
/* A slab that one thread alone reads. */
#define PRIVATE_SLAB_ELEMENTS (PRODUCT_SLAB_ELEMENTS / 8)

/* Where part i of n_parts of `n` begins. */
static int64_t part_begin(int64_t n, int64_t unit, int i, int n_parts)
{
    int64_t n_units = (n + unit - 1) / unit;
    return i64_min(n_units * i / n_parts * unit, n);
}

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* What a thread of such a grid takes for each k, in vectors multiplied: the product, its
 * shares of packing, and B from a cache far away. */
static double grid_cost(const struct gemm *g, int row_parts, int column_parts)
{
    double rows = (double)i64_round_up(ceil_div(g->m, row_parts), 2);
    double columns = (double)i64_round_up(ceil_div(g->n, column_parts), MICRO_COLUMNS);
    double packing = rows + columns / row_parts;
    return rows * columns / VEC + packing + columns / 2;
}

static void divide_threads(struct division *d, int n_threads)
{
    const struct gemm *g = d->g;
    int64_t most_columns = PRODUCT_SLAB_ELEMENTS / (PRODUCT_K * MICRO_COLUMNS);
    double best = 0;
    for (int rows = 1; rows <= n_threads; rows++) {
        int columns = (int)i64_min(n_threads / rows, most_columns);
        double cost = grid_cost(g, rows, columns);
        if (rows > 1 && cost >= best)
            continue;
        best = cost;
        d->row_parts = rows;
        d->column_parts = columns;
    }
    d->part_columns = i64_round_up(ceil_div(g->n, d->column_parts), MICRO_COLUMNS);
}

/* Slabs hold as many columns as they can, since A is packed again for each, and enough k
 * that C, which is read and written once per slab, does not count. */
static void divide_slabs(struct division *d)
{
    enum { ENOUGH_K = 1024 };
    int64_t room = PRODUCT_SLAB_ELEMENTS / d->column_parts;
    if (d->row_parts == 1)
        room = i64_min(room, PRIVATE_SLAB_ELEMENTS);
    int64_t k = i64_min(i64_round_up(d->g->k, PRODUCT_K), ENOUGH_K);
    k = i64_min(k, room / MICRO_COLUMNS / PRODUCT_K * PRODUCT_K);
    int64_t columns = i64_min(d->part_columns, room / k / MICRO_COLUMNS * MICRO_COLUMNS);
    columns = ceil_div(d->part_columns, ceil_div(d->part_columns, columns));
    d->slab_columns = i64_round_up(columns, MICRO_COLUMNS);
    k = room / d->slab_columns / PRODUCT_K * PRODUCT_K;
    k = ceil_div(d->g->k, ceil_div(d->g->k, k));
    d->slab_k = i64_round_up(k, PRODUCT_K);
}

/* -- packing ------------------------------------------------------------------------- */

/* Panel `panel` of the block of k that begins at k of the slab. */
static int64_t panel_at(const struct work *w, int64_t panel, int64_t k)
{
    int64_t n = i64_round_up(w->n_columns, MICRO_COLUMNS);
    return k * n + panel * MICRO_COLUMNS * i64_min(PRODUCT_K, w->n_k - k);
}

/* Part i of n_parts of a slab. */
static void pack_slab(float *slab, const struct work *w, int i, int n_parts)
{
    const struct gemm *g = w->g;
    int64_t n_panels = ceil_div(w->n_columns, MICRO_COLUMNS);
    int64_t n = n_panels * ceil_div(w->n_k, PRODUCT_K);
    for (int64_t at = n * i / n_parts; at < n * (i + 1) / n_parts; at++) {
        int64_t panel = at % n_panels, k = at / n_panels * PRODUCT_K;
        int64_t column = panel * MICRO_COLUMNS;
        struct pack_from from = {g->b + (w->k + k) * g->b_row +
                                     (w->column + column) * g->b_col,
                                 g->b_col, g->b_row};
        pack_panel(slab + panel_at(w, panel, k), MICRO_COLUMNS, &from,
                   i64_min(MICRO_COLUMNS, w->n_columns - column),
                   i64_min(PRODUCT_K, w->n_k - k));
    }
}

/* Rows [row, row + n_rows) of A, the block of k that begins at k. */
static void pack_rows(float *to, const struct gemm *g, int64_t row, int64_t n_rows,
                      int64_t k, int64_t n_k)
{
    for (int64_t r = 0; r < n_rows; r += MICRO_ROWS) {
        struct pack_from from = {g->a + (row + r) * g->a_row + k * g->a_col, g->a_row,
                                 g->a_col};
        pack_panel(to + r * n_k, MICRO_ROWS, &from, i64_min(MICRO_ROWS, n_rows - r), n_k);
    }
}

/* -- multiplying --------------------------------------------------------------------- */

/* One block of C that is not as the innermost loop wants it: narrower, or with columns
 * that do not lie behind each other. */
static void multiply_apart(const struct gemm *g, const struct micro *block, int64_t rows,
                           int64_t columns)
{
    float sums[MICRO_ROWS * MICRO_COLUMNS];
    struct micro apart = *block;
    apart.c = sums;
    apart.c_row = MICRO_COLUMNS;
    apart.accumulate = false;
    micro_whole(&apart, rows);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            float *to = block->c + r * g->c_row + c * g->c_col;
            float sum = sums[r * MICRO_COLUMNS + c];
            *to = block->accumulate ? *to + sum : sum;
        }
}

/* Rows [row, row + n_rows), packed in `a`, times the block of k of the slab. */
static void multiply_block(const struct work *w, const float *a, int64_t row,
                           int64_t n_rows, int64_t k, int64_t n_k)
{
    const struct gemm *g = w->g;
    for (int64_t column = 0; column < w->n_columns; column += MICRO_COLUMNS) {
        int64_t columns = i64_min(MICRO_COLUMNS, w->n_columns - column);
        struct micro block = {.b = w->slab + panel_at(w, column / MICRO_COLUMNS, k),
                              .k = n_k,
                              .c_row = g->c_row,
                              .accumulate = g->accumulate || w->k + k > 0};
        for (int64_t r = 0; r < n_rows; r += MICRO_ROWS) {
            int64_t rows = i64_min(MICRO_ROWS, n_rows - r);
            block.a = a + r * n_k;
            block.c = g->c + (row + r) * g->c_row + (w->column + column) * g->c_col;
            if (columns == MICRO_COLUMNS && g->c_col == 1)
                micro_whole(&block, rows);
            else
                multiply_apart(g, &block, rows, columns);
        }
    }
}

/* Whether all rows of the thread, over all k, stay packed in its own memory. */
static bool rows_stay_packed(const struct work *w)
{
    return i64_round_up(w->n_rows, MICRO_ROWS) * w->g->k <= PRODUCT_OWN_ELEMENTS;
}

static void multiply_slab(const struct work *w)
{
    bool stay = rows_stay_packed(w);
    for (int64_t r = 0; r < w->n_rows; r += BLOCK_ROWS) {
        int64_t n_rows = i64_min(BLOCK_ROWS, w->n_rows - r);
        for (int64_t k = 0; k < w->n_k; k += PRODUCT_K) {
            int64_t n_k = i64_min(PRODUCT_K, w->n_k - k);
            float *a = w->own;
            if (stay)
                a += (w->k + k) * i64_round_up(w->n_rows, MICRO_ROWS) + r * n_k;
            if (!w->is_packed)
                pack_rows(a, w->g, w->row + r, n_rows, w->k + k, n_k);
            multiply_block(w, a, w->row + r, n_rows, k, n_k);
        }
    }
}

/* All that one thread of the grid does. Every thread goes through the same rounds, since
 * all of them wait in each. */
static void multiply_part(const struct division *d, int thread)
{
    const struct gemm *g = d->g;
    int i = thread / d->column_parts, j = thread % d->column_parts, round = 0;
    struct work w = {.g = g, .row = part_begin(g->m, 2, i, d->row_parts)};
    w.n_rows = part_begin(g->m, 2, i + 1, d->row_parts) - w.row;
    w.own = d->room->own + thread * PRODUCT_OWN_ELEMENTS;
    int64_t first = i64_min(j * d->part_columns, g->n);
    int64_t end = i64_min(first + d->part_columns, g->n);
    bool is_here = i < d->row_parts;
    for (int64_t c = 0; c < d->part_columns; c += d->slab_columns)
        for (int64_t k = 0; k < g->k; k += d->slab_k, round++) {
            float *slab =
                d->room->slabs[round % 2] + PRODUCT_SLAB_ELEMENTS / d->column_parts * j;
            w.column = i64_min(first + c, end);
            w.n_columns = i64_min(d->slab_columns, end - w.column);
            w.k = k;
            w.n_k = i64_min(d->slab_k, g->k - k);
            w.slab = slab;
            w.is_packed = c > 0 && rows_stay_packed(&w);
            if (is_here && w.n_columns > 0)
                pack_slab(slab, &w, i, d->row_parts);
            if (d->row_parts > 1) {
#pragma omp barrier
            }
            if (is_here && w.n_columns > 0)
                multiply_slab(&w);
        }
}

/* A sum of nothing is 0. */
static void multiply_nothing(const struct gemm *g)
{
    for (int64_t i = 0; !g->accumulate && i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            g->c[i * g->c_row + j * g->c_col] = 0;
}

static struct gemm transposed(const struct gemm *g)
{
    return (struct gemm){.m = g->n,
                         .n = g->m,
                         .k = g->k,
                         .a = g->b,
                         .a_row = g->b_col,
                         .a_col = g->b_row,
                         .b = g->a,
                         .b_row = g->a_col,
                         .b_col = g->a_row,
                         .c = g->c,
                         .c_row = g->c_col,
                         .c_col = g->c_row,
                         .accumulate = g->accumulate};
}

void K(gemm)(struct stream *s, const struct gemm *asked)
{
    struct gemm g = asked->c_col != 1 && asked->c_row == 1 ? transposed(asked) : *asked;
    if (g.m <= 0 || g.n <= 0)
        return;
    if (g.k <= 0) {
        multiply_nothing(&g);
        return;
    }
    double n_worth = (double)g.m * (double)g.n * (double)g.k / WORK_PER_THREAD + 1;
    int n_threads = omp_get_max_threads();
    if (n_worth < (double)n_threads)
        n_threads = (int)n_worth;
    const struct product_room *room = product_room(n_threads);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    { // every thread divides for itself: OpenMP may give fewer of them
        struct division d = {.g = &g, .room = room};
        divide_threads(&d, omp_get_num_threads());
        divide_slabs(&d);
        multiply_part(&d, omp_get_thread_num());
    }
}
