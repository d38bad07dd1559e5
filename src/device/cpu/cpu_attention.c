/*
 * Causal attention in tiles of TILE queries by TILE keys; tiles above the diagonal, and
 * those between documents, are never computed, nor the blocks of a tile that no query of
 * theirs sees, and no more than one tile of scores exists per thread.
 *
 * Forward keeps a running maximum and sum per row (online softmax) and rescales what it
 * has summed when the maximum grows. Backward computes the scores again and turns them
 * into probabilities with the row's saved log-sum-exp.
 *
 * A thread takes one head of one sample (and a group of tiles of queries in forward), and
 * walks its tiles in a fixed order; so the bits depend on the sample alone.
 *
 * Cost per tile: forward 2, backward 5 matrix products of TILE x TILE x D.
 */
#include "device/cpu/cpu_tile.h"
#include "device/device.h"

#include <math.h>

#define TILE 128  // a multiple of DROPOUT_GROUP, so that tiles own whole groups
#define DEPTH 128 // of a head, what is packed at a time
#define P_ROW 144 // between rows of scores: no power of two, which would share few sets
#define GROUP 4   // tiles of queries that use a packed tile of keys

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
static int64_t kv_head(const struct attention *at, int64_t h)
{
    return h / (at->A / at->A_kv);
}

static struct head head_of(const struct attention *at, int64_t b, int64_t h)
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

static struct span visible(const struct head *hd, int64_t q, int64_t k0, int64_t n_keys)
{
    struct span keys = {.end = i64_min(n_keys, q - k0 + 1)};
    if (hd->first_key)
        keys.first = i64_min(keys.end, i64_max(0, hd->first_key[q] - k0));
    return keys;
}

/* The first tile of keys that any query of the tile at q0 sees: its first query's, since
 * later ones see no earlier keys. */
static int64_t first_tile(const struct head *hd, int64_t q0)
{
    return hd->first_key ? hd->first_key[q0] / TILE * TILE : 0;
}

static void set_zero(float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] = 0.0F;
}

/* The dropout factors of query q0 + r for the keys of the tile at k0. */
static void tile_factors(float factor[TILE], const struct head *hd, int64_t q, int64_t k0)
{
    int64_t n_groups = i64_round_up(hd->S, DROPOUT_GROUP) / DROPOUT_GROUP;
    K(dropout_group)
    (factor, hd->drop, hd->sample,
     (uint64_t)((hd->drop_row + q) * n_groups + k0 / DROPOUT_GROUP));
}

/* -- products of tiles --------------------------------------------------------------- */

/* Up to TILE rows and DEPTH columns of a head's matrix, packed for tile_multiply(). */
struct pack {
    _Alignas(64) float x[TILE * DEPTH];
    const float *from; // (S, D) with `stride`
    int64_t stride;
    bool is_transposed;
    int64_t row, column; // of its first element; row -1: nothing is packed yet
};

static void pack_init(struct pack *pk, const float *from, int64_t stride,
                      bool is_transposed)
{
    pk->from = from;
    pk->stride = stride;
    pk->is_transposed = is_transposed;
    pk->row = pk->column = -1;
}

static const float *packed(struct pack *pk, int64_t row, int64_t n_rows, int64_t column,
                           int64_t n_columns)
{
    const float *from = pk->from + row * pk->stride + column;
    if (pk->row == row && pk->column == column)
        return pk->x;
    if (pk->is_transposed)
        tile_pack_transposed(pk->x, from, pk->stride, n_rows, n_columns);
    else
        tile_pack(pk->x, TILE, from, pk->stride, n_rows, n_columns);
    pk->row = row;
    pk->column = column;
    return pk->x;
}

/* The queries and keys of a tile, and what any query of a block of TILE_ROWS sees. */
struct tile {
    int64_t q0, n_queries, k0, n_keys;
    struct span seen[TILE / TILE_ROWS + 1];
};

static void tile_init(struct tile *t, const struct head *hd, int64_t q0, int64_t k0)
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

