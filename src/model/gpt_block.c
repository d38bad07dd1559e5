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
 * Wout gives is a partial sum, and so is the gradient of Win's input. Hence one sum over
 * the group per sublayer forward and one backward, (N, H) each.
 *
 * Decoding runs the same forward on one row per text: products read a matrix once for
 * these few rows, and a query meets the keys and values that its text has cached.
 *
 * Backward has two halves. The one by input needs the gradient of y and gives that of x.
 * The one by weight gives the gradients of the parameters, any time later: then the input
 * half leaves it the gradients of Win's and Wout's outputs in the stash. Together they
 * use scratch that the next sublayer uses again, and keep nothing.
 *
 * Cost for N tokens: 4 products forward, 8 backward, and attention. The element-wise
 * passes between them touch memory once each. Recomputing a whole block costs three of
 * the four products: the last one's result is the next block's input, which is stashed.
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

bool gpt_adds_grads(const struct gpt *g, const struct batch *batch)
{
    return batch->accumulate && !g->params.owner.takes_grads;
}

bool gpt_completes_grads(const struct gpt *g, const struct batch *batch)
{
    return batch->is_last || g->params.owner.takes_grads;
}

/* -- stashing ------------------------------------------------------------------------ */

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

/* -- forward ------------------------------------------------------------------------- */

/* Of samples [first, first + B) of the batch, whose rows of q, k and v are at `qkv`. */
static struct attention attention_of(const struct pass *p, int64_t first, int64_t B,
                                     const float *qkv)
{
    const struct gpt *g = p->g;
    const int32_t *starts = p->batch->document_start;
    int64_t AD = g->dims.A * g->dims.D;
    struct attention at = {
        .B = B,
        .S = p->batch->S,
        .A = g->dims.A,
        .A_kv = g->dims.A,
        .D = g->dims.D,
        .q = qkv,
        .k = qkv + AD,
        .v = qkv + 2 * AD,
        .q_row = 3 * AD,
        .kv_row = 3 * AD,
        .first_key = starts ? starts + first * p->batch->S : NULL,
        .first_head = g->dims.A_first,
        .drop = pass_dropout(p, g->attention_dropout, PHILOX_DROP_ATTENTION),
    };
    at.drop.first_sample += (uint32_t)first;
    return at;
}

/* Each row's key and value join its text's; out (N, A, D) := what its query finds. */
static void attend_cached(const struct pass *p, float *out, const float *qkv)
{
    const struct gpt *g = p->g;
    const struct gpt_kv_rows *kv = p->kv;
    int64_t A = g->dims.A, D = g->dims.D, AD = A * D;
    for (int64_t i = 0; i < p->N; i++, qkv += 3 * AD) {
        float *cache = kv->cache + kv->slots[i] * kv->slot_stride;
        int64_t n_past = kv->n_past[kv->slots[i]];
        g->k->copy(g->s, cache + n_past * 2 * AD, qkv + AD, 2 * AD);
        g->k->attention_decode(g->s, &(struct attention_decode){.out = out + i * AD,
                                                                .q = qkv,
                                                                .keys = cache,
                                                                .values = cache + AD,
                                                                .kv_row = 2 * AD,
                                                                .scores = kv->scores,
                                                                .n_keys = n_past + 1,
                                                                .A = A,
                                                                .A_kv = A,
                                                                .D = D});
    }
}

static const float *attend(const struct at *at, const float *qkv)
{
    const struct pass *p = at->p;
    float *out = gpt_work(p->g, at->st->mixed, p->g->scratch.norm);
    if (p->kv) {
        attend_cached(p, out, qkv);
    } else {
        struct attention attention = attention_of(p, 0, p->batch->B, qkv);
        attention.out = out;
        attention.lse = at->st->lse;
        p->g->k->attention_fwd(p->g->s, &attention);
    }
    gpt_keep(p->g, at->st->mixed, out, p->N * at->mid_width);
    return out;
}

