/*
 * Causal attention, forward: a running maximum and sum per row (online softmax); what was
 * summed is rescaled when the maximum grows.
 *
 * A thread takes a group of tiles of queries of one head of one sample, and walks the
 * tiles of keys in ascending order; so the bits depend on the sample alone. Its sums stay
 * in its own memory until they are divided.
 *
 * Cost per tile: 2 matrix products of TILE x TILE x D.
 */
#include "device/cpu/cpu_attention.h"
#include "base/real.h"
#include "device/device.h"

#include <omp.h>

/* -- softmax ------------------------------------------------------------------------- */

/* One tile of queries of one head: running maximum and sum per row, and what its rows
 * have of columns [first, first + n) of the output so far. */
struct query_tile {
    int64_t q0, n_queries;
    struct pack queries;
    int64_t first, n, out_row;
    _Alignas(64) float out[TILE * DEPTH];
    float max[TILE];
    float sum[TILE];
};

static void query_tile_init(struct query_tile *qt, const struct head *hd, int64_t q0,
                            int64_t first)
{
    qt->q0 = q0;
    qt->n_queries = i64_min(TILE, hd->S - q0);
    qt->first = first;
    qt->n = i64_min(DEPTH, hd->D - first);
    qt->out_row = i64_round_up(qt->n, PANEL);
    if (hd->dtype != DTYPE_F32)
        memset(qt->out, 0, sizeof *qt->out * (size_t)(TILE * qt->out_row));
    K(pack_init)(&qt->queries, hd, hd->q, hd->q_row, false);
}

INLINE void softmax_in_place(float *p, struct query_tile *qt, const struct head *hd,
                             const struct tile *t, const enum dtype dtype)
{
    struct softmax rows = {
        .max = qt->max, .sum = qt->sum, .out = qt->out, .row = qt->out_row};
    int64_t n_keys = i64_round_up(t->n_keys, GROUP);
    tile_softmax(&rows, p, P_ROW, p, hd, t, dtype, false);
    for (int64_t r = 0; r < t->n_queries; r++) {
        struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
        set_zero(p + r * P_ROW, keys.first);
        set_zero(p + r * P_ROW + keys.end, n_keys - keys.end);
    }
}

/* Divide by the sums, and round. */
static void query_tile_finish(struct query_tile *qt, const struct attention *at,
                              enum dtype dtype, int64_t b, int64_t h)
{
    float *lse = at->lse + (b * at->A + h) * at->S;
    for (int64_t r = 0; r < qt->n_queries; r++) {
        int64_t q = qt->q0 + r;
        float *from = qt->out + r * qt->out_row;
        float inverse = 1.0F / qt->sum[r];
        for (int64_t d = 0; d < qt->n; d++)
            from[d] *= inverse;
        narrow(
            element_of(at->out, ((b * at->S + q) * at->A + h) * at->D + qt->first, dtype),
            from, dtype, qt->n);
        // the bits of floats are those of earlier versions
        float log_sum =
            dtype == DTYPE_F32 ? logf(qt->sum[r]) : (float)real_log((double)qt->sum[r]);
        lse[q] = qt->max[r] + log_sum;
    }
}

/* -- forward ------------------------------------------------------------------------- */

/* What a thread works with. */
struct fwd_work {
    struct pack keys, values;
    _Alignas(64) float p[TILE * P_ROW];
    struct query_tile tiles[QUERY_TILES];
};

/* Add what the queries of a tile get from the keys at k0. */
static void query_tile_fwd(struct query_tile *qt, const struct head *hd, int64_t k0,
                           struct fwd_work *w)
{
    struct tile t;
    int64_t k_first = first_tile(hd, qt->q0);
    if (k0 < k_first || k0 > qt->q0 || k0 >= hd->key_end)
        return;
    tile_init(&t, hd, qt->q0, k0);
    K(tile_scores)(w->p, &t, &qt->queries, &w->keys);
    TYPED(hd->dtype, softmax_in_place, w->p, qt, hd, &t);
    K(sum_over_keys)
    (&(struct output){.y = qt->out,
                      .row = qt->out_row,
                      .first = qt->first,
                      .n = qt->n,
                      .accumulate = k0 > k_first,
                      .is_whole = true},
     w->p, &t, &w->values);
}

/* Queries first .. end of a head. The scores of a head that has more than DEPTH
 * columns are computed for each part of them. */
static __attribute__((noinline)) void query_group_fwd(const struct attention *at,
                                                      enum dtype dtype, int64_t b,
                                                      int64_t h, struct span queries)
{
    struct fwd_work w;
    struct head hd = head_of(at, dtype, b, h);
    K(pack_init)(&w.keys, &hd, hd.k, hd.kv_row, true);
    K(pack_init)(&w.values, &hd, hd.v, hd.kv_row, false);
    for (int64_t first = 0; first < hd.D; first += DEPTH) {
        int64_t n_tiles = 0;
        for (int64_t q0 = queries.first; q0 < queries.end; q0 += TILE)
            query_tile_init(&w.tiles[n_tiles++], &hd, q0, first);
        for (int64_t k0 = first_tile(&hd, queries.first); k0 < queries.end; k0 += TILE)
            for (int64_t i = 0; i < n_tiles; i++)
                query_tile_fwd(&w.tiles[i], &hd, k0, &w);
        for (int64_t i = 0; i < n_tiles; i++)
            query_tile_finish(&w.tiles[i], at, dtype, b, h);
    }
}

static void group_fwd(const struct attention *at, enum dtype dtype, int64_t b, int64_t h,
                      struct span queries)
{
#ifdef KERNEL_TILES
    if (is_on_tiles(dtype, at->D)) {
        K(tiles_fwd)(at, b, h, queries);
        return;
    }
#endif
    query_group_fwd(at, dtype, b, h, queries);
}

/* Tiles of queries that a thread takes at a time: fewer where threads would be idle. */
static int64_t group_tiles(const struct attention *at)
{
    int64_t n_tiles = i64_round_up(at->S, TILE) / TILE * at->B * at->A;
    int64_t wanted = 4 * (int64_t)omp_get_max_threads();
    return i64_max(1, i64_min(QUERY_TILES, n_tiles / wanted));
}

void K(attention_fwd)(struct stream *s, const struct attention *at)
{
    int64_t queries = group_tiles(at) * TILE;
    int64_t n_groups = i64_round_up(at->S, queries) / queries;
    // late queries, which see most, first, so that threads end together
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < n_groups; i++)
        for (int64_t bh = 0; bh < at->B * at->A; bh++) {
            int64_t first = (n_groups - 1 - i) * queries;
            struct span these = {first, i64_min(at->S, first + queries)};
            group_fwd(at, s->dev->dtype, bh / at->A, bh % at->A, these);
        }
}
