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
 *
 * With a type of 16 bits f p and ds / sqrt(D) are rounded, as operands of a product are:
 * forward's p with the largest score up to the end of its tile of keys in the place of
 * lse, which is not known yet.
 */
#include "device/ref/ref.h"

#include <math.h>

#define SUM_COLUMNS 128
#define TILE 128 // keys that share a maximum, counted from the sample's key 0

/* Rows of one head in a tensor of the device's type: row r, column c is the element
 * first + r * row + c. */
struct rows {
    const struct stream *s;
    void *x;
    int64_t first, row;
};

static double get(const struct rows *m, int64_t r, int64_t c)
{
    return ref_get(m->s, m->x, m->first + r * m->row + c);
}

static void set(const struct rows *m, int64_t r, int64_t c, double value)
{
    ref_set(m->s, m->x, m->first + r * m->row + c, value);
}

/* One head of one sample. The d-members are not there in forward. */
struct head {
    const struct stream *s;
    const struct attention *at;
    int64_t b, h, S, D;
    double scale;
    struct rows q, k, v, out, dq, dk, dv, dout;
    float *lse, *delta;
};

static struct head head_at(const struct stream *s, const struct attention *at, int64_t b,
                           int64_t h)
{
    int64_t H = at->A * at->D, kv_head = h / (at->A / at->A_kv);
    int64_t kv = b * at->S * at->kv_row + kv_head * at->D;
    struct rows of_q = {s, NULL, b * at->S * at->q_row + h * at->D, at->q_row};
    struct rows of_kv = {s, NULL, kv, at->kv_row};
    struct head hd = {
        .s = s,
        .at = at,
        .b = b,
        .h = h,
        .S = at->S,
        .D = at->D,
        .scale = 1.0 / sqrt((double)at->D),
        .q = of_q,
        .k = of_kv,
        .v = of_kv,
        .out = {s, at->out, b * at->S * H + h * at->D, H},
        .lse = at->lse + (b * at->A + h) * at->S,
    };
    hd.q.x = (void *)(uintptr_t)at->q; // only read
    hd.k.x = (void *)(uintptr_t)at->k;
    hd.v.x = (void *)(uintptr_t)at->v;
    return hd;
}

static struct head head_bwd_at(const struct stream *s, const struct attention_bwd *at,
                               int64_t b, int64_t h)
{
    struct head hd = head_at(s, &at->fwd, b, h);
    hd.dq = hd.q;
    hd.dq.x = at->dq;
    hd.dk = hd.dv = hd.k;
    hd.dk.x = at->dk;
    hd.dv.x = at->dv;
    hd.dout = hd.out;
    hd.dout.x = (void *)(uintptr_t)at->dout;
    hd.delta = at->delta + (hd.lse - at->fwd.lse);
    return hd;
}

/* Row i of x times row j of y. */
static double dot(const struct rows *x, int64_t i, const struct rows *y, int64_t j,
                  int64_t D)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += get(x, i, d) * get(y, j, d);
    return sum;
}

