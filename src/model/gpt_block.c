/*
 * One transformer block: forward, backward by input and by weight, recomputation and
 * decoding, all from one description.
 *
 * A block is two sublayers of one outline,
 *
 *   y = x + drop(mix(norm(x) Win^T) Wout^T + bout)
 *
 * which differ in what they mix: attention mixes the tokens of a sample, per head, and
 * GELU the numbers of a token. The table below says which parameters are whose.
 *
 * Tensor parallelism splits Win by rows (heads, inner units) and Wout by columns; what
 * Wout gives is a partial sum, and so is the gradient of Win's input. Hence one
 * all-reduce per sublayer forward and one backward, (N, H) each.
 *
 * Decoding runs the same forward on one row per text: each matrix is read once for these
 * few rows, and a query attends to the keys and values that its text has cached.
 *
 * Backward has two halves. The one by input needs the gradient of y and gives that of x.
 * The one by weight gives the gradients of the parameters, any time later: then the input
 * half leaves it the gradients of Win's and Wout's outputs in the stash. Run together
 * they only use scratch, which the next sublayer reuses.
 *
 * Cost for N tokens: 4 GEMMs forward, 8 backward, and attention. The element-wise passes
 * between them touch memory once each. Recomputing a whole block costs three of the four
 * GEMMs: the last one's result is the next block's input, which is stashed.
 */
#include "model/gpt_internal.h"

enum { ATTENTION, MLP };

struct sublayer {
    enum gpt_block_param norm_gain, norm_bias;
    enum gpt_block_param in_weight, in_bias;
    enum gpt_block_param out_weight, out_bias;
    enum philox_use dropout; // of the output
};

// clang-format off
static const struct sublayer sublayers[] = {
    [ATTENTION] = {GPT_LN1_WEIGHT, GPT_LN1_BIAS, GPT_QKV_WEIGHT, GPT_QKV_BIAS,
                   GPT_ATTN_PROJ_WEIGHT, GPT_ATTN_PROJ_BIAS, PHILOX_DROP_ATTN_OUT},
    [MLP]       = {GPT_LN2_WEIGHT, GPT_LN2_BIAS, GPT_FC_WEIGHT, GPT_FC_BIAS,
                   GPT_MLP_PROJ_WEIGHT, GPT_MLP_PROJ_BIAS, PHILOX_DROP_MLP_OUT},
};
// clang-format on

/* One block of one micro-batch, on its way forward or backward. */
struct pass {
    struct gpt *g;
    int64_t block; // from 0
    const struct batch *batch;
    struct block_stash *st;
    const struct gpt_kv_rows *kv; // decoding; NULL: whole sequences
    enum gpt_half half;           // of backward
    int64_t N;                    // rows
};

/* One sublayer of it. */
struct at {
    const struct pass *p;
    const struct sublayer *sub;
    struct sublayer_stash *st;
    const struct weight *params, *grads; // of the block
    int64_t in_width;                    // Win's outputs
    int64_t mid_width;                   // Wout's inputs
    bool is_attention;
};

static struct at sublayer_at(const struct pass *p, int s)
{
    const struct gpt *g = p->g;
    int64_t AD = g->dims.A * g->dims.D;
    return (struct at){.p = p,
                       .sub = &sublayers[s],
                       .st = &p->st->sub[s],
                       .params = gpt_block_params(g, p->block),
                       .grads = gpt_block_grads(g, p->block),
                       .in_width = s == ATTENTION ? 3 * AD : g->dims.F,
                       .mid_width = s == ATTENTION ? AD : g->dims.F,
                       .is_attention = s == ATTENTION};
}

static struct dropout pass_dropout(const struct pass *p, double rate, enum philox_use use)
{
    if (!p->batch->is_training)
        return dropout_none();
    return dropout_init(rate, p->g->seed, use, (int)p->block + 1, p->batch->step,
                        p->batch->first_sample);
}

/* Whether this micro-batch accumulates into the gradients of earlier ones. */
static bool adds_grads(const struct gpt *g, const struct batch *batch)
{
    return batch->accumulate && !g->params.owner.takes_grads;
}

bool gpt_completes_grads(const struct gpt *g, const struct batch *batch)
{
    return batch->is_last || g->params.owner.takes_grads;
}

/* -- forward ------------------------------------------------------------------------- */