/* y (N, O) = x (N, I) w^T + bias, if there is one. */
static void project(const struct pass *p, float *y, const float *x, const void *w,
                    const float *bias, int64_t I, int64_t O)
{
    if (p->kv)
        p->g->k->matvec(p->g->s, &(struct matvec){.y = y,
                                                  .w = w,
                                                  .dtype = p->g->dtype,
                                                  .x = x,
                                                  .b = bias,
                                                  .R = p->N,
                                                  .O = O,
                                                  .I = I});
    else if (bias)
        gpt_linear_bias_fwd(p->g, y, x, w, bias, p->N, I, O);
    else
        gpt_linear_fwd(p->g, y, x, w, p->N, I, O);
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

/* in := norm(x) Win^T, bias added where attention follows; GELU adds its own, and where
 * that is fused with the product it is in scratch.wide already: true. */
static bool project_in(const struct at *at, const float *x, const float **in)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    const void *w = at->params[at->sub->in_weight].data;
    const float *bias = at->params[at->sub->in_bias].data;
    float *normed = g->scratch.norm, *y = gpt_work(g, at->st->in, g->scratch.wide);
    struct gpt_norm norm = norm_at(at);
    int64_t H = g->dims.H, O = at->in_width;
    bool has_gelu = false;
    gpt_norm_fwd(g, p->batch, &norm, normed, x);
    if (at->is_attention || p->kv)
        project(p, y, normed, w, at->is_attention ? bias : NULL, H, O);
    else
        has_gelu =
            gpt_linear_gelu_fwd(g, y, g->scratch.wide, normed, w, bias, p->N, H, O);
    gpt_keep(g, at->st->in, y, p->N * O);
    *in = y;
    return has_gelu;
}

/* y (N, F) := gelu(x + bias). */
static void gelu_fwd(const struct at *at, float *y, const float *x, int64_t N)
{
    const struct gpt *g = at->p->g;
    g->k->activation_fwd(g->s,
                         &(struct activation_fwd){.act = ACTIVATION_GELU,
                                                  .y = y,
                                                  .x = x,
                                                  .b = at->params[at->sub->in_bias].data,
                                                  .N = N,
                                                  .C = at->in_width});
}

/* y (own rows, H) := the sublayer of x. */
static void sublayer_fwd(const struct pass *p, int s, const float *x, float *y)
{
    struct gpt *g = p->g;
    struct at at = sublayer_at(p, s);
    const float *in, *mixed = g->scratch.wide;
    bool has_gelu = project_in(&at, x, &in);
    if (at.is_attention)
        mixed = attend(&at, in);
    else if (!has_gelu)
        gelu_fwd(&at, g->scratch.wide, in, p->N);
    project(p, g->scratch.hidden, mixed, at.params[at.sub->out_weight].data, NULL,
            at.mid_width, g->dims.H);
    struct dropout drop = pass_dropout(p, g->hidden_dropout, at.sub->dropout);
    gpt_residual(g, p->batch, y, x, g->scratch.hidden, at.params[at.sub->out_bias].data,
                 &drop);
}

/* Returns the MLP's input, stashed. */
static const float *attention_fwd(const struct pass *p, const float *x)
{
    struct gpt *g = p->g;
    void *stash = p->st->sub[MLP].x;
    float *x_mid = gpt_work(g, stash, g->scratch.stream);
    sublayer_fwd(p, ATTENTION, x, x_mid);
    gpt_keep(g, stash, x_mid, gpt_own_rows(g, p->batch) * g->dims.H);
    return x_mid;
}

void gpt_block_fwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, const struct gpt_kv_rows *kv, const float *x,
                   float *x_out)
{
    struct pass p = {g, block, batch, st, kv, 0, batch->B * batch->S};
    sublayer_fwd(&p, MLP, attention_fwd(&p, x), x_out);
}

/* -- recomputation ------------------------------------------------------------------- */

