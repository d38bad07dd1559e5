/*
 * One transformer block, forward and backward, in the order of the formulas in gpt.h.
 *
 * Tensor parallelism splits qkv and the first matrix of the MLP by rows (heads, inner
 * units), the other two by columns; what those two give is a partial sum, and so is the
 * gradient of the inputs of the first two. Hence two sums over the group forward and two
 * backward, (N, H) each.
 *
 * Cost for N tokens: 4 products forward, 8 backward, and attention. The element-wise
 * passes between them touch memory once each.
 */
#include "model/gpt_internal.h"

void gpt_linear_fwd(const struct kernels *k, float *y, const float *x, const float *w,
                    int64_t N, int64_t I, int64_t O)
{
    k->gemm(&(struct gemm){.m = N,
                           .n = O,
                           .k = I,
                           .a = x,
                           .a_row = I,
                           .a_col = 1,
                           .b = w,
                           .b_row = 1,
                           .b_col = I,
                           .c = y,
                           .c_row = O,
                           .c_col = 1});
}

void gpt_linear_bwd_input(const struct kernels *k, float *dx, const float *dy,
                          const float *w, int64_t N, int64_t I, int64_t O)
{
    k->gemm(&(struct gemm){.m = N,
                           .n = I,
                           .k = O,
                           .a = dy,
                           .a_row = O,
                           .a_col = 1,
                           .b = w,
                           .b_row = I,
                           .b_col = 1,
                           .c = dx,
                           .c_row = I,
                           .c_col = 1});
}

void gpt_linear_bwd_weight(const struct kernels *k, float *dw, const float *dy,
                           const float *x, int64_t N, int64_t I, int64_t O,
                           bool accumulate)
{
    k->gemm(&(struct gemm){.m = O,
                           .n = I,
                           .k = N,
                           .a = dy,
                           .a_row = 1,
                           .a_col = O,
                           .b = x,
                           .b_row = I,
                           .b_col = 1,
                           .c = dw,
                           .c_row = I,
                           .c_col = 1,
                           .accumulate = accumulate});
}

static struct dropout block_dropout(const struct gpt *g, const struct gpt_batch *batch,
                                    double rate, enum philox_use use, int64_t layer)
{
    if (!batch->is_training)
        return dropout_none();
    return dropout_init(rate, g->seed, use, (int)layer, batch->step, batch->first_sample);
}

static struct attention attention_of(const struct gpt *g, int64_t layer,
                                     const struct gpt_batch *batch,
                                     const struct block_stash *st)
{
    return (struct attention){
        .B = batch->B,
        .S = batch->S,
        .A = g->dims.A,
        .D = g->dims.D,
        .qkv = st->qkv,
        .out = st->att,
        .lse = st->lse,
        .first_head = g->dims.A_first,
        .drop =
            block_dropout(g, batch, g->attention_dropout, PHILOX_DROP_ATTENTION, layer),
    };
}

/* -- forward ------------------------------------------------------------------------- */

static void attention_part_fwd(struct gpt *g, int64_t layer,
                               const struct gpt_batch *batch, struct block_stash *st)
{
    const struct kernels *k = g->k;
    const struct layer_params *p = &g->p[layer];
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, AD = g->dims.A * g->dims.D;

    gpt_norm_fwd(g, batch, sc->norm, st->ln1_mean, st->ln1_rstd, st->x, p->ln1_g,
                 p->ln1_b);
    gpt_linear_fwd(k, st->qkv, sc->norm, p->qkv_w, N, H, 3 * AD);
    k->bias_add(st->qkv, p->qkv_b, N, 3 * AD);
    struct attention at = attention_of(g, layer, batch, st);
    k->attention_fwd(&at);
    gpt_linear_fwd(k, sc->hidden, st->att, p->proj_w, N, AD, H);
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_ATTN_OUT, layer);
    gpt_residual(g, batch, st->x_mid, st->x, sc->hidden, p->proj_b, &drop);
}

static void mlp_part_fwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                         struct block_stash *st, float *x_out)
{
    const struct kernels *k = g->k;
    const struct layer_params *p = &g->p[layer];
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;

    gpt_norm_fwd(g, batch, sc->norm, st->ln2_mean, st->ln2_rstd, st->x_mid, p->ln2_g,
                 p->ln2_b);
    gpt_linear_fwd(k, st->fc, sc->norm, p->fc_w, N, H, F);
    k->bias_gelu_fwd(sc->wide, st->fc, p->fc_b, N, F);
    gpt_linear_fwd(k, sc->hidden, sc->wide, p->fc2_w, N, F, H);
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_MLP_OUT, layer);
    gpt_residual(g, batch, x_out, st->x_mid, sc->hidden, p->fc2_b, &drop);
}

