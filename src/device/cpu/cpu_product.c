/*
 * Matrix products: C = A B or C += A B, any strides, for each kind of arithmetic.
 *
 * Rows, columns, threads and instruction sets decide who computes an element and when,
 * never how: see cpu_product.h for the order of every sum.
 *
 * C is divided over a grid of threads. Those of one column of the grid share B: together
 * they pack a slab of it (some columns, some k), wait for each other once, and then
 * multiply their own rows with it, packing A as they go into memory of their own. The
 * next slab goes into the other of two buffers, so nobody waits before packing it. With
 * one row in the grid nobody waits at all: then slabs are small enough to be read from
 * the thread's second cache, and B is read from memory once.
 *
 * Sums that are not what C stores are kept in the thread's own memory until they are
 * complete. When k takes several slabs a thread therefore goes through its rows in strips
 * as high as that memory allows, and through all of k for each.
 */
#include "device/cpu/cpu_product.h"

#include "device/cpu/cpu_vec.h"
#include "device/cpu/product.h"

#include <omp.h>

struct division { // of a product over threads, and of its work in time
    const struct product *p;
    const struct product_kind *kind;
    const struct product_room *room;
    int row_parts, column_parts;
    int64_t part_columns;         // of a part, but for the last one
    int64_t slab_columns, slab_k; // what a slab holds at most
    int64_t strip_rows;           // that a thread takes at a time through all of k
    bool is_direct;               // sums are kept in C itself
};

/* What one thread multiplies with a slab. */
struct work {
    const struct division *d;
    int64_t row, n_rows; // its own rows
    int64_t column, n_columns, k, n_k;
    const char *slab;
    char *own;
    float *sums;
    bool is_packed; // A is in `own` since another slab of the same k
};

/* -- the division -------------------------------------------------------------------- */

/* Less work than this is not worth another thread. */
#define WORK_PER_THREAD (1 << 16)
/* A slab that one thread alone reads. */
#define PRIVATE_SLAB_BYTES (PRODUCT_SLAB_BYTES / 16)

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* n in equal parts of at most `most`, each a multiple of `unit`. */
static int64_t equal_parts(int64_t n, int64_t most, int64_t unit)
{
    int64_t part = i64_max(most / unit * unit, unit);
    return i64_round_up(ceil_div(n, ceil_div(n, part)), unit);
}

/* What a thread of such a grid takes for each k, in vectors multiplied: the product, its
 * shares of packing, and B from a cache far away. */
static double grid_cost(const struct division *d, int row_parts, int column_parts)
{
    const struct product *p = d->p;
    double rows = (double)i64_round_up(ceil_div(p->m, row_parts), 2);
    double columns = (double)i64_round_up(ceil_div(p->n, column_parts), d->kind->columns);
    double packing = rows + columns / row_parts;
    return rows * columns / VEC + packing + columns / 2;
}

static void divide_threads(struct division *d, int n_threads)
{
    const struct product_kind *kind = d->kind;
    int64_t panel_bytes = kind->block_k * kind->columns * kind->bytes;
    double best = 0;
    d->row_parts = d->column_parts = 1;
    for (int rows = 1; rows <= n_threads; rows++) {
        int columns = (int)i64_min(n_threads / rows, PRODUCT_SLAB_BYTES / panel_bytes);
        double cost = grid_cost(d, rows, columns);
        if (rows > 1 && cost >= best)
            continue;
        best = cost;
        d->row_parts = rows;
        d->column_parts = columns;
    }
    d->part_columns = i64_round_up(ceil_div(d->p->n, d->column_parts), kind->columns);
}

/* Whether a thread's rows, so many, stay packed in its own memory over all of k. */
static bool rows_stay_packed(const struct division *d, int64_t n_rows)
{
    int64_t k = i64_round_up(d->p->k, d->kind->block_k);
    return i64_round_up(n_rows, d->kind->rows) * k * d->kind->bytes <= PRODUCT_ROWS_BYTES;
}

/* Slabs hold as many columns as they can, since A is packed again for each, and enough k
 * that C, which is read and written once per slab, does not count. */
