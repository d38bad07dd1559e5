/*
 * Products over tiles of scores: packing, and which blocks are computed.
 */
#include "device/cpu/cpu_attention.h"

/* -- packing ------------------------------------------------------------------------- */

void K(pack_init)(struct pack *pk, const struct head *hd, const void *from,
                  int64_t stride, bool is_transposed)
{
    pk->from = from;
    pk->dtype = hd->dtype;
    pk->stride = stride;
    pk->S = hd->S;
    pk->D = hd->D;
    pk->is_transposed = is_transposed;
    pk->row = pk->column = -1;
}

/* Ask for the rows of the tile that follows: they lie on pages of their own, where no
 * processor looks ahead by itself. */
static void pack_ahead(const struct pack *pk, int64_t row, int64_t n_rows,
                       int64_t columns)
{
    const int64_t line = pk->dtype == DTYPE_F32 ? 16 : 32;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < columns; c += line)
            __builtin_prefetch(element(pk->from, (row + r) * pk->stride + c, pk->dtype),
                               0, 2);
}

/* Columns that are packed from `first`. */
static int64_t pack_columns(const struct pack *pk, int64_t first)
{
    return i64_min(DEPTH, pk->D - first);
}

/* Rows from `row`, and the DEPTH columns of which `column` is one. */
static const float *packed(struct pack *pk, int64_t row, int64_t n_rows, int64_t column)
{
    int64_t first = column / DEPTH * DEPTH, columns = pack_columns(pk, first);
    const void *from = element(pk->from, row * pk->stride + first, pk->dtype);
    if (pk->row == row && pk->column == first)
        return pk->x;
    if (!pk->is_transposed)
        tile_pack(pk->x, from, pk->dtype, pk->stride, n_rows, columns);
    else if (pk->dtype == DTYPE_F32)
        tile_pack_transposed(pk->x, from, pk->stride, n_rows, columns);
    else
        tile_widen_transposed(pk->x, from, pk->dtype, pk->stride, n_rows, columns);
    pack_ahead(pk, row + TILE, i64_min(TILE, pk->S - row - TILE), columns);
    pk->row = row;
    pk->column = first;
    return pk->x;
}

/* -- floats -------------------------------------------------------------------------- */

static __attribute__((noinline)) void multiply_scores(const struct tile_block *t)
{
    tile_multiply(t, TILE_PANELS);
}

static __attribute__((noinline)) void multiply_keys(const struct tile_block *t)
{
    tile_multiply(t, TILE_SCORES);
}

static __attribute__((noinline)) void multiply_keys_part(const struct tile_block *t)
{
    tile_multiply_part(t, TILE_SCORES);
}

static __attribute__((noinline)) void multiply_queries(const struct tile_block *t)
{
    tile_multiply(t, TILE_SCORES_BY);
}

static void scores_of_floats(float *p, const struct tile *t, struct pack *x,
                             struct pack *y)
{
    for (int64_t d = 0; d < x->D; d += CHAIN) {
        int64_t height = pack_columns(y, d / DEPTH * DEPTH), at = d % DEPTH;
        const float *a = packed(x, t->q0, t->n_queries, d) + at * TILE;
        const float *b = packed(y, t->k0, t->n_keys, d) + at * PANEL;
        for (int64_t c = 0; c < t->n_keys; c += PANEL)
            for (int64_t r = 0; r < t->n_queries; r += CHAIN_ROWS) {
                struct span keys = t->seen[r / CHAIN_ROWS];
                if (c + PANEL <= keys.first || c >= keys.end)
                    continue;
                multiply_scores(
                    &(struct tile_block){.rows = i64_min(CHAIN_ROWS, t->n_queries - r),
                                         .k = i64_min(CHAIN, x->D - d),
                                         .a = a + r * PANEL,
                                         .b = b + c * height,
                                         .c = p + r * P_ROW + c,
                                         .c_row = P_ROW,
                                         .accumulate = d > 0});
            }
    }
}

static void keys_of_floats(const struct output *y, const float *p, const struct tile *t,
                           const float *b)
{
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_queries; r += CHAIN_ROWS) {
            struct span keys = t->seen[r / CHAIN_ROWS];
            struct tile_block block = {.rows = i64_min(CHAIN_ROWS, t->n_queries - r),
                                       .columns = i64_min(PANEL, y->n - d),
                                       .k = keys.end - keys.first,
                                       .a = p + r * P_ROW + keys.first,
                                       .b = b + d * TILE + keys.first * PANEL,
                                       .c = y->y + r * y->row + d,
                                       .c_row = y->row,
                                       .accumulate = y->accumulate};
            if (y->is_whole)
                multiply_keys(&block);
            else
                multiply_keys_part(&block);
        }
}

/* The end of the keys of a tile that any query of it sees: before its own, of padding. */
static int64_t seen_end(const struct tile *t)
{
    return t->seen[(t->n_queries - 1) / t->block].end;
}

