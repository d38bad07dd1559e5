/*
 * kernel_contract - products and attention as docs/architecture.md, Numerics, says them,
 * one element at a time: which numbers are added, in which order, and where they are
 * rounded. Written from that text, not from the kernels; plain and slow.
 *
 * contract_table() is a table of kernels whose GEMMs and attention are these; the rest of
 * it is the reference's.
 */
#ifndef TESTS_KERNEL_CONTRACT_H
#define TESTS_KERNEL_CONTRACT_H

#include "kernel_test.h"

#include <float.h>

#define CONTRACT_BLOCK 256 // of k, in floats
#define CONTRACT_DEPTH 128 // of a head's size, in floats
#define CONTRACT_TILE 128  // of queries and keys
#define CONTRACT_GROUP 32  // of k, in 16 bits
#define CONTRACT_ROWS 16   // of queries: with a group of keys, what is skipped together

/* -- sums ---------------------------------------------------------------------------- */

/* Operand i of a sum of products: elements of a matrix, `step` apart. */
struct operand {
    const void *x;
    enum dtype dtype;
    int64_t first, step;
};

static inline float operand_at(const struct operand *o, int64_t i)
{
    return element(o->x, o->dtype, o->first + i * o->step);
}

/* A chain of n fused multiply-adds in ascending order, from 0. */
static inline float contract_chain(const struct operand *a, const struct operand *b,
                                   int64_t first, int64_t n)
{
    float sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum = fmaf(operand_at(a, i), operand_at(b, i), sum);
    return sum;
}

/* Subnormal numbers count as zero in sums of 16-bit products. */
static inline float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0F, x) : x;
}

/* The same of x * y + c, of which is judged what 24 bits would make of it: the smallest
 * normal number may be what a subnormal one is rounded to. */
static inline float flushed_fused(float x, float y, float c)
{
    float sum = fmaf(x, y, c);
    bool is_small = fabs((double)x * (double)y + (double)c) < 0x1p-126 * (1 - 0x1p-25);
    return is_small ? copysignf(0.0F, sum) : sum;
}

/* c + (e + o) of the products i .. i + n of a group, the others of which are 0. */
static inline float contract_join(float c, const struct operand *a,
                                  const struct operand *b, int64_t first, int64_t n)
{
    float parts[2] = {0, 0};
    for (int64_t i = 0; i < CONTRACT_GROUP; i++) {
        float x = i < n ? flushed(operand_at(a, first + i)) : 0.0F;
        float y = i < n ? flushed(operand_at(b, first + i)) : 0.0F;
        parts[i % 2] = flushed_fused(x, y, parts[i % 2]);
    }
    return flushed(flushed(c) + flushed(parts[0] + parts[1]));
}

/* c, or 0 where has_c is false, and all n products. */
static inline float contract_sum(bool has_c, float c, const struct operand *a,
                                 const struct operand *b, int64_t n)
{
    bool is_f32 = a->dtype == DTYPE_F32;
    int64_t step = is_f32 ? CONTRACT_BLOCK : CONTRACT_GROUP;
    float sum = has_c ? c : 0.0F;
    for (int64_t i = 0; i < n; i += step) {
        int64_t here = i64_min(step, n - i);
        if (!is_f32)
            sum = contract_join(sum, a, b, i, here);
        else if (i == 0 && !has_c)
            sum = contract_chain(a, b, i, here);
        else
            sum = sum + contract_chain(a, b, i, here);
    }
    return sum;
}

static inline float rounded_to(enum dtype dtype, float x)
{
    float stored;
    set_element(&stored, dtype, 0, x);
    return element(&stored, dtype, 0);
}

/* -- products ------------------------------------------------------------------------ */

static inline void contract_gemm(struct stream *s, const struct gemm *g)
{
    (void)s;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            struct operand a = {g->a, DTYPE_F32, i * g->a_row, g->a_col};
            struct operand b = {g->b, DTYPE_F32, j * g->b_col, g->b_row};
            float *c = g->c + i * g->c_row + j * g->c_col;
            *c = contract_sum(g->accumulate, *c, &a, &b, g->k);
        }
}

