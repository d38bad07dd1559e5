/*
 * Causal attention in tiles of TILE queries by TILE keys; tiles above the diagonal, and
 * those between documents, are never computed, and no more than one tile of scores exists
 * a thread.
 *
 * Forward keeps a running maximum and sum a row (online softmax) and rescales what it has
 * summed when the maximum grows. Backward computes the scores again and turns them into
 * probabilities with the row's saved log-sum-exp.
 *
 * A thread takes one head of one sample (and one tile of queries in forward), and walks
 * its tiles in a fixed order; so the bits depend on the sample alone.
 *
 * Cost: forward 2, backward 5 products of TILE x TILE x D a tile.
 */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define TILE 128 // a multiple of DROPOUT_GROUP, so that tiles own whole groups

/* One head of one sample. Rows are tokens; `stride` elements lie between them. */
struct head {
    const float *q, *k, *v;
    int64_t qkv_stride;
    int64_t S, D;
    float scale;
    const struct dropout *drop;
    uint32_t sample;
    int64_t drop_row;         // the row of dropout that query 0 has
    const int32_t *first_key; // (S), or NULL
};

static struct head head_of(const struct attention *at, int64_t b, int64_t h)
{
    int64_t stride = 3 * at->A * at->D;
    const float *q = at->qkv + b * at->S * stride + h * at->D;
    return (struct head){
        .q = q,
        .k = q + at->A * at->D,
        .v = q + 2 * at->A * at->D,
        .qkv_stride = stride,
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

/* p(q, key) = q k^T, unscaled. */
static void tile_scores(float *p, const struct head *hd, int64_t q0, int64_t n_queries,
                        int64_t k0, int64_t n_keys)
{
    gemm_blis(&(struct gemm){.m = n_queries,
                             .n = n_keys,
                             .k = hd->D,
                             .a = hd->q + q0 * hd->qkv_stride,
                             .a_row = hd->qkv_stride,
                             .a_col = 1,
                             .b = hd->k + k0 * hd->qkv_stride,
                             .b_row = 1,
                             .b_col = hd->qkv_stride,
                             .c = p,
                             .c_row = TILE,
                             .c_col = 1});
}

/* The dropout factors of query q0 + r for the keys of the tile at k0. */
static void tile_factors(float factor[TILE], const struct head *hd, int64_t q, int64_t k0)
{
    int64_t n_groups = i64_round_up(hd->S, DROPOUT_GROUP) / DROPOUT_GROUP;
    K(dropout_group)
    (factor, hd->drop, hd->sample,
     (uint64_t)((hd->drop_row + q) * n_groups + k0 / DROPOUT_GROUP));
}

/* -- forward ------------------------------------------------------------------------- */

static float row_max(const float *x, int64_t n, float start)
{
    float lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = start;
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
    for (int i = 0; c + i < n; i++)
        lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
    return lanes_max(lane);
}

/* x[c] := exp(x[c] * scale - shift) for c < n; returns the sum. */
static float row_exp(float *x, int64_t n, float scale, float shift)
{
    float lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int i = 0; i < LANES; i++) {
            float e = fast_exp(x[c + i] * scale - shift);
            x[c + i] = e;
            lane[i] += e;
        }
    for (int i = 0; c + i < n; i++) {
        float e = fast_exp(x[c + i] * scale - shift);
        x[c + i] = e;
        lane[i] += e;
    }
    return lanes_sum(lane);
}

/* One tile of queries of one head: running maximum and sum a row. */
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
    float top = row_max(seen, n, seen[0]) * hd->scale;
    float grown = is_first || top > t->max[r] ? top : t->max[r];
    float sum = row_exp(seen, n, hd->scale, grown);
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

static void tile_softmax(float *p, struct query_tile *t, const struct head *hd,
                         int64_t k0, int64_t n_keys)
{
    for (int64_t r = 0; r < t->n_queries; r++) {
        float *p_r = p + r * TILE;
        struct span keys = visible(hd, t->q0 + r, k0, n_keys);
        if (keys.first < keys.end)
            row_softmax(p_r, t, hd, r, k0, keys);
        set_zero(p_r, keys.first);
        set_zero(p_r + keys.end, n_keys - keys.end);
    }
}

static void query_tile_fwd(const struct attention *at, const struct head *hd, int64_t b,
                           int64_t h, int64_t q0)
{
    _Alignas(64) float p[TILE * TILE];
    struct query_tile t = {
        .q0 = q0,
        .n_queries = i64_min(TILE, at->S - q0),
        .out = at->out + ((b * at->S + q0) * at->A + h) * at->D,
        .out_stride = at->A * at->D,
    };
    int64_t k_first = first_tile(hd, q0);
    for (int64_t k0 = k_first; k0 < q0 + t.n_queries; k0 += TILE) {
        int64_t n_keys = i64_min(TILE, q0 + t.n_queries - k0);
        tile_scores(p, hd, q0, t.n_queries, k0, n_keys);
        tile_softmax(p, &t, hd, k0, n_keys);
        gemm_blis(&(struct gemm){.m = t.n_queries,
                                 .n = at->D,
                                 .k = n_keys,
                                 .a = p,
                                 .a_row = TILE,
                                 .a_col = 1,
                                 .b = hd->v + k0 * hd->qkv_stride,
                                 .b_row = hd->qkv_stride,
                                 .b_col = 1,
                                 .c = t.out,
                                 .c_row = t.out_stride,
                                 .c_col = 1,
                                 .accumulate = k0 > k_first});
    }
    float *lse = at->lse + (b * at->A + h) * at->S + q0;
    for (int64_t r = 0; r < t.n_queries; r++) {
        float *out = t.out + r * t.out_stride;
        float inverse = 1.0F / t.sum[r];
        for (int64_t d = 0; d < at->D; d++)
            out[d] *= inverse;
        lse[r] = t.max[r] + logf(t.sum[r]);
    }
}

void K(attention_fwd)(const struct attention *at)
{
    int64_t n_tiles = i64_round_up(at->S, TILE) / TILE;
    // long tiles (late queries) first, so that threads end together
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < n_tiles; i++)
        for (int64_t bh = 0; bh < at->B * at->A; bh++) {
            struct head hd = head_of(at, bh / at->A, bh % at->A);
            query_tile_fwd(at, &hd, bh / at->A, bh % at->A, (n_tiles - 1 - i) * TILE);
        }
}