/* Compute again what the stash does not hold, by what forward called. */
static void recompute(const struct pass *p)
{
    struct gpt *g = p->g;
    struct at attention = sublayer_at(p, ATTENTION), mlp = sublayer_at(p, MLP);
    int64_t own = gpt_own_rows(g, p->batch) * g->dims.H;
    const float *x, *in;
    switch (p->st->recompute) {
    case RECOMPUTE_NOTHING:
        break;
    case RECOMPUTE_CORE:
        in = gpt_recall(g, attention.st->in, g->scratch.wide, p->N * attention.in_width);
        attend(&attention, in);
        break;
    case RECOMPUTE_ATTENTION:
        x = gpt_recall(g, attention.st->x, g->scratch.stream, own);
        project_in(&attention, x, &in);
        break;
    case RECOMPUTE_BLOCK:
        x = gpt_recall(g, attention.st->x, g->scratch.stream, own);
        project_in(&mlp, attention_fwd(p, x), &in);
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

/* dw (O, I) of a parameter (+)= dy^T x. */
static void weight_grad(const struct at *at, enum gpt_block_param weight, const float *dy,
                        const float *x, int64_t I, int64_t O)
{
    struct gpt *g = at->p->g;
    gpt_linear_bwd_weight(g, at->grads[weight].data, g->grad_dtype, dy, x, at->p->N, I, O,
                          gpt_adds_grads(g, at->p->batch));
}

static void bias_grad(const struct at *at, enum gpt_block_param bias, const float *dy,
                      int64_t O)
{
    struct gpt *g = at->p->g;
    g->k->bias_grad(g->s, at->grads[bias].data, dy, g->scratch.partial, at->p->N, O);
}

/* The gradient of Wout's output, from that of the sublayer's; the weight half finds what
 * the input half left. */
static const float *output_grad(const struct at *at, const float *dx)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    if (!by_input(p))
        return at->st->dout;
    struct dropout drop = pass_dropout(p, g->hidden_dropout, at->sub->dropout);
    float *to = by_weight(p) ? g->scratch.hidden : at->st->dout;
    const float *dout = gpt_dropout_bwd(g, p->batch, to, dx, &drop);
    if (by_weight(p) || dout == to)
        return dout;
    g->k->copy(g->s, to, dout, p->N * g->dims.H); // dx goes on to change
    return to;
}

/* din (N, 3, A, D) := attention's backward of dmixed; sample by sample where the stash
 * has to be widened for it. */
static void attend_bwd(const struct at *at, const float *dmixed, float *din)
{
    const struct pass *p = at->p;
    const struct gpt *g = p->g;
    int64_t S = p->batch->S, AD = at->mid_width;
    int64_t each = g->dtype == DTYPE_F32 ? p->batch->B : 1;
    for (int64_t b = 0; b < p->batch->B; b += each) {
        const void *qkv = gpt_kept_at(g, at->st->in, b * S * 3 * AD);
        const void *out = gpt_kept_at(g, at->st->mixed, b * S * AD);
        struct attention fwd =
            attention_of(p, b, each, gpt_recall(g, qkv, g->scratch.rows, S * 3 * AD));
        float *dq = din + b * S * 3 * AD;
        fwd.out = (float *)gpt_recall(g, out, g->scratch.rows + S * 3 * AD, S * AD);
        fwd.lse = at->st->lse + b * g->dims.A * S;
        g->k->attention_bwd(g->s, &(struct attention_bwd){.fwd = fwd,
                                                          .dout = dmixed + b * S * AD,
                                                          .dq = dq,
                                                          .dk = dq + AD,
                                                          .dv = dq + 2 * AD,
                                                          .delta = g->scratch.delta});
    }
}

/* Returns the gradient of Win's output; also that of Wout. */
static const float *attention_bwd(const struct at *at, const float *dout)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    float *din = by_weight(p) && by_input(p) ? g->scratch.wide : at->st->din;
    int64_t H = g->dims.H, AD = at->mid_width;
    if (by_weight(p)) {
        const float *mixed = gpt_recall(g, at->st->mixed, g->scratch.norm, p->N * AD);
        weight_grad(at, at->sub->out_weight, dout, mixed, AD, H);
    }
    if (by_input(p)) {
        gpt_linear_bwd_input(g, g->scratch.norm, dout,
                             at->params[at->sub->out_weight].data, p->N, AD, H);
        attend_bwd(at, g->scratch.norm, din);
    }
    if (by_weight(p))
        bias_grad(at, at->sub->in_bias, din, at->in_width);
    return din;
}

/* wide := gelu(in + bias) again. */
static void gelu_again(const struct at *at)
{
    const struct gpt *g = at->p->g;
    int64_t N = at->p->N, F = at->in_width;
    for (int64_t n = 0; n < N; n += GPT_WIDENED_ROWS) {
        int64_t R = i64_min(GPT_WIDENED_ROWS, N - n);
        const void *in = gpt_kept_at(g, at->st->in, n * F);
        gelu_fwd(at, g->scratch.wide + n * F, gpt_recall(g, in, g->scratch.rows, R * F),
                 R);
    }
}

/* d (N, F): in, the gradient of gelu(x + bias); out, that of x. again := gelu(x + bias);
 * dbias NULL: not wanted. */