/* p(q, key) = x(q) . y(key), of pairs that are seen; x has row stride x_row. */
static void tile_scores(float *p, const struct head *hd, const struct tile *t,
                        const float *x, int64_t x_row, struct pack *y)
{
    for (int64_t d = 0; d < hd->D; d += DEPTH) {
        int64_t depth = i64_min(DEPTH, hd->D - d);
        const float *b = packed(y, t->k0, t->n_keys, d, depth);
        for (int64_t r = 0; r < t->n_queries; r += TILE_ROWS) {
            int64_t rows = i64_min(TILE_ROWS, t->n_queries - r);
            struct span keys = t->seen[r / TILE_ROWS];
            int64_t first = keys.first / TILE_COLUMNS * TILE_COLUMNS;
            for (int64_t c = first; c < keys.end; c += TILE_COLUMNS)
                tile_multiply(&(struct tile_block){.rows = rows,
                                                   .columns = TILE_COLUMNS,
                                                   .k = depth,
                                                   .a = x + (t->q0 + r) * x_row + d,
                                                   .a_row = x_row,
                                                   .a_col = 1,
                                                   .b = b + c * depth,
                                                   .c = p + r * P_ROW + c,
                                                   .c_row = P_ROW,
                                                   .accumulate = d > 0});
        }
    }
}

/* y(q) (+)= sum over keys of p(q, key) x(key); y is row 0 of the tile. */
static void sum_over_keys(float *y, int64_t y_row, const float *p, const struct head *hd,
                          const struct tile *t, struct pack *x, bool accumulate)
{
    for (int64_t d = 0; d < hd->D; d += TILE_COLUMNS) {
        int64_t slice = d / DEPTH * DEPTH;
        const float *b =
            packed(x, t->k0, t->n_keys, slice, i64_min(DEPTH, hd->D - slice));
        for (int64_t r = 0; r < t->n_queries; r += TILE_ROWS) {
            int64_t rows = i64_min(TILE_ROWS, t->n_queries - r);
            struct span keys = t->seen[r / TILE_ROWS];
            tile_multiply(&(struct tile_block){
                .rows = rows,
                .columns = i64_min(TILE_COLUMNS, hd->D - d),
                .k = keys.end - keys.first,
                .a = p + r * P_ROW + keys.first,
                .a_row = P_ROW,
                .a_col = 1,
                .b = b + (d - slice) * TILE + keys.first * TILE_COLUMNS,
                .c = y + r * y_row + d,
                .c_row = y_row,
                .accumulate = accumulate});
        }
    }
}

/* y(key) (+)= sum over queries of p(q, key) x(q); y is row 0 of the tile. A key is seen
 * by no query before it. */
static void sum_over_queries(float *y, int64_t y_row, const float *p,
                             const struct head *hd, const struct tile *t, struct pack *x,
                             bool accumulate)
{
    for (int64_t d = 0; d < hd->D; d += TILE_COLUMNS) {
        int64_t slice = d / DEPTH * DEPTH;
        const float *b =
            packed(x, t->q0, t->n_queries, slice, i64_min(DEPTH, hd->D - slice));
        for (int64_t r = 0; r < t->n_keys; r += TILE_ROWS) {
            int64_t first = i64_max(0, t->k0 + r - t->q0);
            tile_multiply(
                &(struct tile_block){.rows = i64_min(TILE_ROWS, t->n_keys - r),
                                     .columns = i64_min(TILE_COLUMNS, hd->D - d),
                                     .k = t->n_queries - first,
                                     .a = p + first * P_ROW + r,
                                     .a_row = 1,
                                     .a_col = P_ROW,
                                     .b = b + (d - slice) * TILE + first * TILE_COLUMNS,
                                     .c = y + r * y_row + d,
                                     .c_row = y_row,
                                     .accumulate = accumulate});
        }
    }
}

/* -- forward ------------------------------------------------------------------------- */

/* One tile of queries of one head: running maximum and sum per row. */
struct query_tile {
    int64_t q0, n_queries;
    float *out; // row 0 of the tile
    int64_t out_stride;
    float max[TILE];
    float sum[TILE];
};

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
        float *out = t->out + r * t->out_stride;
        for (int64_t d = 0; d < hd->D; d++)
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
static void finish_queries(const struct query_tile *qt, float *lse, int64_t D)
{
    for (int64_t r = 0; r < qt->n_queries; r++) {
        float *out = qt->out + r * qt->out_stride;
        float inverse = 1.0F / qt->sum[r];
        for (int64_t d = 0; d < D; d++)
            out[d] *= inverse;
        lse[qt->q0 + r] = qt->max[r] + logf(qt->sum[r]);
    }
}