/* -- backward ------------------------------------------------------------------------ */

/* Gradients of one head, laid out as the head itself. */
struct head_grad {
    const float *dout; // (S, D) with out_stride
    int64_t out_stride;
    float *dq, *dk, *dv;
    const float *lse, *delta; // (S)
};

/* delta[q] = dout[q] . out[q], the sum over keys of p * dp. */
static void head_delta(float *delta, const float *out, const float *dout, int64_t stride,
                       int64_t S, int64_t D)
{
    for (int64_t q = 0; q < S; q++)
        delta[q] = lanes_dot(out + q * stride, dout + q * stride, D);
}

static void probabilities_row(float *restrict p, int64_t n, float scale, float lse)
{
    for (int64_t c = 0; c < n; c++)
        p[c] = fast_exp(p[c] * scale - lse);
}

/* dp := p * (dp - delta) * scale, the gradient of the unscaled scores. */
static void score_grad_row(float *restrict dp, const float *restrict p, int64_t n,
                           float delta, float scale)
{
    for (int64_t c = 0; c < n; c++)
        dp[c] = p[c] * (dp[c] - delta) * scale;
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
                       const struct head_grad *gr, int64_t q0, int64_t n_queries,
                       int64_t k0, int64_t n_keys)
{
    for (int64_t r = 0; r < n_queries; r++) {
        float *p_r = p + r * TILE, *dp_r = dp + r * TILE;
        struct span keys = visible(hd, q0 + r, k0, n_keys);
        int64_t n = keys.end - keys.first;
        float *p_seen = p_r + keys.first, *dp_seen = dp_r + keys.first;
        float factor[TILE];
        bool is_dropped = hd->drop->threshold > 0;
        probabilities_row(p_seen, n, hd->scale, gr->lse[q0 + r]);
        if (is_dropped) {
            tile_factors(factor, hd, q0 + r, k0);
            multiply_row(dp_seen, factor + keys.first, n);
        }
        score_grad_row(dp_seen, p_seen, n, gr->delta[q0 + r], hd->scale);
        if (is_dropped)
            multiply_row(p_seen, factor + keys.first, n);
        set_zero(p_r, keys.first);
        set_zero(dp_r, keys.first);
        set_zero(p_r + keys.end, n_keys - keys.end);
        set_zero(dp_r + keys.end, n_keys - keys.end);
    }
}