/* The activation itself is generic's: of what was rounded. */
static inline void contract_linear_fwd(struct stream *s, const struct linear *l)
{
    int64_t I = l->w->cols, O = l->w->rows;
    const struct kernels *generic = all_tables().at[1];
    for (int64_t i = 0; i < l->N * O; i++) {
        struct operand x = {l->x, s->dev->dtype, i / O * I, 1};
        struct operand w = {l->w->data, l->w->dtype, i % O * I, 1};
        float y = contract_sum(false, 0, &x, &w, I);
        if (l->act == ACTIVATION_NONE && l->bias)
            y = y + l->bias[i % O];
        set_element(l->y, l->y_dtype, i, y);
    }
    if (l->act != ACTIVATION_NONE && l->act_y)
        generic->activation_fwd(
            typed_stream_of(generic, s->dev->dtype),
            &(struct activation_fwd){l->act, l->act_y, l->y, l->bias, l->N, O});
}

static inline void contract_linear_bwd_input(struct stream *s,
                                             const struct linear_bwd_input *l)
{
    int64_t I = l->w->cols, O = l->w->rows;
    for (int64_t i = 0; i < l->N * I; i++) {
        struct operand dy = {l->dy, s->dev->dtype, i / I * l->dy_row, 1};
        struct operand w = {l->w->data, l->w->dtype, i % I, I};
        set_element(l->dx, l->dx_dtype, i, contract_sum(false, 0, &dy, &w, O));
    }
}

/* Sums go on from a float, and are added to what is kept in 16 bits. */
static inline void contract_linear_bwd_weight(struct stream *s,
                                              const struct linear_bwd_weight *l)
{
    const struct weight *dw = l->dw;
    int64_t I = dw->cols, O = dw->rows;
    bool goes_on = l->accumulate && dw->dtype == DTYPE_F32;
    for (int64_t i = 0; i < O * I; i++) {
        struct operand dy = {l->dy, s->dev->dtype, i / I, l->dy_row};
        struct operand x = {l->x, s->dev->dtype, i % I, I};
        float before = l->accumulate ? element(dw->data, dw->dtype, i) : 0.0F;
        float sum = contract_sum(goes_on, before, &dy, &x, l->N);
        set_element(dw->data, dw->dtype, i,
                    l->accumulate && !goes_on ? before + sum : sum);
    }
}

/* -- attention ----------------------------------------------------------------------- */

/* exp as the kernels have it, the same numbers on every processor. */
static inline float contract_exp(float x)
{
    float cut = 88.3F < x ? 88.3F : x;
    float n = fmaf(cut, 1.44269504088896341F, 12582912.0F) - 12582912.0F;
    float r = fmaf(n, 2.12194440e-4F, fmaf(-n, 0.693359375F, cut));
    float p = 1.9875691500e-4F;
    p = fmaf(p, r, 1.3981999507e-3F);
    p = fmaf(p, r, 8.3334519073e-3F);
    p = fmaf(p, r, 4.1665795894e-2F);
    p = fmaf(p, r, 1.6666665459e-1F);
    p = fmaf(p, r, 5.0000001201e-1F);
    p = fmaf(p * r, r, r) + 1.0F;
    return x < -87.3F ? 0.0F : p * ldexpf(1.0F, (int)n);
}

