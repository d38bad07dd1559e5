/*
 * One transformer block, forward and backward, in the order of the formulas in gpt.h.
 *
 * Tensor parallelism splits qkv and the first matrix of the MLP by rows (heads, inner
 * units), the other two by columns; what those two give is a partial sum, and so is the
 * gradient of the inputs of the first two. Hence two sums over the group forward and two
 * backward, (N, H) each.
 *
 * Cost for N tokens: 4 products forward, 8 backward, and attention. The element-wise
 * passes between them touch memory once each. Computing a whole block again costs three
 * of the four products: the last one's result is the next block's input, which is kept.
 */
#include "model/gpt_internal.h"

static struct dropout block_dropout(const struct gpt *g, const struct gpt_batch *batch,
                                    double rate, enum philox_use use, int64_t block)
{
    if (!batch->is_training)
        return dropout_none();
    return dropout_init(rate, g->seed, use, (int)block + 1, batch->step,
                        batch->first_sample);
}

/* -- what backward needs ------------------------------------------------------------- */

float *gpt_work(const struct gpt *g, void *kept, float *scratch)
{
    return g->dtype == DTYPE_F32 ? kept : scratch;
}

void gpt_keep(const struct gpt *g, void *kept, float *x, int64_t n)
{
    if (g->dtype != DTYPE_F32)
        g->k->store_rounded(g->s, kept, x, g->dtype, n);
}

const float *gpt_recall(const struct gpt *g, const void *kept, float *scratch, int64_t n)
{
    if (g->dtype == DTYPE_F32)
        return kept;
    g->k->load(g->s, scratch, kept, g->dtype, n);
    return scratch;
}

const void *gpt_kept_at(const struct gpt *g, const void *kept, int64_t n)
{
    return (const char *)kept + n * (int64_t)dtype_bytes(g->dtype);
}

bool gpt_adds_grads(const struct gpt *g, const struct gpt_batch *batch)
{
    return batch->accumulate && !g->params.owner.takes_grads;
}

bool gpt_completes_grads(const struct gpt *g, const struct gpt_batch *batch)
{
    return batch->is_last || g->params.owner.takes_grads;
}

/* -- forward ------------------------------------------------------------------------- */

/* Of samples [first, first + B) of the batch. */
static struct attention attention_of(const struct gpt *g, int64_t block,
                                     const struct gpt_batch *batch, int64_t first,
                                     int64_t B)
{
    struct attention at = {
        .B = B,
        .S = batch->S,
        .A = g->dims.A,
        .A_kv = g->dims.A,
        .D = g->dims.D,
        .q_row = 3 * g->dims.A * g->dims.D,
        .kv_row = 3 * g->dims.A * g->dims.D,
        .first_key =
            batch->document_start ? batch->document_start + first * batch->S : NULL,
        .first_head = g->dims.A_first,
        .drop =
            block_dropout(g, batch, g->attention_dropout, PHILOX_DROP_ATTENTION, block),
    };
    at.drop.first_sample += (uint32_t)first;
    return at;
}

/* q, k and v in one buffer (N, 3, A, D). */
static void set_qkv(struct attention *at, const float *qkv)
{
    at->q = qkv;
    at->k = qkv + at->A * at->D;
    at->v = qkv + 2 * at->A * at->D;
}