static struct query_tile query_tile_of(const struct attention *at, int64_t b, int64_t h,
                                       int64_t q0)
{
    return (struct query_tile){
        .q0 = q0,
        .n_queries = i64_min(TILE, at->S - q0),
        .out = (float *)at->out + ((b * at->S + q0) * at->A + h) * at->D,
        .out_stride = at->A * at->D,
    };
}

/* Add what the queries of a tile get from the keys at k0; p holds its scores. */
static void query_tile_fwd(struct query_tile *qt, const struct head *hd, int64_t k0,
                           struct pack *keys, struct pack *values, float *p)
{
    struct tile t;
    int64_t k_first = first_tile(hd, qt->q0);
    if (k0 < k_first || k0 > qt->q0)
        return;
    tile_init(&t, hd, qt->q0, k0);
    tile_scores(p, hd, &t, hd->q, hd->q_row, keys);
    tile_softmax(p, qt, hd, &t);
    sum_over_keys(qt->out, qt->out_stride, p, hd, &t, values, k0 > k_first);
}

/* The queries first .. first + GROUP * TILE of a head. */
static void query_group_fwd(const struct attention *at, int64_t b, int64_t h,
                            int64_t first, float *p)
{
    struct head hd = head_of(at, b, h);
    struct query_tile tiles[GROUP];
    struct pack keys, values;
    int64_t n_tiles = 0, end = i64_min(at->S, first + GROUP * TILE);
    for (int64_t q0 = first; q0 < end; q0 += TILE)
        tiles[n_tiles++] = query_tile_of(at, b, h, q0);
    pack_init(&keys, hd.k, hd.kv_row, true);
    pack_init(&values, hd.v, hd.kv_row, false);
    for (int64_t k0 = first_tile(&hd, first); k0 < end; k0 += TILE)
        for (int64_t i = 0; i < n_tiles; i++)
            query_tile_fwd(&tiles[i], &hd, k0, &keys, &values, p);
    for (int64_t i = 0; i < n_tiles; i++)
        finish_queries(&tiles[i], at->lse + (b * at->A + h) * at->S, at->D);
}

void K(attention_fwd)(struct stream *s, const struct attention *at)
{
    int64_t n_groups = i64_round_up(at->S, GROUP * TILE) / (GROUP * TILE);
    // late queries, which see most, first, so that threads end together
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < n_groups; i++)
        for (int64_t bh = 0; bh < at->B * at->A; bh++) {
            _Alignas(64) float p[TILE * P_ROW];
            query_group_fwd(at, bh / at->A, bh % at->A, (n_groups - 1 - i) * GROUP * TILE,
                            p);
        }
}

/* -- backward ------------------------------------------------------------------------ */

/* Gradients of one head, laid out as the head itself. Those of k and v are sums over the
 * heads of q that share them, which one thread takes in order. */
struct head_grad {
    const float *dout; // (S, D) with out_stride
    int64_t out_stride;
    float *dq, *dk, *dv;
    int64_t dq_row, dkv_row;
    const float *lse, *delta; // (S)
    bool is_first;            // of the heads that share keys and values
};

/* delta[q] = dout[q] . out[q], the sum over keys of p * dp. */
static void head_delta(float *delta, const float *out, const float *dout, int64_t stride,
                       int64_t S, int64_t D)
{
    for (int64_t q = 0; q < S; q++)
        delta[q] = lanes_dot(out + q * stride, dout + q * stride, D);
}

/* From scores p: p := probabilities, dp := p * (dp - delta) * scale, the gradient of the
 * scores. */
static void score_grad_row(float *restrict dp, float *restrict p, int64_t n, float scale,
                           float lse, float delta)
{
    for (int64_t c = 0; c < n; c++) {
        p[c] = fast_exp(fused(p[c], scale, -lse));
        dp[c] = p[c] * (dp[c] - delta) * scale;
    }
}

static void multiply_row(float *restrict x, const float *restrict factor, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] *= factor[c];
}

/*
 * From p = scores and dp = dout v^T of a tile:
 *   dp := the gradient of the scores,   p := the dropped probabilities.
 */