void gpt_block_fwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   struct block_stash *st, float *x_out)
{
    attention_part_fwd(g, layer, batch, st);
    mlp_part_fwd(g, layer, batch, st, x_out);
}

/* -- backward ------------------------------------------------------------------------ */

static void mlp_part_bwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                         const struct block_stash *st, float *dx)
{
    const struct kernels *k = g->k;
    const struct layer_params *p = &g->p[layer], *d = &g->d[layer];
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, F = g->dims.F;
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_MLP_OUT, layer);

    const float *dy = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    k->bias_grad(d->fc2_b, dy, sc->partial, N, H);
    gpt_linear_bwd_input(k, sc->dwide, dy, p->fc2_w, N, F, H);
    k->bias_gelu_bwd(sc->dwide, sc->wide, d->fc_b, sc->dwide, st->fc, p->fc_b,
                     sc->partial, N, F);
    gpt_linear_bwd_weight(k, d->fc2_w, dy, sc->wide, N, F, H, batch->accumulate);

    gpt_norm_again(g, batch, sc->norm, st->x_mid, st->ln2_mean, st->ln2_rstd, p->ln2_g,
                   p->ln2_b);
    gpt_linear_bwd_weight(k, d->fc_w, sc->dwide, sc->norm, N, H, F, batch->accumulate);
    gpt_linear_bwd_input(k, sc->dhidden, sc->dwide, p->fc_w, N, H, F);
    gpt_norm_bwd(g, batch, dx, d->ln2_g, d->ln2_b, sc->dhidden, st->x_mid, p->ln2_g,
                 st->ln2_mean, st->ln2_rstd);
}

/* With sequence parallelism the gradients of the norms are sums over own rows only. */
static void finish_norms(struct gpt *g, int64_t layer)
{
    const struct layer_params *d = &g->d[layer];
    float *const grads[] = {d->ln1_g, d->ln1_b, d->ln2_g, d->ln2_b};
    for (size_t i = 0; i < ARRAY_LEN(grads) && g->sp > 1; i++)
        gpt_sum_over_model(g, grads[i], g->dims.H);
}

static void attention_part_bwd(struct gpt *g, int64_t layer,
                               const struct gpt_batch *batch,
                               const struct block_stash *st, float *dx)
{
    const struct kernels *k = g->k;
    const struct layer_params *p = &g->p[layer], *d = &g->d[layer];
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H, AD = g->dims.A * g->dims.D;
    struct dropout drop =
        block_dropout(g, batch, g->hidden_dropout, PHILOX_DROP_ATTN_OUT, layer);

    const float *dy = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    k->bias_grad(d->proj_b, dy, sc->partial, N, H);
    gpt_linear_bwd_weight(k, d->proj_w, dy, st->att, N, AD, H, batch->accumulate);
    gpt_linear_bwd_input(k, sc->dhidden, dy, p->proj_w, N, AD, H);
    k->attention_bwd(&(struct attention_bwd){.fwd = attention_of(g, layer, batch, st),
                                             .dout = sc->dhidden,
                                             .dqkv = sc->dwide,
                                             .delta = sc->delta});
    k->bias_grad(d->qkv_b, sc->dwide, sc->partial, N, 3 * AD);

    gpt_norm_again(g, batch, sc->norm, st->x, st->ln1_mean, st->ln1_rstd, p->ln1_g,
                   p->ln1_b);
    gpt_linear_bwd_weight(k, d->qkv_w, sc->dwide, sc->norm, N, H, 3 * AD,
                          batch->accumulate);
    gpt_linear_bwd_input(k, sc->dhidden, sc->dwide, p->qkv_w, N, H, 3 * AD);
    gpt_norm_bwd(g, batch, dx, d->ln1_g, d->ln1_b, sc->dhidden, st->x, p->ln1_g,
                 st->ln1_mean, st->ln1_rstd);
}

void gpt_block_bwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   const struct block_stash *st, float *dx)
{
    mlp_part_bwd(g, layer, batch, st, dx);
    comm_progress(g->model_group);
    attention_part_bwd(g, layer, batch, st, dx);
    if (batch->is_last)
        finish_norms(g, layer);
    comm_progress(g->model_group);
}
