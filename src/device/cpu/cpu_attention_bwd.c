/*
 * Causal attention, backward: the scores are computed again and become probabilities with
 * the row's saved log-sum-exp.
 *
 * A thread takes one head of keys and values of one sample, and the heads of queries that
 * share it. It walks the tiles of keys in ascending order and for each of them heads, and
 * tiles of queries, in ascending order; so the bits depend on the sample alone. The
 * gradients of a tile of keys and values stay in its own memory until they are whole.
 *
 * Cost per tile: 5 matrix products of TILE x TILE x D.
 */
#include "device/cpu/cpu_attention.h"
#include "device/device.h"

/* What backward works on: the call's forward, or one sample of it, widened; and where the
 * gradients go. */
struct bwd {
    struct attention fwd;
    const float *dout;
    float *dq, *dk, *dv, *delta;
    int64_t dq_row, dkv_row;
};

/* One head of queries: its rows of what backward reads and writes. */
struct head_grad {
    struct head hd;
    const float *dout; // (S, D) with out_row
    int64_t out_row;
    float *dq;
    int64_t dq_row;
    const float *lse, *delta; // (S)
};

static struct head_grad head_grad_of(const struct bwd *at, int64_t b, int64_t h)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, A = fwd->A, D = fwd->D, bh = b * A + h;
    return (struct head_grad){.hd = head_of(fwd, b, h),
                              .dout = at->dout + (b * S * A + h) * D,
                              .out_row = A * D,
                              .dq = at->dq + b * S * at->dq_row + h * D,
                              .dq_row = at->dq_row,
                              .lse = fwd->lse + bh * S,
                              .delta = at->delta + bh * S};
}

/* -- rows of a tile ------------------------------------------------------------------ */

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
static void tile_grads(float *p, float *dp, const struct head_grad *gr,
                       const struct tile *t)
{
    const struct head *hd = &gr->hd;
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

/* -- tiles --------------------------------------------------------------------------- */

/* What a thread works with. */
struct bwd_work {
    struct pack keys, values;             // transposed, for the scores and their gradient
    struct pack keys_rows, queries, dout; // for the gradients of q, k, v, and the scores
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) float dp[TILE * P_ROW];
    _Alignas(64) float dk[TILE * DEPTH]; // of the tile of keys
    _Alignas(64) float dv[TILE * DEPTH];
};

/* Columns [first, first + n) of the gradients. `adds`: dk and dv have begun. */
static void tile_bwd(const struct head_grad *gr, struct bwd_work *w, int64_t q0,
                     int64_t k0, int64_t first, bool adds)
{
    int64_t n = i64_min(DEPTH, gr->hd.D - first);
    struct output y = {.row = i64_round_up(n, PANEL),
                       .first = first,
                       .n = n,
                       .accumulate = adds,
                       .is_whole = true};
    struct tile t;

    tile_init(&t, &gr->hd, q0, k0);
    K(tile_scores)(w->p, &t, &w->queries, &w->keys);
    K(tile_scores)(w->dp, &t, &w->dout, &w->values);
    tile_grads(w->p, w->dp, gr, &t);
    y.y = w->dv;
    K(sum_over_queries)(&y, w->p, &t, &w->dout);
    y.y = w->dk;
    K(sum_over_queries)(&y, w->dp, &t, &w->queries);
    y = (struct output){.y = gr->dq + q0 * gr->dq_row + first,
                        .row = gr->dq_row,
                        .first = first,
                        .n = n,
                        .accumulate = k0 > first_tile(&gr->hd, q0)};
    K(sum_over_keys)(&y, w->dp, &t, &w->keys_rows);
}

/* The rows of a tile's gradient, columns [first, first + n), to where they belong. */
static void tile_store(float *to, int64_t row, const float *from, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * row, from + r * i64_round_up(n, PANEL), (size_t)n * sizeof *to);
}

/* The keys at k0, and the heads h_first .. h_end of queries that see them. */
static void key_tile_bwd(const struct bwd *at, int64_t b, int64_t h_first, int64_t h_end,
                         int64_t k0, int64_t first, struct bwd_work *w)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, D = fwd->D, n = i64_min(DEPTH, D - first);
    int64_t kv = (b * S + k0) * at->dkv_row + kv_head(fwd, h_first) * D + first;
    for (int64_t h = h_first; h < h_end; h++) {
        struct head_grad gr = head_grad_of(at, b, h);
        pack_init(&w->queries, &gr.hd, gr.hd.q, gr.hd.q_row, false);
        pack_init(&w->dout, &gr.hd, gr.dout, gr.out_row, false);
        // a tile of keys is first seen by the queries on the diagonal
        for (int64_t q0 = k0; q0 < S && first_tile(&gr.hd, q0) <= k0; q0 += TILE)
            tile_bwd(&gr, w, q0, k0, first, q0 > k0 || h > h_first);
    }
    tile_store(at->dk + kv, at->dkv_row, w->dk, i64_min(TILE, S - k0), n);
    tile_store(at->dv + kv, at->dkv_row, w->dv, i64_min(TILE, S - k0), n);
}

/* Head `kv` of keys and values of sample b. The scores of a head that has more than DEPTH
 * columns are computed for each part of them. */
static void kv_head_bwd(const struct bwd *at, int64_t b, int64_t kv, struct bwd_work *w)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, shared = fwd->A / fwd->A_kv, h_first = kv * shared;
    struct head hd = head_of(fwd, b, h_first);
    pack_init(&w->keys, &hd, hd.k, hd.kv_row, true);
    pack_init(&w->values, &hd, hd.v, hd.kv_row, true);
    pack_init(&w->keys_rows, &hd, hd.k, hd.kv_row, false);
    for (int64_t h = h_first; h < h_first + shared; h++) {
        int64_t out_at = (b * S * fwd->A + h) * fwd->D;
        head_delta(at->delta + (b * fwd->A + h) * S, (const float *)fwd->out + out_at,
                   at->dout + out_at, fwd->A * fwd->D, S, fwd->D);
    }
    for (int64_t first = 0; first < fwd->D; first += DEPTH)
        for (int64_t k0 = 0; k0 < S; k0 += TILE)
            key_tile_bwd(at, b, h_first, h_first + shared, k0, first, w);
}

static void attention_bwd(const struct bwd *at)
{
    int64_t A_kv = at->fwd.A_kv;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < at->fwd.B * A_kv; i++) {
        struct bwd_work w;
        kv_head_bwd(at, i / A_kv, i % A_kv, &w);
    }
}

/* -- what is stashed ----------------------------------------------------------------- */

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
