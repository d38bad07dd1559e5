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

#include <omp.h>

#define GROUP 4 // tiles of queries, at most, that use a packed tile of keys

/* -- products of tiles --------------------------------------------------------------- */

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

void K(tile_scores)(float *p, const struct tile *t, struct pack *x, struct pack *y)
{
    for (int64_t d = 0; d < x->D; d += CHAIN) {
        int64_t height = i64_min(DEPTH, x->D - d / DEPTH * DEPTH), at = d % DEPTH;
        const float *a = packed(x, t->q0, t->n_queries, d) + at * TILE;
        const float *b = packed(y, t->k0, t->n_keys, d) + at * PANEL;
        for (int64_t c = 0; c < t->n_keys; c += PANEL)
            for (int64_t r = 0; r < t->n_queries; r += TILE_ROWS) {
                struct span keys = t->seen[r / TILE_ROWS];
                if (c + PANEL <= keys.first || c >= keys.end)
                    continue;
                multiply_scores(
                    &(struct tile_block){.rows = i64_min(TILE_ROWS, t->n_queries - r),
                                         .k = i64_min(CHAIN, x->D - d),
                                         .a = a + r * PANEL,
                                         .b = b + c * height,
                                         .c = p + r * P_ROW + c,
                                         .c_row = P_ROW,
                                         .accumulate = d > 0});
            }
    }
}

