/*
 * cpu_attention - what forward and backward of attention share: heads, tiles of TILE
 * queries by TILE keys, which of their pairs are seen, and the products over them.
 *
 * Tiles above the diagonal, and those between documents, are never computed, nor the
 * blocks of a tile that no query of theirs sees, and no more than two tiles of scores
 * exist per thread.
 *
 * An element of an output is the sum over tiles, in ascending order, of sums within a
 * tile, in ascending order; whichever thread and whatever processor computes it.
 */
#ifndef DEVICE_CPU_CPU_ATTENTION_H
#define DEVICE_CPU_CPU_ATTENTION_H

#include "device/cpu/cpu_tile.h"

#include <math.h>

#define CHAIN 128 // values of D that a chain of scores has
#define DEPTH 256 // columns of a head that are packed, and of its outputs, at a time

/* One head of one sample. Rows are tokens; q_row and kv_row elements lie between them. */
struct head {
    const float *q, *k, *v;
    int64_t q_row, kv_row;
    int64_t S, D;
    float scale;
    const struct dropout *drop;
    uint32_t sample;
    int64_t drop_row;         // the row of dropout that query 0 has
    const int32_t *first_key; // (S), or NULL
};

/* The head of keys and values that query head h uses. */
static inline int64_t kv_head(const struct attention *at, int64_t h)
{
    return h / (at->A / at->A_kv);
}

static inline struct head head_of(const struct attention *at, int64_t b, int64_t h)
{
    int64_t kv = b * at->S * at->kv_row + kv_head(at, h) * at->D;
    return (struct head){
        .q = (const float *)at->q + b * at->S * at->q_row + h * at->D,
        .k = (const float *)at->k + kv,
        .v = (const float *)at->v + kv,
        .q_row = at->q_row,
        .kv_row = at->kv_row,
        .S = at->S,
        .D = at->D,
        .scale = 1.0F / sqrtf((float)at->D),
        .drop = &at->drop,
        .sample = at->drop.first_sample + (uint32_t)b,
        .drop_row = (at->first_head + h) * at->S,
        .first_key = at->first_key ? at->first_key + b * at->S : NULL,
    };
}

/* The keys of a tile that a query sees: first .. end of it, none when they are equal. */
struct span {
    int64_t first, end;
};

static inline struct span visible(const struct head *hd, int64_t q, int64_t k0,
                                  int64_t n_keys)
{
    struct span keys = {.end = i64_min(n_keys, q - k0 + 1)};
    if (hd->first_key)
        keys.first = i64_min(keys.end, i64_max(0, hd->first_key[q] - k0));
    return keys;
}

/* The first tile of keys that any query of the tile at q0 sees: its first query's, since
 * later ones see no earlier keys. */
static inline int64_t first_tile(const struct head *hd, int64_t q0)
{
    return hd->first_key ? hd->first_key[q0] / TILE * TILE : 0;
}

static inline void set_zero(float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] = 0.0F;
}

/* The dropout factors of query q for the keys of the tile at k0. */
static inline void tile_factors(float factor[TILE], const struct head *hd, int64_t q,
                                int64_t k0)
{
    int64_t n_groups = i64_round_up(hd->S, DROPOUT_GROUP) / DROPOUT_GROUP;
    K(dropout_group)
    (factor, hd->drop, hd->sample,
     (uint64_t)((hd->drop_row + q) * n_groups + k0 / DROPOUT_GROUP));
}

/* The queries and keys of a tile, and what any query of a block of TILE_ROWS sees. */
struct tile {
    int64_t q0, n_queries, k0, n_keys;
    struct span seen[TILE / TILE_ROWS + 1];
};

static inline void tile_init(struct tile *t, const struct head *hd, int64_t q0,
                             int64_t k0)
{
    t->q0 = q0;
    t->n_queries = i64_min(TILE, hd->S - q0);
    t->k0 = k0;
    t->n_keys = i64_min(TILE, hd->S - k0);
    for (int64_t r = 0; r < t->n_queries; r += TILE_ROWS) {
        int64_t last = i64_min(r + TILE_ROWS, t->n_queries) - 1;
        struct span top = visible(hd, q0 + r, k0, t->n_keys);
        struct span bottom = visible(hd, q0 + last, k0, t->n_keys);
        t->seen[r / TILE_ROWS] =
            (struct span){.first = top.first, .end = i64_max(top.first, bottom.end)};
    }
}

/* -- products of tiles --------------------------------------------------------------- */

/* Up to TILE rows and DEPTH columns of a head's matrix, packed for a product. */
struct pack {
    _Alignas(64) float x[TILE * DEPTH];
    const float *from; // (S, D) with `stride`
    int64_t stride, S, D;
    bool is_transposed;
    int64_t row, column; // of its first element; row -1: nothing is packed yet
};

static inline void pack_init(struct pack *pk, const struct head *hd, const float *from,
                             int64_t stride, bool is_transposed)
{
    pk->from = from;
    pk->stride = stride;
    pk->S = hd->S;
    pk->D = hd->D;
    pk->is_transposed = is_transposed;
    pk->row = pk->column = -1;
}

/* Ask for the rows of the tile that follows: they lie on pages of their own, where no
 * processor looks ahead by itself. */
static inline void pack_ahead(const struct pack *pk, int64_t row, int64_t n_rows,
                              int64_t columns)
{
    const float *from = pk->from + row * pk->stride;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < columns; c += 16)
            __builtin_prefetch(from + r * pk->stride + c, 0, 2);
}

/* Rows from `row`, and the DEPTH columns of which `column` is one. */
static inline const float *packed(struct pack *pk, int64_t row, int64_t n_rows,
                                  int64_t column)
{
    int64_t first = column / DEPTH * DEPTH, columns = i64_min(DEPTH, pk->D - first);
    const float *from = pk->from + row * pk->stride + first;
    if (pk->row == row && pk->column == first)
        return pk->x;
    if (pk->is_transposed)
        tile_pack_transposed(pk->x, from, pk->stride, n_rows, columns);
    else
        tile_pack(pk->x, from, pk->stride, n_rows, columns);
    pack_ahead(pk, row + TILE, i64_min(TILE, pk->S - row - TILE), columns);
    pk->row = row;
    pk->column = first;
    return pk->x;
}

/* p(q, key) = x(q) . y(key), of pairs that are seen; x is packed by rows, y transposed. */
void K(tile_scores)(float *p, const struct tile *t, struct pack *x, struct pack *y);

/* Columns [first, first + n) of an output, DEPTH at most, as a tile's rows. `is_whole`:
 * all TILE rows can be written, and n rounded up to PANEL columns. */
struct output {
    float *y;
    int64_t row, first, n;
    bool accumulate, is_whole;
};

/* y(q) (+)= sum over keys of p(q, key) x(key). */
void K(sum_over_keys)(const struct output *y, const float *p, const struct tile *t,
                      struct pack *x);
/* y(key) (+)= sum over queries of p(q, key) x(q), y whole. A key is seen by no query
 * before it. */
void K(sum_over_queries)(const struct output *y, const float *p, const struct tile *t,
                         struct pack *x);

#endif