static void divide_slabs(struct division *d)
{
    enum { ENOUGH_K = 1024 };
    const struct product_kind *kind = d->kind;
    int64_t bytes = PRODUCT_SLAB_BYTES / d->column_parts;
    if (d->row_parts == 1 && rows_stay_packed(d, d->p->m)) // nothing is packed again
        bytes = i64_min(bytes, i64_max(PRIVATE_SLAB_BYTES,
                                       kind->block_k * kind->columns * kind->bytes));
    int64_t room = bytes / kind->bytes, k = i64_round_up(d->p->k, kind->block_k);
    k = i64_min(i64_min(k, ENOUGH_K),
                room / kind->columns / kind->block_k * kind->block_k);
    d->slab_columns = equal_parts(d->part_columns, room / k, kind->columns);
    d->slab_k = equal_parts(d->p->k, room / d->slab_columns, kind->block_k);
    d->strip_rows = d->p->m;
    if (!d->is_direct && d->slab_k < d->p->k)
        d->strip_rows = PRODUCT_SUMS_BYTES / (int64_t)sizeof(float) / d->slab_columns;
}

/* Rows of A that are packed at a time. */
static int64_t block_rows(const struct work *w)
{
    const struct division *d = w->d;
    int64_t rows = PRODUCT_ROWS_BYTES / d->kind->bytes / d->kind->block_k;
    if (!d->is_direct)
        rows =
            i64_min(rows, PRODUCT_SUMS_BYTES / (int64_t)sizeof(float) / d->slab_columns);
    return i64_max(rows / d->kind->rows, 1) * d->kind->rows;
}

/* -- packing ------------------------------------------------------------------------- */

static const char *element(const void *x, enum dtype dtype, int64_t at)
{
    return (const char *)x + at * (dtype == DTYPE_F32 ? 4 : 2);
}

/* How many k a panel that begins at k of the slab has, as it is filled up. */
static int64_t panel_k(const struct work *w, int64_t k)
{
    const struct product_kind *kind = w->d->kind;
    return i64_round_up(i64_min(kind->block_k, w->n_k - k), kind->unit_k);
}

/* Bytes of the slab before panel `panel` of the block of k that begins at k. */
static int64_t panel_at(const struct work *w, int64_t panel, int64_t k)
{
    const struct product_kind *kind = w->d->kind;
    int64_t n = i64_round_up(w->n_columns, kind->columns);
    return (k * n + panel * kind->columns * panel_k(w, k)) * kind->bytes;
}

/* Part i of n_parts of a slab, in pieces of a panel: the next piece is of the panel beside
 * it where values of one k lie behind each other, so that memory is read in order. */
static void pack_slab(char *slab, const struct work *w, int i, int n_parts)
{
    const struct product *p = w->d->p;
    const struct product_kind *kind = w->d->kind;
    int64_t piece_k = p->b_col == 1 ? kind->piece_k : kind->block_k;
    int64_t n_panels = ceil_div(w->n_columns, kind->columns);
    int64_t n_pieces = ceil_div(w->n_k, piece_k), n = n_panels * n_pieces;
    for (int64_t at = n * i / n_parts; at < n * (i + 1) / n_parts; at++) {
        int64_t panel = p->b_col == 1 ? at % n_panels : at / n_pieces;
        int64_t k = (p->b_col == 1 ? at / n_panels : at % n_pieces) * piece_k;
        int64_t column = panel * kind->columns, in_panel = k % kind->block_k;
        int64_t first = (w->k + k) * p->b_row + (w->column + column) * p->b_col;
        struct pack_from from = {element(p->b, p->dtype, first), p->b_col, p->b_row,
                                 p->dtype};
        kind->pack_columns(slab + panel_at(w, panel, k - in_panel) +
                               in_panel * kind->columns * kind->bytes,
                           &from, i64_min(kind->columns, w->n_columns - column),
                           i64_min(piece_k, w->n_k - k));
    }
}

/* Rows [row, row + n_rows) of A, n_k values from k on, filled up to `filled`. */
static void pack_rows(char *to, const struct division *d, int64_t row, int64_t n_rows,
                      int64_t k, int64_t n_k, int64_t filled)
{
    const struct product *p = d->p;
    for (int64_t r = 0; r < n_rows; r += d->kind->rows) {
        int64_t first = (row + r) * p->a_row + k * p->a_col;
        struct pack_from from = {element(p->a, p->dtype, first), p->a_row, p->a_col,
                                 p->dtype};
        d->kind->pack_rows(to + r * filled * d->kind->bytes, &from,
                           i64_min(d->kind->rows, n_rows - r), n_k);
    }
}