/* c(rows, D) (+)= tile * b, or its transpose when the tile's columns are the rows. */
static void tile_product(float *c, const float *tile, bool is_transposed, const float *b,
                         int64_t b_stride, const struct head *hd, int64_t rows,
                         int64_t depth, bool accumulate)
{
    gemm_blis(&(struct gemm){.m = rows,
                             .n = hd->D,
                             .k = depth,
                             .a = tile,
                             .a_row = is_transposed ? 1 : TILE,
                             .a_col = is_transposed ? TILE : 1,
                             .b = b,
                             .b_row = b_stride,
                             .b_col = 1,
                             .c = c,
                             .c_row = hd->qkv_stride,
                             .c_col = 1,
                             .accumulate = accumulate});
}

static void tile_bwd(const struct head *hd, const struct head_grad *gr, int64_t q0,
                     int64_t k0)
{
    _Alignas(64) float p[TILE * TILE];
    _Alignas(64) float dp[TILE * TILE];
    int64_t stride = hd->qkv_stride;
    int64_t n_queries = i64_min(TILE, hd->S - q0);
    int64_t n_keys = i64_min(TILE, hd->S - k0);
    const float *dout = gr->dout + q0 * gr->out_stride;

    tile_scores(p, hd, q0, n_queries, k0, n_keys);
    gemm_blis(&(struct gemm){.m = n_queries,
                             .n = n_keys,
                             .k = hd->D,
                             .a = dout,
                             .a_row = gr->out_stride,
                             .a_col = 1,
                             .b = hd->v + k0 * stride,
                             .b_row = 1,
                             .b_col = stride,
                             .c = dp,
                             .c_row = TILE,
                             .c_col = 1});
    tile_grads(p, dp, hd, gr, q0, n_queries, k0, n_keys);
    // a tile of keys is first seen by the queries on the diagonal
    tile_product(gr->dv + k0 * stride, p, true, dout, gr->out_stride, hd, n_keys,
                 n_queries, q0 > k0);
    tile_product(gr->dk + k0 * stride, dp, true, hd->q + q0 * stride, stride, hd, n_keys,
                 n_queries, q0 > k0);
    tile_product(gr->dq + q0 * stride, dp, false, hd->k + k0 * stride, stride, hd,
                 n_queries, n_keys, k0 > first_tile(hd, q0));
}

void K(attention_bwd)(const struct attention_bwd *at)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, A = fwd->A, D = fwd->D;
#pragma omp parallel for schedule(dynamic)
    for (int64_t bh = 0; bh < fwd->B * A; bh++) {
        int64_t b = bh / A, h = bh % A;
        struct head hd = head_of(fwd, b, h);
        int64_t out_at = (b * S * A + h) * D;
        float *dq = at->dqkv + b * S * hd.qkv_stride + h * D;
        struct head_grad gr = {.dout = at->dout + out_at,
                               .out_stride = A * D,
                               .dq = dq,
                               .dk = dq + A * D,
                               .dv = dq + 2 * A * D,
                               .lse = fwd->lse + bh * S,
                               .delta = at->delta + bh * S};
        head_delta(at->delta + bh * S, fwd->out + out_at, gr.dout, A * D, S, D);
        for (int64_t k0 = 0; k0 < S; k0 += TILE)
            for (int64_t q0 = k0; q0 < S && first_tile(&hd, q0) <= k0; q0 += TILE)
                tile_bwd(&hd, &gr, q0, k0);
    }
}

/* -- one query ----------------------------------------------------------------------- */

void K(attention_decode)(float *out, const float *q, const float *keys,
                         const float *values, float *scores, int64_t n_keys,
                         int64_t stride, int64_t A, int64_t D)
{
    float scale = 1.0F / sqrtf((float)D);
#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < A; h++) {
        float *p = scores + h * n_keys;
        for (int64_t i = 0; i < n_keys; i++)
            p[i] = lanes_dot(q + h * D, keys + i * stride + h * D, D);
        float top = row_max(p, n_keys, p[0]) * scale;
        float inverse = 1.0F / row_exp(p, n_keys, scale, top);
        float *out_h = out + h * D;
        memset(out_h, 0, (size_t)D * sizeof *out_h);
        for (int64_t i = 0; i < n_keys; i++) {
            const float *v = values + i * stride + h * D;
            for (int64_t d = 0; d < D; d++)
                out_h[d] += p[i] * inverse * v[d];
        }
    }
}
