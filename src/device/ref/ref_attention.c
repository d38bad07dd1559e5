/*
 * Causal attention from its definition, one (query, key) pair at a time.
 *
 *   score = q . k / sqrt(D)        p = exp(score - lse)        out = sum_k f p v
 *   dp = f (dout . v)              ds = p (dp - delta)         delta = dout . out
 *   dv = sum_q f p dout            dq = sum_k ds k / sqrt(D)   dk = sum_q ds q / sqrt(D)
 *
 * f is the dropout factor of the pair. Scores are computed again wherever they are
 * needed, so that no row of them is ever held; sums of vectors over the pairs are taken
 * SUM_COLUMNS columns at a time to stay in double on the stack. Backward takes lse as
 * forward stored it, in float.
 */
#include "device/device.h"
#include "device/ref/ref.h"

#include <math.h>

#define SUM_COLUMNS 128

/* One head of one sample; rows of q are q_row apart, those of k and v kv_row, those of
 * gradients by members of their own, those of out and dout `out_stride`. The d-members
 * are NULL in forward. */
struct head {
    const struct attention *at;
    int64_t b, h, S, D, q_row, kv_row, dq_row, dkv_row, out_stride;
    double scale;
    const float *q, *k, *v, *dout;
    float *out, *lse, *dq, *dk, *dv, *delta;
};

static struct head head_at(const struct attention *at, int64_t b, int64_t h)
{
    int64_t H = at->A * at->D, kv_head = h / (at->A / at->A_kv);
    int64_t kv = b * at->S * at->kv_row + kv_head * at->D;
    return (struct head){
        .at = at,
        .b = b,
        .h = h,
        .S = at->S,
        .D = at->D,
        .q_row = at->q_row,
        .kv_row = at->kv_row,
        .out_stride = H,
        .scale = 1.0 / sqrt((double)at->D),
        .q = (const float *)at->q + b * at->S * at->q_row + h * at->D,
        .k = (const float *)at->k + kv,
        .v = (const float *)at->v + kv,
        .out = (float *)at->out + b * at->S * H + h * at->D,
        .lse = at->lse + (b * at->A + h) * at->S,
    };
}

/* What backward works on: the call's forward, or one sample of it, widened; and where the
 * gradients go. */
struct bwd {
    struct attention fwd;
    const float *dout;
    float *dq, *dk, *dv, *delta;
    int64_t dq_row, dkv_row;
};

static struct head head_bwd_at(const struct bwd *at, int64_t b, int64_t h)
{
    const struct attention *fwd = &at->fwd;
    struct head hd = head_at(fwd, b, h);
    int64_t kv = b * fwd->S * at->dkv_row + h / (fwd->A / fwd->A_kv) * fwd->D;
    hd.dq = at->dq + b * fwd->S * at->dq_row + h * fwd->D;
    hd.dk = at->dk + kv;
    hd.dv = at->dv + kv;
    hd.dq_row = at->dq_row;
    hd.dkv_row = at->dkv_row;
    hd.dout = at->dout + (hd.out - (float *)fwd->out);
    hd.delta = at->delta + (hd.lse - fwd->lse);
    return hd;
}

static double dot(const float *x, const float *y, int64_t D)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += (double)x[d] * (double)y[d];
    return sum;
}

static double score(const struct head *hd, int64_t q, int64_t k)
{
    return hd->scale * dot(hd->q + q * hd->q_row, hd->k + k * hd->kv_row, hd->D);
}

static double factor(const struct head *hd, int64_t q, int64_t k)
{
    int64_t row = (hd->at->first_head + hd->h) * hd->S + q;
    return (double)dropout_factor(&hd->at->drop, hd->b, row, hd->S, k);
}

/* The first key that query q sees. */
static int64_t first_key(const struct head *hd, int64_t q)
{
    return hd->at->first_key ? hd->at->first_key[hd->b * hd->S + q] : 0;
}

/* -- forward ------------------------------------------------------------------------- */

static double row_lse(const struct head *hd, int64_t q)
{
    int64_t first = first_key(hd, q);
    double max = score(hd, q, first), sum = 0;
    for (int64_t k = first + 1; k <= q; k++)
        max = fmax(max, score(hd, q, k));
    for (int64_t k = first; k <= q; k++)
        sum += exp(score(hd, q, k) - max);
    return max + log(sum);
}