/* -- complete sums ------------------------------------------------------------------- */

/* y = x rounded, or y + x rounded; n elements. */
INLINE void store_rounded(void *y, const float *x, int64_t n, bool accumulate,
                          enum dtype dtype)
{
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t here = i64_min(VEC, n - i);
        vec sum = vec_load(x, i, here, DTYPE_F32);
        if (accumulate)
            sum = vec_load(y, i, here, dtype) + sum;
        vec_store(y, i, sum, here, dtype);
    }
}

static void finish_rows(const struct work *w, const struct product_sums *sums)
{
    const struct product *p = w->d->p;
    if (p->finish) {
        p->finish(p, sums);
        return;
    }
    for (int64_t r = 0; !w->d->is_direct && r < sums->rows; r++) {
        uint16_t *y = (uint16_t *)p->c + (sums->row + r) * p->c_row + sums->column;
        const float *x = sums->at + r * sums->stride;
        if (p->c_dtype == DTYPE_BF16)
            store_rounded(y, x, sums->columns, p->accumulate, DTYPE_BF16);
        else
            store_rounded(y, x, sums->columns, p->accumulate, DTYPE_F16);
    }
}

/* -- multiplying --------------------------------------------------------------------- */

/* Rows [r, r + n_rows) of the thread's, times the slab. */
static void multiply_rows(const struct work *w, int64_t r, int64_t n_rows)
{
    const struct division *d = w->d;
    const struct product *p = d->p;
    const struct product_kind *kind = d->kind;
    bool stay = rows_stay_packed(d, w->n_rows);
    struct product_sums sums = {w->row + r,   n_rows,  w->column,
                                w->n_columns, w->sums, d->slab_columns};
    struct product_block b = {.n_rows = n_rows, .n_columns = w->n_columns, .c_col = 1};
    if (d->is_direct) {
        sums.at = (float *)p->c + sums.row * p->c_row + sums.column * p->c_col;
        sums.stride = p->c_row;
        b.c_col = p->c_col;
    } else if (d->slab_k < p->k) { // all rows of the strip are under way
        sums.at += r * d->slab_columns;
    }
    b.c = sums.at;
    b.c_row = sums.stride;
    for (int64_t k = 0; k < w->n_k; k += kind->block_k) {
        int64_t n_k = i64_min(kind->block_k, w->n_k - k);
        char *a = w->own;
        b.n_k = panel_k(w, k);
        if (stay)
            a += ((w->k + k) * i64_round_up(w->n_rows, kind->rows) + r * b.n_k) *
                 kind->bytes;
        if (!w->is_packed)
            pack_rows(a, d, w->row + r, n_rows, w->k + k, n_k, b.n_k);
        b.rows = a;
        b.columns = w->slab + panel_at(w, 0, k);
        b.accumulate = w->k + k > 0 || (d->is_direct && p->accumulate);
        kind->multiply(&b);
    }
    if (w->k + w->n_k == p->k)
        finish_rows(w, &sums);
}

static void multiply_slab(const struct work *w)
{
    int64_t step = block_rows(w);
    for (int64_t r = 0; r < w->n_rows; r += step)
        multiply_rows(w, r, i64_min(step, w->n_rows - r));
}

/* Where part i of n_parts of the rows begins. */
static int64_t row_begin(const struct division *d, int i)
{
    int64_t m = d->p->m, unit = m < d->row_parts * d->kind->rows ? 1 : 2;
    return i64_min(ceil_div(m, unit) * i / d->row_parts * unit, m);
}

/* All slabs, for some rows of the thread that is row i and column j of the grid. Every
 * thread goes through the same rounds, since all of them wait in each. */