/* Of the rows of q, k and v, and what it gives, in the stash. */
static struct attention attention_of(const struct at *at)
{
    const struct pass *p = at->p;
    const struct gpt *g = p->g;
    int64_t AD = at->mid_width;
    return (struct attention){
        .B = p->batch->B,
        .S = p->batch->S,
        .A = g->dims.A,
        .A_kv = g->dims.A,
        .D = g->dims.D,
        .q = at->st->in,
        .k = gpt_at(g, at->st->in, AD),
        .v = gpt_at(g, at->st->in, 2 * AD),
        .q_row = 3 * AD,
        .kv_row = 3 * AD,
        .out = at->st->mixed,
        .lse = at->st->lse,
        .first_key = p->batch->document_start,
        .key_end = p->batch->key_end,
        .first_head = g->dims.A_first,
        .drop = pass_dropout(p, g->attention_dropout, PHILOX_DROP_ATTENTION),
    };
}

/* Each row's key and value join its text's; mixed := what its query finds. */
static void attend_cached(const struct at *at)
{
    const struct pass *p = at->p;
    const struct gpt *g = p->g;
    const struct gpt_kv_rows *kv = p->kv;
    int64_t A = g->dims.A, D = g->dims.D, AD = A * D;
    for (int64_t i = 0; i < p->N; i++) {
        void *cache = gpt_at(g, kv->cache, kv->slots[i] * kv->slot_stride);
        int64_t n_past = kv->n_past[kv->slots[i]];
        const void *q = gpt_at(g, at->st->in, i * 3 * AD);
        gpt_copy(g, gpt_at(g, cache, n_past * 2 * AD), gpt_at_const(g, q, AD), 2 * AD);
        g->k->attention_decode(
            g->s, &(struct attention_decode){.out = gpt_at(g, at->st->mixed, i * AD),
                                             .q = q,
                                             .keys = cache,
                                             .values = gpt_at(g, cache, AD),
                                             .kv_row = 2 * AD,
                                             .scores = kv->scores,
                                             .n_keys = n_past + 1,
                                             .A = A,
                                             .A_kv = A,
                                             .D = D});
    }
}

/* mixed := attention of what is in `in`. */
static void attend(const struct at *at)
{
    const struct gpt *g = at->p->g;
    struct attention attention = attention_of(at);
    if (at->p->kv)
        attend_cached(at);
    else
        g->k->attention_fwd(g->s, &attention);
}

/* A GEMM; decoding's few rows go through a kernel that reads the weight once. */
static void project(const struct pass *p, struct linear l)
{
    const struct gpt *g = p->g;
    l.N = p->N;
    if (!p->kv) {
        gpt_linear_fwd(g, l);
        return;
    }
    bool is_biased = l.act == ACTIVATION_NONE;
    g->k->matvec(g->s, &(struct matvec){.y = l.y,
                                        .y_dtype = l.y_dtype,
                                        .w = l.w,
                                        .x = l.x,
                                        .b = is_biased ? l.bias : NULL,
                                        .R = p->N});
    if (!is_biased && l.act_y)
        g->k->activation_fwd(g->s, &(struct activation_fwd){.act = l.act,
                                                            .y = l.act_y,
                                                            .x = l.y,
                                                            .b = l.bias,
                                                            .N = p->N,
                                                            .C = l.w->rows});
}

static struct gpt_norm norm_at(const struct at *at)
{
    const struct pass *p = at->p;
    bool is_split = p->half == GPT_BWD_INPUT || p->half == GPT_BWD_WEIGHT;
    return (struct gpt_norm){
        .gain = at->params[at->sub->norm_gain].data,
        .bias = at->params[at->sub->norm_bias].data,
        .dgain = at->grads[at->sub->norm_gain].data,
        .dbias = at->grads[at->sub->norm_bias].data,
        .mean = at->st->mean,
        .rstd = at->st->rstd,
        .partial = is_split ? at->st->partial : p->g->scratch.partial,
    };
}

/* in := norm(x) Win^T, bias added where attention follows; GELU adds its own, and with
 * wants_gelu it is in scratch.wide. */
static void project_in(const struct at *at, const void *x, bool wants_gelu)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    struct gpt_norm norm = norm_at(at);
    gpt_norm_fwd(g, p->batch, &norm, g->scratch.norm, x);
    project(p, (struct linear){.w = &at->params[at->sub->in_weight],
                               .x = g->scratch.norm,
                               .y = at->st->in,
                               .y_dtype = g->dtype,
                               .bias = at->params[at->sub->in_bias].data,
                               .act = at->is_attention ? ACTIVATION_NONE : g->activation,
                               .act_y = wants_gelu ? g->scratch.wide : NULL});
}