static void tile_grads(float *p, float *dp, const struct head *hd,
                       const struct head_grad *gr, const struct tile *t)
{
    for (int64_t r = 0; r < t->n_queries; r++) {
        float *p_r = p + r * P_ROW, *dp_r = dp + r * P_ROW;
        struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
        int64_t n = keys.end - keys.first;
        float *p_seen = p_r + keys.first, *dp_seen = dp_r + keys.first;
        float factor[TILE];
        bool is_dropped = hd->drop->threshold > 0;
        if (is_dropped) {
            tile_factors(factor, hd, t->q0 + r, t->k0);
            multiply_row(dp_seen, factor + keys.first, n);
        }
        score_grad_row(dp_seen, p_seen, n, hd->scale, gr->lse[t->q0 + r],
                       gr->delta[t->q0 + r]);
        if (is_dropped)
            multiply_row(p_seen, factor + keys.first, n);
        set_zero(p_r, keys.first);
        set_zero(dp_r, keys.first);
        set_zero(p_r + keys.end, t->n_keys - keys.end);
        set_zero(dp_r + keys.end, t->n_keys - keys.end);
    }
}

/* The right-hand sides of the products of a head's backward. */
struct bwd_packs {
    struct pack keys, values;             // transposed, for the scores and their gradient
    struct pack keys_rows, queries, dout; // for the gradients of q, k, v
};

/* p and dp hold a tile each. */
static void tile_bwd(const struct head *hd, const struct head_grad *gr,
                     struct bwd_packs *packs, float *p, float *dp, int64_t q0, int64_t k0)
{
    int64_t dkv_row = gr->dkv_row;
    // a tile of keys is first seen by the queries on the diagonal
    bool adds = q0 > k0 || !gr->is_first;
    struct tile t;

    tile_init(&t, hd, q0, k0);
    tile_scores(p, hd, &t, hd->q, hd->q_row, &packs->keys);
    tile_scores(dp, hd, &t, gr->dout, gr->out_stride, &packs->values);
    tile_grads(p, dp, hd, gr, &t);
    sum_over_queries(gr->dv + k0 * dkv_row, dkv_row, p, hd, &t, &packs->dout, adds);
    sum_over_queries(gr->dk + k0 * dkv_row, dkv_row, dp, hd, &t, &packs->queries, adds);
    sum_over_keys(gr->dq + q0 * gr->dq_row, gr->dq_row, dp, hd, &t, &packs->keys_rows,
                  k0 > first_tile(hd, q0));
}

static void head_bwd(const struct head *hd, const struct head_grad *gr, float *p,
                     float *dp)
{
    struct bwd_packs packs;
    pack_init(&packs.keys, hd->k, hd->kv_row, true);
    pack_init(&packs.values, hd->v, hd->kv_row, true);
    pack_init(&packs.keys_rows, hd->k, hd->kv_row, false);
    pack_init(&packs.queries, hd->q, hd->q_row, false);
    pack_init(&packs.dout, gr->dout, gr->out_stride, false);
    for (int64_t k0 = 0; k0 < hd->S; k0 += TILE)
        for (int64_t q0 = k0; q0 < hd->S && first_tile(hd, q0) <= k0; q0 += TILE)
            tile_bwd(hd, gr, &packs, p, dp, q0, k0);
}

/* What backward works on: the call's forward, or one sample of it, widened; and where the
 * gradients go. */
struct bwd {
    struct attention fwd;
    const float *dout;
    float *dq, *dk, *dv, *delta;
    int64_t dq_row, dkv_row;
};

/* Head h of q of sample b; p and dp hold a tile each. */
static void query_head_bwd(const struct bwd *at, int64_t b, int64_t h, float *p,
                           float *dp)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, A = fwd->A, D = fwd->D, bh = b * A + h;
    int64_t out_at = (b * S * A + h) * D;
    int64_t kv = b * S * at->dkv_row + kv_head(fwd, h) * D;
    struct head hd = head_of(fwd, b, h);
    struct head_grad gr = {.dout = at->dout + out_at,
                           .out_stride = A * D,
                           .dq = at->dq + b * S * at->dq_row + h * D,
                           .dk = at->dk + kv,
                           .dv = at->dv + kv,
                           .dq_row = at->dq_row,
                           .dkv_row = at->dkv_row,
                           .lse = fwd->lse + bh * S,
                           .delta = at->delta + bh * S,
                           .is_first = h % (A / fwd->A_kv) == 0};
    head_delta(at->delta + bh * S, (const float *)fwd->out + out_at, gr.dout, A * D, S,
               D);
    head_bwd(&hd, &gr, p, dp);
}