static void multiply_strip(const struct division *d, struct work *w, int i, int j,
                           int *round)
{
    const struct product *p = d->p;
    int64_t first = i64_min(j * d->part_columns, p->n);
    int64_t end = i64_min(first + d->part_columns, p->n);
    for (int64_t c = 0; c < d->part_columns; c += d->slab_columns)
        for (int64_t k = 0; k < p->k; k += d->slab_k, ++*round) {
            char *slab = d->room->slabs[d->row_parts > 1 ? *round % 2 : 0] +
                         PRODUCT_SLAB_BYTES / d->column_parts / 64 * 64 * j;
            w->column = i64_min(first + c, end);
            w->n_columns = i64_min(d->slab_columns, end - w->column);
            w->k = k;
            w->n_k = i64_min(d->slab_k, p->k - k);
            w->slab = slab;
            w->is_packed = c > 0 && rows_stay_packed(d, w->n_rows);
            bool is_here = i < d->row_parts && w->n_columns > 0;
            if (is_here)
                pack_slab(slab, w, i, d->row_parts);
            if (d->row_parts > 1) {
#pragma omp barrier
            }
            if (is_here)
                multiply_slab(w);
        }
}

/* All that one thread does. */
static void multiply_part(const struct division *d, int thread)
{
    int i = thread / d->column_parts, j = thread % d->column_parts, round = 0;
    bool is_here = i < d->row_parts;
    int64_t first = is_here ? row_begin(d, i) : d->p->m;
    int64_t end = is_here ? row_begin(d, i + 1) : d->p->m;
    int64_t most = ceil_div(d->p->m, d->row_parts) + 1; // of any thread
    struct work w = {.d = d, .own = d->room->own + thread * PRODUCT_OWN_BYTES};
    w.sums = (float *)(void *)(w.own + PRODUCT_ROWS_BYTES);
    for (int64_t r = 0; r < most; r += d->strip_rows) {
        w.row = i64_min(first + r, end);
        w.n_rows = i64_min(d->strip_rows, end - w.row);
        multiply_strip(d, &w, i, j, &round);
    }
}

/* -- the product --------------------------------------------------------------------- */

static const struct product_kind *kind_of(const struct product *p)
{
    if (p->dtype == DTYPE_F32)
        return &K(product_float);
#ifdef KERNEL_TILES
    if (p->dtype == DTYPE_BF16)
        return &K(product_tiles);
#endif
    return &K(product_half);
}

void K(product)(const struct product *p)
{
    CHECK(p->m > 0 && p->n > 0 && p->k > 0, "a product of %lld x %lld x %lld",
          (long long)p->m, (long long)p->n, (long long)p->k);
    double n_worth = (double)p->m * (double)p->n * (double)p->k / WORK_PER_THREAD + 1;
    int n_threads = omp_get_max_threads();
    if (n_worth < (double)n_threads)
        n_threads = (int)n_worth;
    const struct product_room *room = product_room(n_threads);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    { // every thread divides for itself: OpenMP may give fewer of them
        struct division d = {.p = p, .kind = kind_of(p), .room = room};
        d.is_direct = p->c_dtype == DTYPE_F32;
        divide_threads(&d, omp_get_num_threads());
        divide_slabs(&d);
        multiply_part(&d, omp_get_thread_num());
    }
}

/* A sum of nothing is 0. */
static void multiply_nothing(const struct gemm *g)
{
    for (int64_t i = 0; !g->accumulate && i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            g->c[i * g->c_row + j * g->c_col] = 0;
}

void K(gemm)(struct stream *s, const struct gemm *g)
{
    struct product p = {g->m,     g->n,     g->k,          DTYPE_F32, g->a,      g->a_row,
                        g->a_col, g->b,     g->b_row,      g->b_col,  DTYPE_F32, g->c,
                        g->c_row, g->c_col, g->accumulate, NULL,      NULL};
    struct product turned = {g->n,      g->m,     g->k,     DTYPE_F32, g->b,
                             g->b_col,  g->b_row, g->a,     g->a_col,  g->a_row,
                             DTYPE_F32, g->c,     g->c_col, g->c_row,  g->accumulate,
                             NULL,      NULL};
    if (g->m <= 0 || g->n <= 0)
        return;
    if (g->k <= 0)
        multiply_nothing(g);
    else
        K(product)(g->c_col != 1 && g->c_row == 1 ? &turned : &p);
}