/* Sums along a row run over 16 lanes. */
static inline float contract_lanes(const float lane[16])
{
    float s[8];
    for (int i = 0; i < 8; i++)
        s[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        s[i] = s[i] + s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* A head of a sample: where the rows of its matrices are. */
struct contract_head {
    const struct attention *at;
    enum dtype dtype;
    int64_t b, h;
    struct operand q, k, v, out, dout; // `step` from row to row, elements of one 1 apart
    float scale;
};

static inline struct contract_head contract_head(const struct stream *s,
                                                 const struct attention *at,
                                                 const void *dout, int64_t b, int64_t h)
{
    int64_t H = at->A * at->D, S = at->S, kv_head = h / (at->A / at->A_kv);
    int64_t q = b * S * at->q_row + h * at->D;
    int64_t kv = b * S * at->kv_row + kv_head * at->D, out = b * S * H + h * at->D;
    enum dtype t = s->dev->dtype;
    return (struct contract_head){at,
                                  t,
                                  b,
                                  h,
                                  {at->q, t, q, at->q_row},
                                  {at->k, t, kv, at->kv_row},
                                  {at->v, t, kv, at->kv_row},
                                  {at->out, t, out, H},
                                  {dout, t, out, H},
                                  1.0F / sqrtf((float)at->D)};
}

/* Row r of a matrix of rows, as a row of elements; and column c. */
static inline struct operand row_of(const struct operand *m, int64_t r)
{
    return (struct operand){m->x, m->dtype, m->first + r * m->step, 1};
}

static inline struct operand column_of(const struct operand *m, int64_t c, int64_t first)
{
    return (struct operand){m->x, m->dtype, m->first + first * m->step + c, m->step};
}

static inline float contract_dot(const struct operand *x, int64_t i,
                                 const struct operand *y, int64_t j, int64_t D)
{
    struct operand a = row_of(x, i), b = row_of(y, j);
    float sum = 0;
    if (a.dtype != DTYPE_F32)
        return contract_sum(false, 0, &a, &b, D);
    for (int64_t d = 0; d < D; d += CONTRACT_DEPTH) {
        float part = contract_chain(&a, &b, d, i64_min(CONTRACT_DEPTH, D - d));
        sum = d == 0 ? part : sum + part;
    }
    return sum;
}

static inline bool is_seen(const struct contract_head *hd, int64_t q, int64_t k)
{
    const int32_t *first = hd->at->first_key;
    const int32_t *end = hd->at->key_end;
    return q < hd->at->S && k <= q && (!end || k < end[hd->b]) &&
           (!first || k >= first[hd->b * hd->at->S + q]);
}

/* Whether a query of q's block sees a key of k's group: of the tile both are counted. */
static inline bool is_block_seen(const struct contract_head *hd, int64_t q, int64_t k)
{
    int64_t q0 = q / CONTRACT_ROWS * CONTRACT_ROWS,
            k0 = k / CONTRACT_GROUP * CONTRACT_GROUP;
    for (int64_t i = 0; i < CONTRACT_ROWS * CONTRACT_GROUP; i++)
        if (is_seen(hd, q0 + i / CONTRACT_GROUP, k0 + i % CONTRACT_GROUP))
            return true;
    return false;
}

static inline float contract_factor(const struct contract_head *hd, int64_t q, int64_t k)
{
    int64_t row = (hd->at->first_head + hd->h) * hd->at->S + q;
    return dropout_factor(&hd->at->drop, hd->b, row, hd->at->S, k);
}

/* y[d] of a row := what is there and the sum over a tile of weights[i] * x(first + i)[d],
 * weights of T; i counts the tile's keys or queries. In floats nothing is there yet when
 * the tile is the first; `is_used`: groups of 16 bits that count. */
static inline void contract_tile_sum(float *y, bool is_first, const void *weights,
                                     int64_t n, const struct operand *x, int64_t first,
                                     int64_t D, const bool *is_used)
{
    struct operand a = {weights, x->dtype, 0, 1};
    for (int64_t d = 0; d < D; d++) {
        struct operand b = column_of(x, d, first);
        if (x->dtype == DTYPE_F32) {
            float part = contract_chain(&a, &b, 0, n);
            y[d] = is_first ? part : y[d] + part;
            continue;
        }
        for (int64_t i = 0; i < n; i += CONTRACT_GROUP)
            if (is_used[i / CONTRACT_GROUP])
                y[d] = contract_join(y[d], &a, &b, i, i64_min(CONTRACT_GROUP, n - i));
    }
}

/* Where the keys begin of which a query of q's tile sees the first. */
static inline int64_t first_tile_of(const struct contract_head *hd, int64_t q)
{
    int64_t q0 = q / CONTRACT_TILE * CONTRACT_TILE;
    const int32_t *first = hd->at->first_key;
    return first ? first[hd->b * hd->at->S + q0] / CONTRACT_TILE * CONTRACT_TILE : 0;
}

/* What a row of queries has so far. */
struct contract_row {
    float max, sum;
    bool is_started;
    float *out; // (D)
};

/* p[i] of the keys at k0 := their probabilities so far times dropout's factors, in T. */
static inline void contract_softmax(struct contract_row *row, void *p,
                                    const struct contract_head *hd, int64_t q, int64_t k0)
{
    float scores[CONTRACT_TILE], top = -INFINITY, lane[16] = {0};
    int64_t n_keys = i64_min(CONTRACT_TILE, hd->at->S - k0), D = hd->at->D, n = 0;
    for (int64_t i = 0; i < n_keys; i++)
        if (is_seen(hd, q, k0 + i)) {
            scores[i] = contract_dot(&hd->q, q, &hd->k, k0 + i, D);
            top = scores[i] > top ? scores[i] : top;
        }
    top = top * hd->scale;
    float grown = !row->is_started || top > row->max ? top : row->max;
    for (int64_t i = 0; i < n_keys; i++) {
        float e = 0;
        if (is_seen(hd, q, k0 + i)) {
            e = contract_exp(fmaf(scores[i], hd->scale, -grown));
            lane[n++ % 16] += e;
            e = hd->at->drop.threshold > 0 ? e * contract_factor(hd, q, k0 + i) : e;
        }
        set_element(p, hd->dtype, i, e);
    }
    if (row->is_started && grown > row->max) {
        float shrink = contract_exp(row->max - grown);
        for (int64_t d = 0; d < D; d++)
            row->out[d] = row->out[d] * shrink;
        row->sum = row->sum * shrink;
    }
    float sum = contract_lanes(lane);
    row->sum = row->is_started ? row->sum + sum : sum;
    row->max = grown;
    row->is_started = true;
}

static inline void contract_query(const struct contract_head *hd, int64_t q, float *out)
{
    int64_t S = hd->at->S, D = hd->at->D;
    float p[CONTRACT_TILE];
    struct contract_row row = {.out = out};
    floats_set(out, D, 0);
    for (int64_t k0 = 0; k0 <= q; k0 += CONTRACT_TILE) {
        int64_t n_keys = i64_min(CONTRACT_TILE, S - k0);
        bool is_used[CONTRACT_TILE / CONTRACT_GROUP] = {false}, sees_some = false;
        for (int64_t i = 0; i < n_keys; i++) {
            sees_some = sees_some || is_seen(hd, q, k0 + i);
            is_used[i / CONTRACT_GROUP] = is_block_seen(hd, q, k0 + i);
        }
        if (!sees_some)
            continue;
        contract_softmax(&row, p, hd, q, k0);
        contract_tile_sum(out, k0 == first_tile_of(hd, q), p, n_keys, &hd->v, k0, D,
                          is_used);
    }
    float inverse = 1.0F / row.sum;
    for (int64_t d = 0; d < D; d++)
        set_element((void *)(uintptr_t)hd->out.x, hd->dtype,
                    hd->out.first + q * hd->out.step + d, out[d] * inverse);
    // a log to the nearest float; in floats that of the C library, as it always was
    float log_sum = hd->dtype == DTYPE_F32 ? logf(row.sum) : (float)log((double)row.sum);
    hd->at->lse[(hd->b * hd->at->A + hd->h) * S + q] = row.max + log_sum;
}

static inline void contract_attention_fwd(struct stream *s, const struct attention *at)
{
    float *out = words_new(at->D);
    for (int64_t bh = 0; bh < at->B * at->A; bh++) {
        struct contract_head hd = contract_head(s, at, NULL, bh / at->A, bh % at->A);
        for (int64_t q = 0; q < at->S; q++)
            contract_query(&hd, q, out);
    }
    free(out);
}

/* -- attention, backward ------------------------------------------------------------- */

/* The gradients of one head, (S, D) in floats, and its operands of T, (S, S). */
struct contract_grads {
    float *dq, *dk, *dv;
    bool is_new;  // of the heads that share keys the first: dk and dv are not there yet
    void *ds, *p; // row key, column query: what dk and dv sum over lies side by side
};

static inline void contract_pair(struct contract_grads *g, const struct contract_head *hd,
                                 int64_t q, int64_t k, float delta)
{
    const struct attention *at = hd->at;
    float lse = at->lse[(hd->b * at->A + hd->h) * at->S + q], ds = 0, p = 0;
    if (is_seen(hd, q, k)) {
        float score = contract_dot(&hd->q, q, &hd->k, k, at->D);
        float dp = contract_dot(&hd->dout, q, &hd->v, k, at->D);
        float factor = at->drop.threshold > 0 ? contract_factor(hd, q, k) : 1.0F;
        p = contract_exp(fmaf(score, hd->scale, -lse));
        dp = dp * factor;
        ds = p * (dp - delta) * hd->scale;
        p = p * factor;
    }
    set_element(g->ds, hd->dtype, k * at->S + q, ds);
    set_element(g->p, hd->dtype, k * at->S + q, p);
}

static inline float contract_delta(const struct contract_head *hd, int64_t q)
{
    struct operand out = row_of(&hd->out, q), dout = row_of(&hd->dout, q);
    float lane[16] = {0};
    for (int64_t d = 0; d < hd->at->D; d++)
        lane[d % 16] = fmaf(operand_at(&out, d), operand_at(&dout, d), lane[d % 16]);
    return contract_lanes(lane);
}

/* Key k's gradients, from the tiles of queries that see it, in ascending order. */
static inline void contract_key(struct contract_grads *g, const struct contract_head *hd,
                                int64_t k)
{
    int64_t S = hd->at->S, D = hd->at->D;
    for (int64_t q0 = k / CONTRACT_TILE * CONTRACT_TILE; q0 < S; q0 += CONTRACT_TILE) {
        int64_t n = i64_min(CONTRACT_TILE, S - q0);
        bool is_used[CONTRACT_TILE / CONTRACT_GROUP] = {false}, is_any = false;
        for (int64_t i = 0; i < n; i++) {
            bool used = is_block_seen(hd, q0 + i, k);
            is_used[i / CONTRACT_GROUP] = is_used[i / CONTRACT_GROUP] || used;
            is_any = is_any || used;
        }
        if (!is_any)
            continue;
        bool is_first = g->is_new && q0 <= k;
        contract_tile_sum(g->dv + k * D, is_first,
                          element_at(g->p, hd->dtype, k * S + q0), n, &hd->dout, q0, D,
                          is_used);
        contract_tile_sum(g->dk + k * D, is_first,
                          element_at(g->ds, hd->dtype, k * S + q0), n, &hd->q, q0, D,
                          is_used);
    }
}

static inline void contract_query_bwd(struct contract_grads *g,
                                      const struct contract_head *hd, int64_t q)
{
    int64_t S = hd->at->S, D = hd->at->D;
    float ds[CONTRACT_TILE];
    for (int64_t k0 = 0; k0 <= q; k0 += CONTRACT_TILE) {
        int64_t n = i64_min(CONTRACT_TILE, S - k0);
        bool is_used[CONTRACT_TILE / CONTRACT_GROUP] = {false}, is_any = false;
        for (int64_t i = 0; i < n; i++) {
            is_used[i / CONTRACT_GROUP] = is_block_seen(hd, q, k0 + i);
            is_any = is_any || is_used[i / CONTRACT_GROUP];
            set_element(ds, hd->dtype, i, element(g->ds, hd->dtype, (k0 + i) * S + q));
        }
        if (is_any)
            contract_tile_sum(g->dq + q * D, k0 == first_tile_of(hd, q), ds, n, &hd->k,
                              k0, D, is_used);
    }
}

/* The head h of q; dk and dv go on from those of the head before that shares them. */
static inline void contract_head_bwd(struct contract_grads *g,
                                     const struct contract_head *hd)
{
    int64_t S = hd->at->S, D = hd->at->D;
    floats_set(g->dq, S * D, 0);
    for (int64_t q = 0; q < S; q++) {
        float delta = contract_delta(hd, q);
        for (int64_t k = 0; k < S; k++)
            contract_pair(g, hd, q, k, delta);
    }
    for (int64_t i = 0; i < S; i++) {
        contract_key(g, hd, i);
        contract_query_bwd(g, hd, i);
    }
}

static inline void contract_round(void *to, const struct operand *like, const float *x,
                                  int64_t S, int64_t D)
{
    for (int64_t i = 0; i < S * D; i++)
        set_element(to, like->dtype, like->first + i / D * like->step + i % D, x[i]);
}

static inline void contract_attention_bwd(struct stream *s,
                                          const struct attention_bwd *at)
{
    const struct attention *fwd = &at->fwd;
    int64_t S = fwd->S, D = fwd->D, shared = fwd->A / fwd->A_kv;
    struct contract_grads g = {.dq = words_new(S * D),
                               .dk = words_new(S * D),
                               .dv = words_new(S * D),
                               .ds = words_new(S * S),
                               .p = words_new(S * S)};
    for (int64_t bh = 0; bh < fwd->B * fwd->A; bh++) {
        int64_t b = bh / fwd->A, h = bh % fwd->A;
        struct contract_head hd = contract_head(s, fwd, at->dout, b, h);
        g.is_new = h % shared == 0;
        if (g.is_new) {
            floats_set(g.dk, S * D, 0);
            floats_set(g.dv, S * D, 0);
        }
        contract_head_bwd(&g, &hd);
        contract_round(at->dq, &hd.q, g.dq, S, D);
        if (h % shared == shared - 1) {
            contract_round(at->dk, &hd.k, g.dk, S, D);
            contract_round(at->dv, &hd.v, g.dv, S, D);
        }
    }
    void *all[] = {g.dq, g.dk, g.dv, g.ds, g.p};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static inline const struct kernels *contract_table(void)
{
    static struct kernels table;
    table = *all_tables().at[0];
    table.name = "contract";
    table.gemm = contract_gemm;
    table.linear_fwd = contract_linear_fwd;
    table.linear_bwd_input = contract_linear_bwd_input;
    table.linear_bwd_weight = contract_linear_bwd_weight;
    table.attention_fwd = contract_attention_fwd;
    table.attention_bwd = contract_attention_bwd;
    return &table;
}

#endif