/* Columns first .. first + n of row q of out. */
static void out_columns(const struct head *hd, int64_t q, double lse, int64_t first,
                        int64_t n)
{
    double sum[SUM_COLUMNS] = {0};
    for (int64_t k = first_key(hd, q); k <= q; k++) {
        double p = factor(hd, q, k) * exp(score(hd, q, k) - lse);
        for (int64_t d = 0; d < n; d++)
            sum[d] += p * (double)hd->v[k * hd->kv_row + first + d];
    }
    for (int64_t d = 0; d < n; d++)
        hd->out[q * hd->out_stride + first + d] = (float)sum[d];
}

void ref_attention_fwd(struct stream *s, const struct attention *at)
{
    for (int64_t bh = 0; bh < at->B * at->A; bh++) {
        struct head hd = head_at(at, bh / at->A, bh % at->A);
        for (int64_t q = 0; q < at->S; q++) {
            double lse = row_lse(&hd, q);
            hd.lse[q] = (float)lse;
            for (int64_t d = 0; d < at->D; d += SUM_COLUMNS)
                out_columns(&hd, q, lse, d, i64_min(SUM_COLUMNS, at->D - d));
        }
    }
}

/* -- backward ------------------------------------------------------------------------ */

/* ds of the pair; *dropped_p = f p. */
static double dscore(const struct head *hd, int64_t q, int64_t k, double *dropped_p)
{
    double p = exp(score(hd, q, k) - (double)hd->lse[q]);
    double f = factor(hd, q, k);
    double dp = f * dot(hd->dout + q * hd->out_stride, hd->v + k * hd->kv_row, hd->D);
    *dropped_p = f * p;
    return p * (dp - (double)hd->delta[q]);
}

static void dq_columns(const struct head *hd, int64_t q, int64_t first, int64_t n)
{
    double sum[SUM_COLUMNS] = {0};
    for (int64_t k = first_key(hd, q); k <= q; k++) {
        double dropped_p;
        double ds = hd->scale * dscore(hd, q, k, &dropped_p);
        for (int64_t d = 0; d < n; d++)
            sum[d] += ds * (double)hd->k[k * hd->kv_row + first + d];
    }
    for (int64_t d = 0; d < n; d++)
        hd->dq[q * hd->dq_row + first + d] = (float)sum[d];
}

/* Over all heads of q that use the keys and values of head `hd`, the first of them. */
static void dkv_columns(const struct bwd *at, const struct head *hd, int64_t k,
                        int64_t first, int64_t n)
{
    double sum_k[SUM_COLUMNS] = {0}, sum_v[SUM_COLUMNS] = {0};
    for (int64_t i = 0; i < at->fwd.A / at->fwd.A_kv; i++) {
        struct head of_q = head_bwd_at(at, hd->b, hd->h + i);
        for (int64_t q = k; q < hd->S && first_key(hd, q) <= k; q++) {
            double dropped_p, ds = of_q.scale * dscore(&of_q, q, k, &dropped_p);
            const float *dout = of_q.dout + q * of_q.out_stride;
            for (int64_t d = 0; d < n; d++) {
                sum_k[d] += ds * (double)of_q.q[q * of_q.q_row + first + d];
                sum_v[d] += dropped_p * (double)dout[first + d];
            }
        }
    }
    for (int64_t d = 0; d < n; d++) {
        hd->dk[k * hd->dkv_row + first + d] = (float)sum_k[d];
        hd->dv[k * hd->dkv_row + first + d] = (float)sum_v[d];
    }
}