static void attention_bwd(const struct bwd *at)
{
    int64_t A_kv = at->fwd.A_kv, shared = at->fwd.A / A_kv;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < at->fwd.B * A_kv; i++) {
        _Alignas(64) float p[TILE * P_ROW];
        _Alignas(64) float dp[TILE * P_ROW];
        for (int64_t h = i % A_kv * shared; h < (i % A_kv + 1) * shared; h++)
            query_head_bwd(at, i / A_kv, h, p, dp);
    }
}

/* to (n, columns) := rows [first, first + n) of what is stashed, `row` elements apart. */
static void widen_rows(struct stream *s, float *to, const void *stash, int64_t first,
                       int64_t n, int64_t columns, int64_t row)
{
    const uint16_t *from = (const uint16_t *)stash + first * row;
    K(load_matrix)(s, to, from, s->dev->dtype, n, columns, row);
}

/* Sample b alone, what is stashed of it widened into scratch. */
static struct bwd widened_sample(struct stream *s, const struct attention_bwd *at,
                                 int64_t b)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, q = fwd->A * fwd->D, kv = fwd->A_kv * fwd->D, first = b * S;
    float *to = at->scratch;
    struct attention one = *fwd;
    widen_rows(s, to, fwd->q, first, S, q, fwd->q_row);
    widen_rows(s, to + S * q, fwd->k, first, S, kv, fwd->kv_row);
    widen_rows(s, to + S * (q + kv), fwd->v, first, S, kv, fwd->kv_row);
    widen_rows(s, to + S * (q + 2 * kv), fwd->out, first, S, q, q);
    one.B = 1;
    one.q = at->scratch;
    one.k = at->scratch + S * q;
    one.v = at->scratch + S * (q + kv);
    one.out = at->scratch + S * (q + 2 * kv);
    one.q_row = q;
    one.kv_row = kv;
    one.lse = fwd->lse + first * fwd->A;
    one.first_key = fwd->first_key ? fwd->first_key + first : NULL;
    one.drop.first_sample += (uint32_t)b;
    return (struct bwd){.fwd = one,
                        .dout = at->dout + first * q,
                        .dq = at->dq + first * fwd->q_row,
                        .dk = at->dk + first * fwd->kv_row,
                        .dv = at->dv + first * fwd->kv_row,
                        .delta = at->delta,
                        .dq_row = fwd->q_row,
                        .dkv_row = fwd->kv_row};
}

void K(attention_bwd)(struct stream *s, const struct attention_bwd *at)
{
    struct bwd whole = {.fwd = at->fwd,
                        .dout = at->dout,
                        .dq = at->dq,
                        .dk = at->dk,
                        .dv = at->dv,
                        .delta = at->delta,
                        .dq_row = at->fwd.q_row,
                        .dkv_row = at->fwd.kv_row};
    if (!at->is_stashed || s->dev->dtype == DTYPE_F32) {
        attention_bwd(&whole);
        return;
    }
    for (int64_t b = 0; b < at->fwd.B; b++) {
        struct bwd one = widened_sample(s, at, b);
        attention_bwd(&one);
    }
}

/* -- one query ----------------------------------------------------------------------- */

void K(attention_decode)(struct stream *s, const struct attention_decode *at)
{
    int64_t D = at->D, n_keys = at->n_keys;
    float scale = 1.0F / sqrtf((float)D);
#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < at->A; h++) {
        int64_t kv = h / (at->A / at->A_kv) * D;
        float *p = at->scores + h * n_keys;
        for (int64_t i = 0; i < n_keys; i++)
            p[i] = lanes_dot(at->q + h * D, at->keys + i * at->kv_row + kv, D);
        float top = lanes_max(p, n_keys) * scale;
        float inverse = 1.0F / lanes_exp(p, n_keys, scale, top);
        float *out_h = at->out + h * D;
        memset(out_h, 0, (size_t)D * sizeof *out_h);
        for (int64_t i = 0; i < n_keys; i++) {
            const float *v = at->values + i * at->kv_row + kv;
            for (int64_t d = 0; d < D; d++)
                out_h[d] = fused(p[i] * inverse, v[d], out_h[d]);
        }
    }
}