static void gelu_bwd(const struct at *at, float *d, float *again, const float *x,
                     float *dbias, int64_t N)
{
    const struct gpt *g = at->p->g;
    g->k->activation_bwd(g->s,
                         &(struct activation_bwd){.act = ACTIVATION_GELU,
                                                  .dx = d,
                                                  .y = again,
                                                  .db = dbias,
                                                  .dy = d,
                                                  .x = x,
                                                  .b = at->params[at->sub->in_bias].data,
                                                  .partial = g->scratch.partial,
                                                  .N = N,
                                                  .C = at->in_width});
}

/* The same of all rows of the stash, widened some at a time. */
static void stashed_gelu_bwd(const struct at *at, float *d, float *dbias)
{
    const struct gpt *g = at->p->g;
    float *again = g->dtype == DTYPE_F32 ? g->scratch.wide : g->scratch.rows;
    int64_t N = at->p->N, F = at->in_width;
    for (int64_t n = 0; n < N; n += GPT_WIDENED_ROWS) {
        int64_t R = i64_min(GPT_WIDENED_ROWS, N - n);
        const void *in = gpt_kept_at(g, at->st->in, n * F);
        const float *x = gpt_recall(g, in, g->scratch.rows, R * F);
        gelu_bwd(at, d + n * F, again, x, dbias, R);
    }
}

/* As attention_bwd(). Both halves of a float32 model at once have GELU's output and its
 * gradient at a time, in one pass; a 16-bit model, which is there to save memory, has one
 * after the other in one buffer. */
static const float *mlp_bwd(const struct at *at, const float *dout)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    const void *w = at->params[at->sub->out_weight].data;
    float *wide = g->scratch.wide, *dwide = g->scratch.dwide;
    float *dbias = at->grads[at->sub->in_bias].data;
    int64_t H = g->dims.H, F = at->in_width;
    if (by_weight(p) && by_input(p) && g->dtype == DTYPE_F32) {
        gpt_linear_bwd_input(g, dwide, dout, w, p->N, F, H);
        gelu_bwd(at, dwide, wide, at->st->in, dbias, p->N);
        weight_grad(at, at->sub->out_weight, dout, wide, F, H);
        return dwide;
    }
    float *din = by_weight(p) && by_input(p) ? wide : at->st->din;
    if (by_weight(p)) {
        gelu_again(at);
        weight_grad(at, at->sub->out_weight, dout, wide, F, H);
    }
    if (by_input(p)) {
        gpt_linear_bwd_input(g, din, dout, w, p->N, F, H);
        stashed_gelu_bwd(at, din, by_weight(p) ? dbias : NULL);
    } else {
        bias_grad(at, at->sub->in_bias, din, F);
    }
    return din;
}

/* The norm and Win: dx += the gradient of the sublayer's input. */
static void norm_bwd(const struct at *at, const float *din, float *dx)
{
    const struct pass *p = at->p;
    struct gpt *g = p->g;
    struct gpt_norm norm = norm_at(at);
    int64_t H = g->dims.H, own = gpt_own_rows(g, p->batch);
    const float *x = gpt_recall(g, at->st->x, g->scratch.stream, own * H);
    if (by_weight(p)) {
        gpt_norm_again(g, p->batch, &norm, g->scratch.norm, x);
        weight_grad(at, at->sub->in_weight, din, g->scratch.norm, H, at->in_width);
    }
    if (by_input(p)) {
        gpt_linear_bwd_input(g, g->scratch.norm, din, at->params[at->sub->in_weight].data,
                             p->N, H, at->in_width);
        gpt_norm_bwd(g, p->batch, &norm, dx, g->scratch.norm, x);
    }
    if (by_weight(p))
        gpt_norm_grads(g, p->batch, &norm);
}

static void sublayer_bwd(const struct pass *p, int s, float *dx)
{
    struct at at = sublayer_at(p, s);
    const float *dout = output_grad(&at, dx);
    if (by_weight(p))
        bias_grad(&at, at.sub->out_bias, dout, p->g->dims.H);
    norm_bwd(&at, at.is_attention ? attention_bwd(&at, dout) : mlp_bwd(&at, dout), dx);
}

void gpt_block_bwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, float *dx, enum gpt_half half)
{
    struct pass p = {g, block, batch, st, NULL, half, batch->B * batch->S};
    CHECK(half == GPT_BWD_BOTH || g->splits_backward, "half %d of backward", (int)half);
    recompute(&p);
    sublayer_bwd(&p, MLP, dx);
    comm_progress(g->model_group);
    sublayer_bwd(&p, ATTENTION, dx);
    comm_progress(g->model_group);
}