/* y (own rows, H) := the sublayer of x. */
static void sublayer_fwd(const struct pass *p, int s, const void *x, void *y)
{
    struct gpt *g = p->g;
    struct at at = sublayer_at(p, s);
    project_in(&at, x, !at.is_attention);
    if (at.is_attention)
        attend(&at);
    project(p, (struct linear){.w = &at.params[at.sub->out_weight],
                               .x = at.is_attention ? at.st->mixed : g->scratch.wide,
                               .y = g->scratch.hidden,
                               .y_dtype = DTYPE_F32});
    struct dropout drop = pass_dropout(p, g->hidden_dropout, at.sub->dropout);
    gpt_residual(g, p->batch, y, x, g->scratch.hidden, at.params[at.sub->out_bias].data,
                 &drop);
}

void gpt_block_fwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, const struct gpt_kv_rows *kv, const void *x,
                   void *x_out)
{
    struct pass p = {g, block, batch, st, kv, 0, batch->B * batch->S};
    sublayer_fwd(&p, ATTENTION, x, st->sub[MLP].x);
    sublayer_fwd(&p, MLP, st->sub[MLP].x, x_out);
}

/* -- recomputation ------------------------------------------------------------------- */

/* Recompute what the stash does not hold, through the functions of forward. */
static void recompute_block(const struct pass *p)
{
    struct at attention = sublayer_at(p, ATTENTION), mlp = sublayer_at(p, MLP);
    switch (p->st->recompute) {
    case RECOMPUTE_NOTHING:
        break;
    case RECOMPUTE_CORE:
        attend(&attention);
        break;
    case RECOMPUTE_ATTENTION:
        project_in(&attention, attention.st->x, false);
        break;
    case RECOMPUTE_BLOCK:
        sublayer_fwd(p, ATTENTION, attention.st->x, mlp.st->x);
        project_in(&mlp, mlp.st->x, false);
        break;
    }
}

/* -- backward ------------------------------------------------------------------------ */

static bool by_input(const struct pass *p)
{
    return p->half & GPT_BWD_INPUT;
}

static bool by_weight(const struct pass *p)
{
    return p->half & GPT_BWD_WEIGHT;
}

/* dw of a parameter (+)= dy^T x. */
static void weight_grad(const struct at *at, enum gpt_block_param weight, const void *dy,
                        const void *x)
{
    struct gpt *g = at->p->g;
    gpt_linear_bwd_weight(
        g, (struct linear_bwd_weight){.dw = &at->grads[weight],
                                      .dy = dy,
                                      .dy_row = at->grads[weight].rows,
                                      .x = x,
                                      .accumulate = adds_grads(g, at->p->batch),
                                      .N = at->p->N});
}

/* dx = dy w, of a parameter w. */
static void input_grad(const struct at *at, enum gpt_block_param weight, const void *dy,
                       void *dx, enum dtype dtype)
{
    const struct weight *w = &at->params[weight];
    gpt_linear_bwd_input(at->p->g, (struct linear_bwd_input){.dx = dx,
                                                             .dx_dtype = dtype,
                                                             .dy = dy,
                                                             .dy_row = w->rows,
                                                             .w = w,
                                                             .N = at->p->N});
}

static void bias_grad(const struct at *at, enum gpt_block_param bias, const void *dy,
                      int64_t O)
{
    struct gpt *g = at->p->g;
    g->k->bias_grad(g->s, &(struct bias_grad){at->grads[bias].data, dy,
                                              g->scratch.partial, at->p->N, O});
}

/* The gradient of Wout's output, from that of the sublayer's; the weight half finds what
 * the input half left. */
static const void *output_grad(const struct at *at, const void *dx)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    if (!by_input(p))
        return at->st->dout;
    struct dropout drop = pass_dropout(p, g->hidden_dropout, at->sub->dropout);
    void *to = by_weight(p) ? g->scratch.dout : at->st->dout;
    const void *dout = gpt_dropout_bwd(g, p->batch, to, dx, &drop);
    if (by_weight(p) || dout == to)
        return dout;
    gpt_copy(g, to, dout, p->N * g->dims.H); // dx goes on to change
    return to;
}

/* Where the gradient of Win's output goes. */
static void *input_grad_of(const struct at *at)
{
    bool is_both = by_weight(at->p) && by_input(at->p);
    return is_both ? at->p->g->scratch.wide : at->st->din;
}

/* din (N, 3, A, D) := attention's backward of dmixed. */
static void attend_bwd(const struct at *at, const void *dmixed, void *din)
{
    const struct gpt *g = at->p->g;
    g->k->attention_bwd(g->s,
                        &(struct attention_bwd){.fwd = attention_of(at),
                                                .dout = dmixed,
                                                .dq = din,
                                                .dk = gpt_at(g, din, at->mid_width),
                                                .dv = gpt_at(g, din, 2 * at->mid_width),
                                                .delta = g->scratch.delta,
                                                .scratch = g->scratch.attention});
}