/* qkv := the norm of x times its matrix, bias added. */
static float *make_qkv(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                       struct block_stash *st, const float *x)
{
    const struct weight *p = gpt_block_params(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, AD3 = 3 * g->dims.A * g->dims.D;
    float *qkv = gpt_work(g, st->qkv, sc->wide);
    gpt_norm_fwd(g, batch, sc->norm, st->ln1_mean, st->ln1_rstd, x,
                 p[GPT_LN1_WEIGHT].data, p[GPT_LN1_BIAS].data);
    gpt_linear_bias_fwd(g, qkv, sc->norm, p[GPT_QKV_WEIGHT].data, p[GPT_QKV_BIAS].data, N,
                        H, AD3);
    gpt_keep(g, st->qkv, qkv, N * AD3);
    return qkv;
}

static float *attend(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                     struct block_stash *st, const float *qkv)
{
    struct attention at = attention_of(g, block, batch, 0, batch->B);
    set_qkv(&at, qkv);
    at.out = gpt_work(g, st->att, g->scratch.norm);
    at.lse = st->lse;
    g->k->attention_fwd(g->s, &at);
    gpt_keep(g, st->att, at.out, batch->B * batch->S * g->dims.A * g->dims.D);
    return at.out;
}

/* Returns x_mid. */
static float *attention_part_fwd(struct gpt *g, int64_t block,
                                 const struct gpt_batch *batch, struct block_stash *st,
                                 const float *x)
{
    const struct weight *p = gpt_block_params(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, AD = g->dims.A * g->dims.D;
    const float *qkv = make_qkv(g, block, batch, st, x);
    const float *att = attend(g, block, batch, st, qkv);
    gpt_linear_fwd(g, sc->hidden, att, p[GPT_ATTN_PROJ_WEIGHT].data, N, AD, H);
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_ATTN_OUT, block);
    float *x_mid = gpt_work(g, st->x_mid, sc->stream);
    gpt_residual(g, batch, x_mid, x, sc->hidden, p[GPT_ATTN_PROJ_BIAS].data, &drop);
    gpt_keep(g, st->x_mid, x_mid, gpt_own_rows(g, batch) * H);
    return x_mid;
}

static void gelu_fwd(const struct gpt *g, float *y, const float *fc, const float *bias,
                     int64_t N)
{
    g->k->activation_fwd(
        g->s,
        &(struct activation_fwd){
            .act = ACTIVATION_GELU, .y = y, .x = fc, .b = bias, .N = N, .C = g->dims.F});
}

/* The first half of the MLP: fc, and with wants_gelu also wide := gelu(fc + bias). */
static void make_fc(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                    struct block_stash *st, const float *x_mid, bool wants_gelu)
{
    const struct weight *p = gpt_block_params(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;
    float *fc = gpt_work(g, st->fc, sc->wide);
    gpt_norm_fwd(g, batch, sc->norm, st->ln2_mean, st->ln2_rstd, x_mid,
                 p[GPT_LN2_WEIGHT].data, p[GPT_LN2_BIAS].data);
    bool has_gelu = gpt_linear_gelu_fwd(g, fc, sc->wide, sc->norm, p[GPT_FC_WEIGHT].data,
                                        p[GPT_FC_BIAS].data, N, H, F);
    gpt_keep(g, st->fc, fc, N * F);
    if (wants_gelu && !has_gelu)
        gelu_fwd(g, sc->wide, fc, p[GPT_FC_BIAS].data, N);
}

static void mlp_part_fwd(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                         struct block_stash *st, const float *x_mid, float *x_out)
{
    const struct weight *p = gpt_block_params(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;
    make_fc(g, block, batch, st, x_mid, true);
    gpt_linear_fwd(g, sc->hidden, sc->wide, p[GPT_MLP_PROJ_WEIGHT].data, N, F, H);
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_MLP_OUT, block);
    gpt_residual(g, batch, x_out, x_mid, sc->hidden, p[GPT_MLP_PROJ_BIAS].data, &drop);
}

void gpt_block_fwd(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                   struct block_stash *st, const float *x, float *x_out)
{
    const float *x_mid = attention_part_fwd(g, block, batch, st, x);
    mlp_part_fwd(g, block, batch, st, x_mid, x_out);
}

/* -- backward ------------------------------------------------------------------------ */

/* Compute again what the stash does not hold, by what forward called. */
static void recompute(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                      struct block_stash *st)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t own = gpt_own_rows(g, batch) * g->dims.H, N = batch->B * batch->S;
    const float *x, *qkv;
    switch (st->recompute) {
    case RECOMPUTE_NOTHING:
        break;
    case RECOMPUTE_CORE:
        qkv = gpt_recall(g, st->qkv, sc->wide, N * 3 * g->dims.A * g->dims.D);
        attend(g, block, batch, st, qkv);
        break;
    case RECOMPUTE_ATTENTION:
        x = gpt_recall(g, st->x, sc->stream, own);
        make_qkv(g, block, batch, st, x);
        break;
    case RECOMPUTE_BLOCK:
        x = gpt_recall(g, st->x, sc->stream, own);
        make_fc(g, block, batch, st, attention_part_fwd(g, block, batch, st, x), false);
        break;
    }
}

/* wide := gelu(fc + b). */
static void gelu_again(struct gpt *g, const struct block_stash *st, const float *bias,
                       int64_t N)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t F = g->dims.F;
    for (int64_t n = 0; n < N; n += GPT_WIDENED_ROWS) {
        int64_t R = i64_min(GPT_WIDENED_ROWS, N - n);
        const float *fc = gpt_recall(g, gpt_kept_at(g, st->fc, n * F), sc->rows, R * F);
        gelu_fwd(g, sc->wide + n * F, fc, bias, R);
    }
}