void K(sum_over_keys)(const struct output *y, const float *p, const struct tile *t,
                      struct pack *x)
{
    const float *b = packed(x, t->k0, t->n_keys, y->first);
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_queries; r += TILE_ROWS) {
            struct span keys = t->seen[r / TILE_ROWS];
            struct tile_block block = {.rows = i64_min(TILE_ROWS, t->n_queries - r),
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

void K(sum_over_queries)(const struct output *y, const float *p, const struct tile *t,
                         struct pack *x)
{
    const float *b = packed(x, t->q0, t->n_queries, y->first);
    for (int64_t d = 0; d < y->n; d += PANEL)
        for (int64_t r = 0; r < t->n_keys; r += TILE_ROWS) {
            int64_t first = i64_max(0, t->k0 + r - t->q0);
            multiply_queries(
                &(struct tile_block){.rows = i64_min(TILE_ROWS, t->n_keys - r),
                                     .k = t->n_queries - first,
                                     .a = p + first * P_ROW + r,
                                     .b = b + d * TILE + first * PANEL,
                                     .c = y->y + r * y->row + d,
                                     .c_row = y->row,
                                     .accumulate = y->accumulate});
        }
}

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
    pack_init(&qt->queries, hd, hd->q, hd->q_row, false);
}

/* One row of scores into unnormalised probabilities; what was summed before is rescaled
 * when the maximum grows. */
static void row_softmax(float *p_r, struct query_tile *t, const struct head *hd,
                        int64_t r, int64_t k0, struct span keys)
{
    float *seen = p_r + keys.first;
    int64_t n = keys.end - keys.first;
    bool is_first = k0 == 0 || (hd->first_key && k0 <= hd->first_key[t->q0 + r]);
    float top = lanes_max(seen, n) * hd->scale;
    float grown = is_first || top > t->max[r] ? top : t->max[r];
    float sum = lanes_exp(seen, n, hd->scale, grown);
    if (!is_first && grown > t->max[r]) {
        float shrink = fast_exp(t->max[r] - grown);
        float *out = t->out + r * t->out_row;
        for (int64_t d = 0; d < t->out_row; d++)
            out[d] *= shrink;
        t->sum[r] *= shrink;
    }
    t->sum[r] = is_first ? sum : t->sum[r] + sum;
    t->max[r] = grown;
    if (hd->drop->threshold > 0) {
        float factor[TILE];
        tile_factors(factor, hd, t->q0 + r, k0);
        for (int64_t c = keys.first; c < keys.end; c++)
            p_r[c] *= factor[c];
    }
}

static void tile_softmax(float *p, struct query_tile *qt, const struct head *hd,
                         const struct tile *t)
{
    for (int64_t r = 0; r < t->n_queries; r++) {
        float *p_r = p + r * P_ROW;
        struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
        if (keys.first < keys.end)
            row_softmax(p_r, qt, hd, r, t->k0, keys);
        set_zero(p_r, keys.first);
        set_zero(p_r + keys.end, t->n_keys - keys.end);
    }
}

/* Divide by the sums. */
static void query_tile_finish(const struct query_tile *qt, const struct attention *at,
                              int64_t b, int64_t h)
{
    float *lse = at->lse + (b * at->A + h) * at->S;
    for (int64_t r = 0; r < qt->n_queries; r++) {
        int64_t q = qt->q0 + r;
        const float *from = qt->out + r * qt->out_row;
        float *out = (float *)at->out + ((b * at->S + q) * at->A + h) * at->D + qt->first;
        float inverse = 1.0F / qt->sum[r];
        for (int64_t d = 0; d < qt->n; d++)
            out[d] = from[d] * inverse;
        lse[q] = qt->max[r] + logf(qt->sum[r]);
    }
}

/* -- forward ------------------------------------------------------------------------- */

/* What a thread works with. */
struct fwd_work {
    struct pack keys, values;
    _Alignas(64) float p[TILE * P_ROW];
    struct query_tile tiles[GROUP];
};

/* Add what the queries of a tile get from the keys at k0. */
static void query_tile_fwd(struct query_tile *qt, const struct head *hd, int64_t k0,
                           struct fwd_work *w)
{
    struct tile t;
    int64_t k_first = first_tile(hd, qt->q0);
    if (k0 < k_first || k0 > qt->q0)
        return;
    tile_init(&t, hd, qt->q0, k0);
    K(tile_scores)(w->p, &t, &qt->queries, &w->keys);
    tile_softmax(w->p, qt, hd, &t);
    K(sum_over_keys)
    (&(struct output){.y = qt->out,
                      .row = qt->out_row,
                      .first = qt->first,
                      .n = qt->n,
                      .accumulate = k0 > k_first,
                      .is_whole = true},
     w->p, &t, &w->values);
}

/* The queries q_first .. q_end of a head. The scores of a head that has more than DEPTH
 * columns are computed for each part of them. */
static void query_group_fwd(const struct attention *at, int64_t b, int64_t h,
                            int64_t q_first, int64_t q_end, struct fwd_work *w)
{
    struct head hd = head_of(at, b, h);
    pack_init(&w->keys, &hd, hd.k, hd.kv_row, true);
    pack_init(&w->values, &hd, hd.v, hd.kv_row, false);
    for (int64_t first = 0; first < hd.D; first += DEPTH) {
        int64_t n_tiles = 0;
        for (int64_t q0 = q_first; q0 < q_end; q0 += TILE)
            query_tile_init(&w->tiles[n_tiles++], &hd, q0, first);
        for (int64_t k0 = first_tile(&hd, q_first); k0 < q_end; k0 += TILE)
            for (int64_t i = 0; i < n_tiles; i++)
                query_tile_fwd(&w->tiles[i], &hd, k0, w);
        for (int64_t i = 0; i < n_tiles; i++)
            query_tile_finish(&w->tiles[i], at, b, h);
    }
}

/* Tiles of queries that a thread takes at a time: fewer where threads would be idle. */
static int64_t group_tiles(const struct attention *at)
{
    int64_t n_tiles = i64_round_up(at->S, TILE) / TILE * at->B * at->A;
    int64_t wanted = 4 * (int64_t)omp_get_max_threads();
    return i64_max(1, i64_min(GROUP, n_tiles / wanted));
}

void K(attention_fwd)(struct stream *s, const struct attention *at)
{
    int64_t queries = group_tiles(at) * TILE;
    int64_t n_groups = i64_round_up(at->S, queries) / queries;
    // late queries, which see most, first, so that threads end together
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < n_groups; i++)
        for (int64_t bh = 0; bh < at->B * at->A; bh++) {
            struct fwd_work w;
            int64_t first = (n_groups - 1 - i) * queries;
            query_group_fwd(at, bh / at->A, bh % at->A, first,
                            i64_min(at->S, first + queries), &w);
        }
}