static void attention_bwd(const struct bwd *at)
{
    const struct attention *fwd = &at->fwd;
    int64_t shared = fwd->A / fwd->A_kv;
    for (int64_t bh = 0; bh < fwd->B * fwd->A; bh++) {
        struct head hd = head_bwd_at(at, bh / fwd->A, bh % fwd->A);
        for (int64_t q = 0; q < fwd->S; q++)
            hd.delta[q] = (float)dot(hd.dout + q * hd.out_stride,
                                     hd.out + q * hd.out_stride, fwd->D);
    }
    for (int64_t bh = 0; bh < fwd->B * fwd->A; bh++) {
        struct head hd = head_bwd_at(at, bh / fwd->A, bh % fwd->A);
        for (int64_t t = 0; t < fwd->S; t++) {
            for (int64_t d = 0; d < fwd->D; d += SUM_COLUMNS) {
                int64_t n = i64_min(SUM_COLUMNS, fwd->D - d);
                dq_columns(&hd, t, d, n);
                if (hd.h % shared == 0)
                    dkv_columns(at, &hd, t, d, n);
            }
        }
    }
}

/* Sample b alone, what is stashed of it widened into scratch. */
static struct bwd widened_sample(struct stream *s, const struct attention_bwd *at,
                                 int64_t b)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, q = fwd->A * fwd->D, kv = fwd->A_kv * fwd->D, first = b * S;
    float *q_to = at->scratch, *k_to = q_to + S * q, *v_to = k_to + S * kv;
    float *out_to = v_to + S * kv;
    enum dtype dtype = s->dev->dtype;
    ref_load_matrix(s, q_to, (const uint16_t *)fwd->q + first * fwd->q_row, dtype, S, q,
                    fwd->q_row);
    ref_load_matrix(s, k_to, (const uint16_t *)fwd->k + first * fwd->kv_row, dtype, S, kv,
                    fwd->kv_row);
    ref_load_matrix(s, v_to, (const uint16_t *)fwd->v + first * fwd->kv_row, dtype, S, kv,
                    fwd->kv_row);
    ref_load(s, out_to, (const uint16_t *)fwd->out + first * q, dtype, S * q);
    struct bwd one = {.fwd = *fwd,
                      .dout = at->dout + first * q,
                      .dq = at->dq + first * fwd->q_row,
                      .dk = at->dk + first * fwd->kv_row,
                      .dv = at->dv + first * fwd->kv_row,
                      .delta = at->delta,
                      .dq_row = fwd->q_row,
                      .dkv_row = fwd->kv_row};
    one.fwd.B = 1;
    one.fwd.q = q_to;
    one.fwd.k = k_to;
    one.fwd.v = v_to;
    one.fwd.out = out_to;
    one.fwd.q_row = q;
    one.fwd.kv_row = kv;
    one.fwd.lse = fwd->lse + first * fwd->A;
    one.fwd.first_key = fwd->first_key ? fwd->first_key + first : NULL;
    one.fwd.drop.first_sample += (uint32_t)b;
    return one;
}

void ref_attention_bwd(struct stream *s, const struct attention_bwd *at)
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

/* -- decode -------------------------------------------------------------------------- */

/* scores := softmax of the scores of one query, in float: the scratch is the caller's. */
static void decode_probabilities(float *scores, const float *q, const float *keys,
                                 int64_t n_keys, int64_t stride, int64_t D)
{
    double scale = 1.0 / sqrt((double)D);
    double max = scale * dot(q, keys, D), sum = 0;
    for (int64_t k = 1; k < n_keys; k++)
        max = fmax(max, scale * dot(q, keys + k * stride, D));
    for (int64_t k = 0; k < n_keys; k++)
        sum += exp(scale * dot(q, keys + k * stride, D) - max);
    for (int64_t k = 0; k < n_keys; k++)
        scores[k] = (float)(exp(scale * dot(q, keys + k * stride, D) - max) / sum);
}

void ref_attention_decode(struct stream *s, const struct attention_decode *at)
{
    int64_t D = at->D, n_keys = at->n_keys;
    for (int64_t h = 0; h < at->A; h++) {
        int64_t kv = h / (at->A / at->A_kv) * D;
        float *p = at->scores + h * n_keys;
        decode_probabilities(p, at->q + h * D, at->keys + kv, n_keys, at->kv_row, D);
        for (int64_t d = 0; d < D; d++) {
            double sum = 0;
            for (int64_t k = 0; k < n_keys; k++)
                sum += (double)p[k] * (double)at->values[k * at->kv_row + kv + d];
            at->out[h * D + d] = (float)sum;
        }
    }
}