/* wide: in, the gradient of gelu(fc + b); out, that of fc. */
static void gelu_bwd(struct gpt *g, const struct block_stash *st, const float *bias,
                     float *dbias, int64_t N)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t F = g->dims.F;
    for (int64_t n = 0; n < N; n += GPT_WIDENED_ROWS) {
        int64_t R = i64_min(GPT_WIDENED_ROWS, N - n);
        float *d = sc->wide + n * F;
        const float *fc = gpt_recall(g, gpt_kept_at(g, st->fc, n * F), sc->rows, R * F);
        g->k->activation_bwd(g->s, &(struct activation_bwd){.act = ACTIVATION_GELU,
                                                            .dx = d,
                                                            .y = sc->rows,
                                                            .db = dbias,
                                                            .dy = d,
                                                            .x = fc,
                                                            .b = bias,
                                                            .partial = sc->partial,
                                                            .N = R,
                                                            .C = F});
    }
}

/* The gradient of fc, in the buffer that is returned, and that of the second matrix. A
 * float32 model has both GELU's output and its gradient at a time; a 16-bit one, which is
 * there to save memory, has one after the other in one buffer. */
static float *second_product_bwd(struct gpt *g, int64_t block,
                                 const struct gpt_batch *batch,
                                 const struct block_stash *st, const float *dy)
{
    const struct weight *p = gpt_block_params(g, block), *d = gpt_block_grads(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;
    bool adds = gpt_adds_grads(g, batch);
    if (g->dtype == DTYPE_F32) {
        gpt_linear_bwd_input(g, sc->dwide, dy, p[GPT_MLP_PROJ_WEIGHT].data, N, F, H);
        g->k->activation_bwd(g->s, &(struct activation_bwd){.act = ACTIVATION_GELU,
                                                            .dx = sc->dwide,
                                                            .y = sc->wide,
                                                            .db = d[GPT_FC_BIAS].data,
                                                            .dy = sc->dwide,
                                                            .x = st->fc,
                                                            .b = p[GPT_FC_BIAS].data,
                                                            .partial = sc->partial,
                                                            .N = N,
                                                            .C = F});
        gpt_linear_bwd_weight(g, d[GPT_MLP_PROJ_WEIGHT].data, g->grad_dtype, dy, sc->wide,
                              N, F, H, adds);
        return sc->dwide;
    }
    gelu_again(g, st, p[GPT_FC_BIAS].data, N);
    gpt_linear_bwd_weight(g, d[GPT_MLP_PROJ_WEIGHT].data, g->grad_dtype, dy, sc->wide, N,
                          F, H, adds);
    gpt_linear_bwd_input(g, sc->wide, dy, p[GPT_MLP_PROJ_WEIGHT].data, N, F, H);
    gelu_bwd(g, st, p[GPT_FC_BIAS].data, d[GPT_FC_BIAS].data, N);
    return sc->wide;
}

static void mlp_part_bwd(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                         const struct block_stash *st, float *dx)
{
    const struct weight *p = gpt_block_params(g, block), *d = gpt_block_grads(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_MLP_OUT, block);

    const float *dy = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    g->k->bias_grad(g->s, d[GPT_MLP_PROJ_BIAS].data, dy, sc->partial, N, H);
    const float *dfc = second_product_bwd(g, block, batch, st, dy);

    const float *x_mid = gpt_recall(g, st->x_mid, sc->stream, gpt_own_rows(g, batch) * H);
    gpt_norm_again(g, batch, sc->norm, x_mid, st->ln2_mean, st->ln2_rstd,
                   p[GPT_LN2_WEIGHT].data, p[GPT_LN2_BIAS].data);
    gpt_linear_bwd_weight(g, d[GPT_FC_WEIGHT].data, g->grad_dtype, dfc, sc->norm, N, H, F,
                          gpt_adds_grads(g, batch));
    gpt_linear_bwd_input(g, sc->norm, dfc, p[GPT_FC_WEIGHT].data, N, H, F);
    gpt_norm_bwd(g, batch, dx, d[GPT_LN2_WEIGHT].data, d[GPT_LN2_BIAS].data, sc->norm,
                 x_mid, p[GPT_LN2_WEIGHT].data, st->ln2_mean, st->ln2_rstd);
}

/* With sequence parallelism the gradients of the norms are sums over own rows only. */
static void finish_norms(struct gpt *g, int64_t block)
{
    const struct weight *d = gpt_block_grads(g, block);
    float *const grads[] = {d[GPT_LN1_WEIGHT].data, d[GPT_LN1_BIAS].data,
                            d[GPT_LN2_WEIGHT].data, d[GPT_LN2_BIAS].data};
    for (size_t i = 0; i < ARRAY_LEN(grads) && g->sp > 1; i++)
        gpt_sum_over_model(g, grads[i], g->dims.H);
}

/* dqkv (N, 3, A, D) := attention's backward of datt; sample by sample where the stash has
 * to be widened for it. */
static void attend_bwd(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                       const struct block_stash *st, const float *datt, float *dqkv)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t S = batch->S, AD = g->dims.A * g->dims.D, A = g->dims.A;
    int64_t each = g->dtype == DTYPE_F32 ? batch->B : 1;
    for (int64_t b = 0; b < batch->B; b += each) {
        const void *qkv = gpt_kept_at(g, st->qkv, b * S * 3 * AD);
        const void *att = gpt_kept_at(g, st->att, b * S * AD);
        struct attention at = attention_of(g, block, batch, b, each);
        set_qkv(&at, gpt_recall(g, qkv, sc->rows, S * 3 * AD));
        at.out = (float *)gpt_recall(g, att, sc->rows + S * 3 * AD, S * AD);
        at.lse = st->lse + b * A * S;
        float *dq = dqkv + b * S * 3 * AD;
        g->k->attention_bwd(g->s, &(struct attention_bwd){.fwd = at,
                                                          .dout = datt + b * S * AD,
                                                          .dq = dq,
                                                          .dk = dq + AD,
                                                          .dv = dq + 2 * AD,
                                                          .delta = sc->delta});
    }
}