/* y := 0, of n rows from row r and a panel of columns from d. */
static void zero_rows(const struct output *y, int64_t r, int64_t n, int64_t d)
{
    for (int64_t i = r; i < r + n; i++)
        set_zero(y->y + i * y->row + d, PANEL);
}

static void queries_of_floats(const struct output *y, const float *p,
                              const struct tile *t, const float *b)
{
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_keys; r += CHAIN_ROWS) {
            int64_t first = i64_max(0, t->k0 + r - t->q0);
            if (r / GROUP * GROUP >= seen_end(t)) {
                if (!y->accumulate)
                    zero_rows(y, r, i64_min(CHAIN_ROWS, t->n_keys - r), d);
                continue;
            }
            multiply_queries(
                &(struct tile_block){.rows = i64_min(CHAIN_ROWS, t->n_keys - r),
                                     .k = t->n_queries - first,
                                     .a = p + first * P_ROW + r,
                                     .b = b + d * TILE + first * PANEL,
                                     .c = y->y + r * y->row + d,
                                     .c_row = y->row,
                                     .accumulate = y->accumulate});
        }
}

/* -- numbers of 16 bits -------------------------------------------------------------- */

static __attribute__((noinline)) void join_scores(const struct tile_block *t)
{
    tile_join(t, TILE_PANELS);
}

static __attribute__((noinline)) void join_keys(const struct tile_block *t)
{
    tile_join(t, TILE_SCORES);
}

static __attribute__((noinline)) void join_queries(const struct tile_block *t)
{
    tile_join(t, TILE_SCORES_BY);
}

static void scores_joined(float *p, const struct tile *t, struct pack *x, struct pack *y)
{
    for (int64_t d = 0; d < x->D; d += DEPTH) {
        int64_t height = i64_round_up(pack_columns(y, d), GROUP);
        const float *a = packed(x, t->q0, t->n_queries, d);
        const float *b = packed(y, t->k0, t->n_keys, d);
        uint32_t before = flush_begin();
        for (int64_t c = 0; c < t->n_keys; c += PANEL)
            for (int64_t r = 0; r < t->n_queries; r += JOIN_ROWS) {
                struct span keys = t->seen[r / JOIN_ROWS];
                if (c + PANEL <= keys.first || c >= keys.end)
                    continue;
                join_scores(&(struct tile_block){.k = height,
                                                 .a = a + r * PANEL,
                                                 .b = b + c * height,
                                                 .c = p + r * P_ROW + c,
                                                 .c_row = P_ROW,
                                                 .accumulate = d > 0});
            }
        flush_end(before);
    }
}

static void keys_joined(const struct output *y, const float *p, const struct tile *t,
                        const float *b)
{
    uint32_t before = flush_begin();
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_queries; r += JOIN_ROWS) {
            struct span keys = groups_of_keys(t->seen[r / JOIN_ROWS]);
            join_keys(&(struct tile_block){.k = keys.end - keys.first,
                                           .a = p + r * P_ROW + keys.first,
                                           .b = b + d * TILE + keys.first * PANEL,
                                           .c = y->y + r * y->row + d,
                                           .c_row = y->row,
                                           .accumulate = true});
        }
    flush_end(before);
}

static void queries_joined(const struct output *y, const float *p, const struct tile *t,
                           const float *b)
{
    uint32_t before = flush_begin();
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_keys; r += JOIN_ROWS) {
            struct span queries = groups_of_queries(t, r / GROUP * GROUP);
            join_queries(&(struct tile_block){.k = queries.end - queries.first,
                                              .a = p + queries.first * P_ROW + r,
                                              .b = b + d * TILE + queries.first * PANEL,
                                              .c = y->y + r * y->row + d,
                                              .c_row = y->row,
                                              .accumulate = true});
        }
    flush_end(before);
}

/* -- both ---------------------------------------------------------------------------- */

void K(tile_scores)(float *p, const struct tile *t, struct pack *x, struct pack *y)
{
    if (x->dtype == DTYPE_F32)
        scores_of_floats(p, t, x, y);
    else
        scores_joined(p, t, x, y);
}

void K(sum_over_keys)(const struct output *y, const float *p, const struct tile *t,
                      struct pack *x)
{
    const float *b = packed(x, t->k0, t->n_keys, y->first);
    if (x->dtype == DTYPE_F32)
        keys_of_floats(y, p, t, b);
    else
        keys_joined(y, p, t, b);
}

void K(sum_over_queries)(const struct output *y, const float *p, const struct tile *t,
                         struct pack *x)
{
    const float *b = packed(x, t->q0, t->n_queries, y->first);
    if (x->dtype == DTYPE_F32)
        queries_of_floats(y, p, t, b);
    else
        queries_joined(y, p, t, b);
}