static double score(const struct head *hd, int64_t q, int64_t k)
{
    return hd->scale * dot(&hd->q, q, &hd->k, k, hd->D);
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

/* The first key after those that query q sees. */
static int64_t key_end(const struct head *hd, int64_t q)
{
    return hd->at->key_end ? i64_min(q + 1, hd->at->key_end[hd->b]) : q + 1;
}

/* -- forward ------------------------------------------------------------------------- */

/* Columns first .. first + n of row q of out, and its lse. */
static void out_columns(const struct head *hd, int64_t q, int64_t first, int64_t n)
{
    double max = -HUGE_VAL, total = 0, sum[SUM_COLUMNS] = {0};
    for (int64_t k0 = first_key(hd, q); k0 < key_end(hd, q);
         k0 = (k0 / TILE + 1) * TILE) {
        int64_t end = i64_min((k0 / TILE + 1) * TILE, key_end(hd, q));
        double top = max;
        for (int64_t k = k0; k < end; k++)
            top = fmax(top, score(hd, q, k));
        double shrink = exp(max - top);
        total *= shrink;
        for (int64_t d = 0; d < n; d++)
            sum[d] *= shrink;
        for (int64_t k = k0; k < end; k++) {
            double p = exp(score(hd, q, k) - top);
            double operand = ref_rounded(hd->s, p * factor(hd, q, k));
            total += p;
            for (int64_t d = 0; d < n; d++)
                sum[d] += operand * get(&hd->v, k, first + d);
        }
        max = top;
    }
    hd->lse[q] = (float)(max + log(total));
    for (int64_t d = 0; d < n; d++)
        set(&hd->out, q, first + d, sum[d] / total);
}

void ref_attention_fwd(struct stream *s, const struct attention *at)
{
    for (int64_t bh = 0; bh < at->B * at->A; bh++) {
        struct head hd = head_at(s, at, bh / at->A, bh % at->A);
        for (int64_t q = 0; q < at->S; q++)
            for (int64_t d = 0; d < at->D; d += SUM_COLUMNS)
                out_columns(&hd, q, d, i64_min(SUM_COLUMNS, at->D - d));
    }
}

/* -- backward ------------------------------------------------------------------------ */

/* scale * ds of the pair; *dropped_p = f p. */
static double dscore(const struct head *hd, int64_t q, int64_t k, double *dropped_p)
{
    double p = exp(score(hd, q, k) - (double)hd->lse[q]);
    double f = factor(hd, q, k);
    double dp = f * dot(&hd->dout, q, &hd->v, k, hd->D);
    *dropped_p = ref_rounded(hd->s, f * p);
    return ref_rounded(hd->s, p * (dp - (double)hd->delta[q]) * hd->scale);
}

static void dq_columns(const struct head *hd, int64_t q, int64_t first, int64_t n)
{
    double sum[SUM_COLUMNS] = {0};
    for (int64_t k = first_key(hd, q); k < key_end(hd, q); k++) {
        double dropped_p, ds = dscore(hd, q, k, &dropped_p);
        for (int64_t d = 0; d < n; d++)
            sum[d] += ds * get(&hd->k, k, first + d);
    }
    for (int64_t d = 0; d < n; d++)
        set(&hd->dq, q, first + d, sum[d]);
}

/* Over all heads of q that use the keys and values of head `hd`, the first of them. */
static void dkv_columns(const struct attention_bwd *at, const struct head *hd, int64_t k,
                        int64_t first, int64_t n)
{
    double sum_k[SUM_COLUMNS] = {0}, sum_v[SUM_COLUMNS] = {0};
    for (int64_t i = 0; i < at->fwd.A / at->fwd.A_kv; i++) {
        struct head of_q = head_bwd_at(hd->s, at, hd->b, hd->h + i);
        for (int64_t q = k; q < hd->S && first_key(hd, q) <= k; q++) {
            if (k >= key_end(hd, q))
                continue;
            double dropped_p, ds = dscore(&of_q, q, k, &dropped_p);
            for (int64_t d = 0; d < n; d++) {
                sum_k[d] += ds * get(&of_q.q, q, first + d);
                sum_v[d] += dropped_p * get(&of_q.dout, q, first + d);
            }
        }
    }
    for (int64_t d = 0; d < n; d++) {
        set(&hd->dk, k, first + d, sum_k[d]);
        set(&hd->dv, k, first + d, sum_v[d]);
    }
}

void ref_attention_bwd(struct stream *s, const struct attention_bwd *at)
{
    const struct attention *fwd = &at->fwd;
    int64_t shared = fwd->A / fwd->A_kv;
    for (int64_t bh = 0; bh < fwd->B * fwd->A; bh++) {
        struct head hd = head_bwd_at(s, at, bh / fwd->A, bh % fwd->A);
        for (int64_t q = 0; q < fwd->S; q++)
            hd.delta[q] = (float)dot(&hd.dout, q, &hd.out, q, fwd->D);
    }
    for (int64_t bh = 0; bh < fwd->B * fwd->A; bh++) {
        struct head hd = head_bwd_at(s, at, bh / fwd->A, bh % fwd->A);
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

/* -- decode -------------------------------------------------------------------------- */

/* p := exp of the scaled scores of one query less their largest; returns their sum, as
 * they are before they are operands. */
static double decode_exp(float *p, const struct rows *q, const struct rows *keys,
                         int64_t n_keys, int64_t D)
{
    double scale = 1.0 / sqrt((double)D), sum = 0;
    double max = scale * dot(q, 0, keys, 0, D);
    for (int64_t k = 1; k < n_keys; k++)
        max = fmax(max, scale * dot(q, 0, keys, k, D));
    for (int64_t k = 0; k < n_keys; k++) {
        double e = exp(scale * dot(q, 0, keys, k, D) - max);
        p[k] = (float)ref_rounded(q->s, e);
        sum += e;
    }
    return sum;
}

void ref_attention_decode(struct stream *s, const struct attention_decode *at)
{
    int64_t D = at->D, n_keys = at->n_keys;
    for (int64_t h = 0; h < at->A; h++) {
        int64_t kv = h / (at->A / at->A_kv) * D;
        float *p = at->scores + h * n_keys;
        struct rows q = {s, (void *)(uintptr_t)at->q, h * D, 0};
        struct rows keys = {s, (void *)(uintptr_t)at->keys, kv, at->kv_row};
        struct rows values = {s, (void *)(uintptr_t)at->values, kv, at->kv_row};
        double total = decode_exp(p, &q, &keys, n_keys, D);
        for (int64_t d = 0; d < D; d++) {
            double sum = 0;
            for (int64_t k = 0; k < n_keys; k++)
                sum += (double)p[k] * get(&values, k, d);
            ref_set(s, at->out, h * D + d, sum / total);
        }
    }
}