static void attention_part_bwd(struct gpt *g, int64_t block,
                               const struct gpt_batch *batch,
                               const struct block_stash *st, float *dx)
{
    const struct weight *p = gpt_block_params(g, block), *d = gpt_block_grads(g, block);
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, AD = g->dims.A * g->dims.D;
    bool adds = gpt_adds_grads(g, batch);
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_ATTN_OUT, block);

    const float *dy = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    g->k->bias_grad(g->s, d[GPT_ATTN_PROJ_BIAS].data, dy, sc->partial, N, H);
    const float *att = gpt_recall(g, st->att, sc->norm, N * AD);
    gpt_linear_bwd_weight(g, d[GPT_ATTN_PROJ_WEIGHT].data, g->grad_dtype, dy, att, N, AD,
                          H, adds);
    gpt_linear_bwd_input(g, sc->norm, dy, p[GPT_ATTN_PROJ_WEIGHT].data, N, AD, H);
    attend_bwd(g, block, batch, st, sc->norm, sc->wide);
    g->k->bias_grad(g->s, d[GPT_QKV_BIAS].data, sc->wide, sc->partial, N, 3 * AD);

    const float *x = gpt_recall(g, st->x, sc->stream, gpt_own_rows(g, batch) * H);
    gpt_norm_again(g, batch, sc->norm, x, st->ln1_mean, st->ln1_rstd,
                   p[GPT_LN1_WEIGHT].data, p[GPT_LN1_BIAS].data);
    gpt_linear_bwd_weight(g, d[GPT_QKV_WEIGHT].data, g->grad_dtype, sc->wide, sc->norm, N,
                          H, 3 * AD, adds);
    gpt_linear_bwd_input(g, sc->norm, sc->wide, p[GPT_QKV_WEIGHT].data, N, H, 3 * AD);
    gpt_norm_bwd(g, batch, dx, d[GPT_LN1_WEIGHT].data, d[GPT_LN1_BIAS].data, sc->norm, x,
                 p[GPT_LN1_WEIGHT].data, st->ln1_mean, st->ln1_rstd);
}

void gpt_block_bwd(struct gpt *g, int64_t block, const struct gpt_batch *batch,
                   struct block_stash *st, float *dx)
{
    recompute(g, block, batch, st);
    mlp_part_bwd(g, block, batch, st, dx);
    comm_progress(g->model_group);
    attention_part_bwd(g, block, batch, st, dx);
    if (gpt_completes_grads(g, batch))
        finish_norms(g, block);
    comm_progress(g->model_group);
}