/* Returns the gradient of Win's output; also that of Wout. */
static const void *attention_bwd(const struct at *at, const void *dout)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    void *din = input_grad_of(at);
    if (by_weight(p))
        weight_grad(at, at->sub->out_weight, dout, at->st->mixed);
    if (by_input(p)) {
        input_grad(at, at->sub->out_weight, dout, g->scratch.norm, g->dtype);
        attend_bwd(at, g->scratch.norm, din); // dout's memory may be its scratch
    }
    if (by_weight(p))
        bias_grad(at, at->sub->in_bias, din, at->in_width);
    return din;
}

/* in := gelu(in + bias). */
static void gelu_again(const struct at *at)
{
    const struct gpt *g = at->p->g;
    g->k->activation_fwd(g->s,
                         &(struct activation_fwd){.act = g->activation,
                                                  .y = at->st->in,
                                                  .x = at->st->in,
                                                  .b = at->params[at->sub->in_bias].data,
                                                  .N = at->p->N,
                                                  .C = at->in_width});
}

/* d (N, F): in, the gradient of gelu(in + bias); out, that of in. With is_again also in
 * := gelu(in + bias), and the gradient of the bias. */
static void gelu_bwd(const struct at *at, void *d, bool is_again)
{
    const struct gpt *g = at->p->g;
    float *dbias = at->grads[at->sub->in_bias].data;
    g->k->activation_bwd(g->s,
                         &(struct activation_bwd){.act = g->activation,
                                                  .dx = d,
                                                  .y = is_again ? at->st->in : NULL,
                                                  .db = is_again ? dbias : NULL,
                                                  .dy = d,
                                                  .x = at->st->in,
                                                  .b = at->params[at->sub->in_bias].data,
                                                  .partial = g->scratch.partial,
                                                  .N = at->p->N,
                                                  .C = at->in_width});
}

/* As attention_bwd(). When both halves run at once, GELU's output and its gradient are
 * made in one pass; the output takes the place of what GELU read, which nothing needs any
 * more. */
static const void *mlp_bwd(const struct at *at, const void *dout)
{
    const struct pass *p = at->p;
    void *din = input_grad_of(at);
    if (by_input(p)) {
        input_grad(at, at->sub->out_weight, dout, din, p->g->dtype);
        gelu_bwd(at, din, by_weight(p));
    } else {
        gelu_again(at);
        bias_grad(at, at->sub->in_bias, din, at->in_width);
    }
    if (by_weight(p))
        weight_grad(at, at->sub->out_weight, dout, at->st->in);
    return din;
}

/* The norm and Win: dx += the gradient of the sublayer's input. */
static void norm_bwd(const struct at *at, const void *din, void *dx)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    struct gpt_norm norm = norm_at(at);
    struct gpt_norm_grad grad = gpt_norm_grad(g);
    if (by_weight(p)) {
        gpt_norm_again(g, p->batch, &norm, g->scratch.norm, at->st->x);
        weight_grad(at, at->sub->in_weight, din, g->scratch.norm);
    }
    if (by_input(p)) {
        input_grad(at, at->sub->in_weight, din, grad.dy, grad.dtype);
        gpt_norm_bwd(g, p->batch, &norm, dx, at->st->x);
    }
    if (by_weight(p))
        gpt_norm_grads(g, p->batch, &norm);
}

static void sublayer_bwd(const struct pass *p, int s, void *dx)
{
    struct at at = sublayer_at(p, s);
    const void *dout = output_grad(&at, dx);
    if (by_weight(p))
        bias_grad(&at, at.sub->out_bias, dout, p->g->dims.H);
    norm_bwd(&at, at.is_attention ? attention_bwd(&at, dout) : mlp_bwd(&at, dout), dx);
}

/* Vectors lie before matrices. */
static void zero_vector_grads(const struct pass *p)
{
    const struct weight *grads = gpt_block_grads(p->g, p->block);
    const char *matrices = grads[GPT_QKV_WEIGHT].data;
    device_fill(p->g->s, grads[0].data, 0,
                (size_t)(matrices - (const char *)grads[0].data));
}

void gpt_block_bwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, void *dx, enum gpt_half half)
{
    struct pass p = {g, block, batch, st, NULL, half, batch->B * batch->S};
    CHECK(half == GPT_BWD_BOTH || g->splits_backward, "half %d of backward", (int)half);
    if (g->stashes_in_grads)
        zero_vector_grads(&p);
    recompute_block(&p);
    sublayer_bwd(&p, MLP, dx);
    comm_progress(g->model_group);
    sublayer_bwd(&p, ATTENTION, dx);
    comm_progress(g->model_group);
}
