/*
 * Final norm, tied head and loss.
 *
 * Logits exist for one chunk of tokens at a time: GEMM, cross-entropy, and in training at
 * once the gradients of that chunk. So memory does not grow with tokens x vocabulary and
 * nothing is recomputed. With tensor parallelism a process has the logits of its shard of
 * the vocabulary, and only row maxima and row sums are exchanged: the logits are never
 * gathered. The chunk is large enough for the GEMM to hide reading the embedding once per
 * chunk.
 */
#include "model/gpt.h"

#include "base/beat.h"
#include "base/philox.h"
#include "base/real.h"
#include "model/gpt_internal.h"

#include <math.h>

/* loss_sums[b] += the losses of a chunk's rows that count, by sample. */
static void add_chunk(const struct gpt_losses *l, const struct gpt_loss_chunk *c)
{
    const float *sums = l->sums + c->at, *targets = sums + c->R;
    for (int64_t r = 0; r < c->R; r++)
        if (c->mask[c->row + r] > 0)
            c->loss_sums[(c->row + r) / c->S] +=
                real_log((double)sums[r]) - (double)targets[r];
}

void gpt_finish_losses(struct gpt *g)
{
    struct gpt_losses *l = &g->losses;
    if (l->n_chunks == 0)
        return;
    device_synchronize(g->s);
    for (int64_t i = 0; i < l->n_chunks; i++)
        add_chunk(l, &l->chunks[i]);
    l->n_chunks = l->n_rows = 0;
}

/* The losses of rows [row, row + R): there at once on the processor. */
static void take_losses(struct gpt *g, const struct batch *batch, int64_t row, int64_t R)
{
    struct gpt_losses *l = &g->losses;
    if (l->n_chunks == l->chunks_most || l->n_rows + R > l->rows_most)
        gpt_finish_losses(g);
    struct gpt_loss_chunk *c = &l->chunks[l->n_chunks++];
    *c = (struct gpt_loss_chunk){.at = 2 * l->n_rows,
                                 .R = R,
                                 .row = row,
                                 .S = batch->S,
                                 .mask = batch->loss_mask,
                                 .loss_sums = batch->loss_sums};
    l->n_rows += R;
    device_copy(g->s, l->sums + c->at, g->scratch.row_sum,
                (size_t)(2 * R) * sizeof *l->sums, COPY_TO_HOST);
    if (device_is_host(g->dev))
        gpt_finish_losses(g);
}

static void max_over_model(struct gpt *g, float *x, int64_t n)
{
    struct error err;
    if (comm_max_f32(g->model_group, x, n, &err))
        gpt_lost_peer(g, &err);
}

static struct xent chunk_xent(const struct gpt *g, int64_t row, int64_t R)
{
    const struct gpt_scratch *sc = &g->scratch;
    return (struct xent){.logits = sc->logits,
                         .row_max = sc->row_max,
                         .row_sum = sc->row_sum,
                         .target_logit = sc->row_sum + R,
                         .targets = sc->targets + row,
                         .R = R,
                         .V = g->dims.V};
}

/* Gumbel's noise of ids [4 * block, 4 * block + 4) for a sample's next token. */
static void draw_noise(const struct batch_draw *draw, int64_t sample, int64_t block,
                       double noise[4])
{
    struct philox_key key =
        philox_key(draw->seed, PHILOX_SAMPLE_PROMPT, (uint32_t)draw->token);
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)sample, (uint32_t)draw->step,
                                 key.seed_high};
    uint32_t words[4];
    philox_4x32(key.k, counter, words);
    for (int i = 0; i < 4; i++)
        noise[i] = -real_log(-real_log(((double)words[i] + 0.5) * 0x1p-32));
}

/* Turn the logits of rows that count, of R from `row` on, into those whose maximum is the
 * token drawn. */
static void chunk_noise(struct gpt *g, const struct batch *batch, int64_t row, int64_t R)
{
    const struct batch_draw *draw = batch->draw;
    size_t n_bytes = (size_t)g->dims.V * sizeof(float);
    for (int64_t r = 0; r < R; r++) {
        float *logits = g->scratch.logits + r * g->dims.V;
        int64_t sample = batch->first_sample + (row + r) / batch->S;
        double noise[4];
        if (batch->loss_mask[row + r] <= 0)
            continue;
        device_copy(g->s, draw->row, logits, n_bytes, COPY_TO_HOST);
        device_synchronize(g->s);
        for (int64_t i = 0, made = -1; i < g->dims.V; i++) {
            int64_t id = g->dims.V_first + i;
            if (id / 4 != made)
                draw_noise(draw, sample, made = id / 4, noise);
            double with = (double)draw->row[i] / draw->temperature + noise[id % 4];
            draw->row[i] = id < draw->n_ids ? (float)with : -INFINITY;
        }
        device_copy(g->s, logits, draw->row, n_bytes, COPY_TO_DEVICE);
        device_synchronize(g->s);
    }
}

/* Which token has the maximum of each row that counts: the lowest id of those that have
 * it, as the maximum over the vocabulary's parts of what ids lack to V_MOST. */
static void chunk_likeliest(struct gpt *g, const struct batch *batch, int64_t row,
                            int64_t R)
{
    enum { V_MOST = INT32_MAX };
    int64_t best[GPT_LOGIT_ROWS_MOST];
    int32_t top[GPT_LOGIT_ROWS_MOST];
    struct xent xent = chunk_xent(g, row, R);
    struct error err;
    xent.column = (int32_t *)(void *)g->scratch.row_sum; // not yet in use
    g->k->xent_top(g->s, &xent);
    device_copy(g->s, top, xent.column, (size_t)R * sizeof *top, COPY_TO_HOST);
    device_synchronize(g->s);
    for (int64_t r = 0; r < R; r++)
        best[r] = batch->loss_mask[row + r] > 0 && top[r] >= 0
                      ? V_MOST - (g->dims.V_first + top[r])
                      : 0;
    if (comm_max_i64(g->model_group, best, R, &err))
        gpt_lost_peer(g, &err);
    for (int64_t r = 0; r < R; r++)
        if (batch->loss_mask[row + r] > 0)
            batch->likeliest[row + r] = best[r] > 0 ? (int32_t)(V_MOST - best[r]) : -1;
}

/* Logits of rows [row, row + R) of the norm's output, turned into losses. */
static void chunk_loss(struct gpt *g, const struct batch *batch, int64_t row, int64_t R)
{
    const struct weight *head = gpt_params(g, LAYER_HEAD);
    struct gpt_scratch *sc = &g->scratch;
    int64_t H = g->dims.H;
    gpt_linear_fwd(g, (struct linear){.w = &head[GPT_HEAD_WEIGHT],
                                      .x = gpt_at(g, sc->norm, row * H),
                                      .y = sc->logits,
                                      .y_dtype = DTYPE_F32,
                                      .N = R});
    if (batch->draw)
        chunk_noise(g, batch, row, R);
    struct xent xent = chunk_xent(g, row, R);
    g->k->xent_max(g->s, &xent);
    max_over_model(g, sc->row_max, R);
    if (batch->likeliest)
        chunk_likeliest(g, batch, row, R);
    g->k->xent_exp(g->s, &xent);
    gpt_sum_over_model(g, sc->row_sum, 2 * R);
    take_losses(g, batch, row, R);
}

/* The gradients of that chunk: of the embedding, and of the norm's output, which may take
 * that output's place. */
static void chunk_grad(struct gpt *g, const struct batch *batch, int64_t row, int64_t R)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t at = row * g->dims.H, logit_row = xent_grad_row(g->dtype, g->dims.V);
    struct gpt_norm_grad grad = gpt_norm_grad(g);
    const struct weight *w = gpt_params(g, LAYER_HEAD), *dw = gpt_grads(g, LAYER_HEAD);
    struct xent xent = chunk_xent(g, row, R);
    xent.mask = batch->loss_mask + row;
    xent.weight = batch->loss_weight;
    g->k->xent_grad(g->s, &xent);
    gpt_linear_bwd_weight(
        g, (struct linear_bwd_weight){.dw = &dw[GPT_HEAD_WEIGHT],
                                      .dy = sc->logits,
                                      .dy_row = logit_row,
                                      .x = gpt_at(g, sc->norm, at),
                                      .accumulate = batch->accumulate || row > 0,
                                      .N = R});
    gpt_linear_bwd_input(g,
                         (struct linear_bwd_input){
                             .dx = (char *)grad.dy + (size_t)at * dtype_bytes(grad.dtype),
                             .dx_dtype = grad.dtype,
                             .dy = sc->logits,
                             .dy_row = logit_row,
                             .w = &w[GPT_HEAD_WEIGHT],
                             .N = R});
}

struct gpt_norm gpt_final_norm(const struct gpt *g)
{
    const struct weight *p = gpt_params(g, LAYER_FINAL_NORM);
    const struct weight *d = gpt_grads(g, LAYER_FINAL_NORM);
    return (struct gpt_norm){.gain = p[GPT_FINAL_NORM_WEIGHT].data,
                             .bias = p[GPT_FINAL_NORM_BIAS].data,
                             .dgain = d[GPT_FINAL_NORM_WEIGHT].data,
                             .dbias = d[GPT_FINAL_NORM_BIAS].data,
                             .mean = g->scratch.mean,
                             .rstd = g->scratch.rstd,
                             .partial = g->scratch.partial};
}

void gpt_head(struct gpt *g, const struct batch *batch, const void *x, void *dx)
{
    struct gpt_scratch *sc = &g->scratch;
    struct gpt_norm norm = gpt_final_norm(g);
    int64_t N = batch->B * batch->S;

    for (int64_t b = 0; b < batch->B; b++)
        batch->loss_sums[b] = 0;
    gpt_local_ids(g, sc->targets, batch->targets, N);
    gpt_norm_fwd(g, batch, &norm, sc->norm, x);
    for (int64_t row = 0; row < N; row += g->dims.R) {
        int64_t R = i64_min(g->dims.R, N - row);
        beat(BEAT_HEAD, row);
        chunk_loss(g, batch, row, R);
        if (batch->is_training)
            chunk_grad(g, batch, row, R);
    }
    if (!batch->is_training)
        return;
    device_fill(g->s, dx, 0, gpt_bytes(g, gpt_own_rows(g, batch) * g->dims.H));
    gpt_norm_bwd(g, batch, &norm, dx, x);
    gpt_norm_grads(g, batch, &norm);
}
