/*
 * Decoding. A prompt's rows are those of gpt_block_fwd(); a later token's are computed
 * here, by the same steps with the same roundings, but with products that read a matrix
 * once for a few rows.
 *
 * Cost of a step: one reading of the matrices here, whatever the number of slots, and of
 * the keys and values that the slots keep. Communication: two sums of (R, H) a block over
 * the ranks that share it, the logits brought together over them, and (R, H) from stage
 * to stage.
 */
#include "model/gpt_decode.h"

#include "base/beat.h"
#include "model/gpt_internal.h"

#define PIPE_TAG 0

/* -- memory -------------------------------------------------------------------------- */

static int64_t n_blocks(const struct gpt *g)
{
    return g->part.chunks[0].end - g->part.chunks[0].first;
}

/* Of the whole model, in a process that has the head. */
static int64_t whole_vocabulary(const struct gpt *g)
{
    const struct param_table *table = g->params.table;
    int64_t row = table->layers[param_table_layer(table, LAYER_HEAD, 0)].first_row;
    return table->params[row + GPT_WORD_WEIGHT].split_full;
}

static void layout(struct gpt_decoder *dec, struct arena *ar)
{
    const struct gpt *g = dec->gpt;
    const struct gpt_dims *d = &g->dims;
    int64_t R = dec->n_slots, AD = d->A * d->D, n_all = i64_max(R, d->S);
    int64_t widest = i64_max(i64_max(3 * AD, d->F), d->H), mp = g->part.mp;
    dec->n_past = arena_bytes(ar, (size_t)R * sizeof *dec->n_past);
    dec->cache = arena_f32(ar, R * n_blocks(g) * d->S * 2 * AD);
    dec->x = arena_f32(ar, R * d->H);
    dec->x_mid = arena_f32(ar, R * d->H);
    dec->norm = arena_f32(ar, R * d->H);
    dec->out = arena_f32(ar, R * d->H);
    dec->mean = arena_f32(ar, R);
    dec->rstd = arena_f32(ar, R);
    dec->qkv = arena_f32(ar, R * 3 * AD);
    dec->att = arena_f32(ar, R * AD);
    dec->wide = arena_f32(ar, R * d->F);
    if (g->dtype != DTYPE_F32)
        dec->kept = arena_bytes(ar, (size_t)(R * widest) * dtype_bytes(g->dtype));
    dec->scores = arena_f32(ar, d->A * d->S);
    dec->logits = arena_f32(ar, R * dec->V);
    dec->logit_row = arena_f32(ar, mp > 1 ? dec->V : 0);
    dec->bounds = arena_bytes(ar, (size_t)(mp + 1) * sizeof *dec->bounds);
    dec->gathered = arena_bytes(ar, (size_t)(mp + 1) * sizeof *dec->gathered);
    dec->tokens = arena_i32(ar, n_all);
    dec->positions = arena_i32(ar, n_all);
}

/* No product of the layout overflows when one slot's needs, many times over, do not. */
static int check_slots(const struct gpt_decoder *dec, struct error *err)
{
    const struct gpt_dims *d = &dec->gpt->dims;
    int64_t each = n_blocks(dec->gpt) * d->S * 2 * d->A * d->D +
                   16 * (d->H + d->F + d->A * d->D + d->S) + dec->V;
    int64_t all;
    if (!__builtin_mul_overflow(each, 8 * dec->n_slots, &all))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "%lld texts at a time are more than any memory holds; use fewer",
                     (long long)dec->n_slots);
}

int gpt_decoder_open(struct gpt_decoder *dec, struct gpt *gpt, int64_t n_slots,
                     struct comm *pipe, struct error *err)
{
    struct arena measure;
    CHECK(gpt->part.n_chunks == 1 && gpt->sp == 1 && n_slots > 0, "%d chunks, %lld slots",
          gpt->part.n_chunks, (long long)n_slots);
    *dec = (struct gpt_decoder){.gpt = gpt, .pipe = pipe, .n_slots = n_slots};
    dec->V = gpt->part.has_head ? whole_vocabulary(gpt) : 0;
    if (check_slots(dec, err))
        return -1;
    arena_measure(&measure);
    layout(dec, &measure);
    if (arena_open(&dec->arena, measure.used_bytes, "the keys and values of texts", err))
        return -1;
    layout(dec, &dec->arena);
    for (int r = 0; r < gpt->part.mp; r++) {
        int64_t n = param_share(dec->V, gpt->part.mp, r, &dec->bounds[r]);
        dec->bounds[r + 1] = dec->bounds[r] + n;
    }
    return 0;
}

void gpt_decoder_close(struct gpt_decoder *dec)
{
    arena_close(&dec->arena);
    *dec = (struct gpt_decoder){0};
}

/* (S, 2, A, D) of one slot and one block. */
static float *block_cache(const struct gpt_decoder *dec, int64_t slot, int64_t block)
{
    const struct gpt *g = dec->gpt;
    int64_t i = block - g->part.chunks[0].first;
    return dec->cache + (slot * n_blocks(g) + i) * g->dims.S * 2 * g->dims.A * g->dims.D;
}

/* -- the way in and out of a stage --------------------------------------------------- */

/* x (H) := the rows of 16-bit embeddings. */
static void embed_typed(struct gpt_decoder *dec, float *x, const void *wte, int32_t token,
                        const void *wpe, int32_t position)
{
    const struct gpt *g = dec->gpt;
    int64_t H = g->dims.H;
    if (token >= 0)
        g->k->load(g->s, x, gpt_kept_at(g, wte, token * H), g->dtype, H);
    else
        g->k->fill(g->s, x, 0.0F, H);
    if (!wpe)
        return;
    g->k->load(g->s, dec->norm, gpt_kept_at(g, wpe, position * H), g->dtype, H);
    g->k->add(g->s, x, dec->norm, H);
}

/* x (n, H) := the embeddings of tokens at dec->positions. */
static void embed(struct gpt_decoder *dec, float *x, const int32_t *tokens, int64_t n)
{
    struct gpt *g = dec->gpt;
    int64_t H = g->dims.H;
    const struct weight *p = gpt_params(g, LAYER_EMBEDDING);
    const void *wte = p[GPT_WORD_WEIGHT].data;
    const void *wpe = g->part.mp_rank == 0 ? p[GPT_POSITION_WEIGHT].data : NULL;
    gpt_local_ids(g, dec->tokens, tokens, n);
    if (g->dtype == DTYPE_F32)
        g->k->embedding_fwd(g->s, x,
                            &(struct embedding){.wte = wte,
                                                .wpe = wpe,
                                                .tokens = dec->tokens,
                                                .positions = dec->positions,
                                                .B = 1,
                                                .S = n,
                                                .H = H,
                                                .drop = dropout_none()});
    else
        for (int64_t i = 0; i < n; i++)
            embed_typed(dec, x + i * H, wte, dec->tokens[i], wpe, dec->positions[i]);
    gpt_sum_over_model(g, x, n * H);
}

/* x (n, H) := what this stage begins with. */
static void take_input(struct gpt_decoder *dec, float *x, const int32_t *tokens,
                       int64_t n)
{
    struct gpt *g = dec->gpt;
    struct comm_request req;
    struct error err;
    if (g->part.has_embedding) {
        embed(dec, x, tokens, n);
        return;
    }
    comm_recv_f32_start(dec->pipe, x, n * g->dims.H, comm_rank(dec->pipe) - 1, PIPE_TAG,
                        &req);
    if (comm_wait(&req, &err))
        gpt_lost_peer(g, &err);
}

/* dec->norm := the norm of n rows. */
static void norm_rows(struct gpt_decoder *dec, const float *x, const float *gain,
                      const float *bias, int64_t n)
{
    const struct gpt *g = dec->gpt;
    g->k->layernorm_fwd(g->s, &(struct layernorm){.y = dec->norm,
                                                  .mean = dec->mean,
                                                  .rstd = dec->rstd,
                                                  .x = x,
                                                  .g = gain,
                                                  .b = bias,
                                                  .N = n,
                                                  .C = g->dims.H});
}

/* y (n, O) := x (n, I) w^T + bias, which may be NULL. */
static void multiply_rows(struct gpt_decoder *dec, float *y, const void *w,
                          const float *x, const float *bias, int64_t n, int64_t O,
                          int64_t I)
{
    const struct gpt *g = dec->gpt;
    g->k->matvec(g->s, &(struct matvec){.y = y,
                                        .w = w,
                                        .dtype = g->dtype,
                                        .x = x,
                                        .b = bias,
                                        .R = n,
                                        .O = O,
                                        .I = I});
}

/* The logits of n rows: each process computes those of its part of the vocabulary. */
static void make_logits(struct gpt_decoder *dec, const float *x, int64_t n)
{
    struct gpt *g = dec->gpt;
    const struct gpt_dims *d = &g->dims;
    const struct weight *p = gpt_params(g, LAYER_FINAL_NORM);
    const struct weight *head = gpt_params(g, LAYER_HEAD);
    struct error err;
    for (int r = 0; r <= g->part.mp; r++)
        dec->gathered[r] = n * dec->bounds[r];
    norm_rows(dec, x, p[GPT_FINAL_NORM_WEIGHT].data, p[GPT_FINAL_NORM_BIAS].data, n);
    multiply_rows(dec, dec->logits + n * d->V_first, head[GPT_HEAD_WEIGHT].data,
                  dec->norm, NULL, n, d->V, d->H);
    if (comm_allgather_f32(g->model_group, dec->logits, dec->gathered, &err))
        gpt_lost_peer(g, &err);
    dec->n_logit_rows = n;
}

/* x (n, H) goes to the next stage; or the last n_logits rows of it become logits. */
static void give_output(struct gpt_decoder *dec, const float *x, int64_t n,
                        int64_t n_logits)
{
    struct gpt *g = dec->gpt;
    struct comm_request req;
    struct error err;
    if (g->part.has_head) {
        make_logits(dec, x + (n - n_logits) * g->dims.H, n_logits);
        return;
    }
    comm_send_f32_start(dec->pipe, x, n * g->dims.H, comm_rank(dec->pipe) + 1, PIPE_TAG,
                        &req);
    if (comm_wait(&req, &err))
        gpt_lost_peer(g, &err);
}

const float *gpt_decoder_logits(struct gpt_decoder *dec, int64_t row)
{
    const struct gpt *g = dec->gpt;
    if (!g->part.has_head)
        return NULL;
    if (g->part.mp == 1)
        return dec->logits + row * dec->V;
    for (int r = 0; r < g->part.mp; r++) {
        int64_t first = dec->bounds[r], V = dec->bounds[r + 1] - first;
        g->k->copy(g->s, dec->logit_row + first,
                   dec->logits + dec->n_logit_rows * first + row * V, V);
    }
    return dec->logit_row;
}

/* -- prompts ------------------------------------------------------------------------- */

/* Only the last stage's last block leaves its output as it is: the head takes it up. */
static bool is_rounded_after(const struct gpt *g, int64_t block)
{
    return !g->part.has_head || block + 1 < g->part.chunks[0].end;
}

void gpt_decoder_prompt(struct gpt_decoder *dec, int64_t slot, const int32_t *tokens,
                        int64_t n)
{
    struct gpt *g = dec->gpt;
    int64_t H = g->dims.H, AD = g->dims.A * g->dims.D;
    struct gpt_batch batch = {.B = 1, .S = n, .tokens = tokens};
    struct block_stash st = g->stashes[0].blocks[0]; // shared by all blocks
    float *x = gpt_work(g, st.x, g->scratch.stream);
    CHECK(n > 0 && n <= g->dims.S, "%lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        dec->positions[i] = (int32_t)i;
    take_input(dec, x, tokens, n);
    gpt_keep(g, st.x, x, n * H);
    for (int64_t i = g->part.chunks[0].first; i < g->part.chunks[0].end; i++) {
        beat(BEAT_FORWARD, i + 1);
        gpt_block_fwd(g, i, &batch, &st, x, x);
        g->k->load_matrix(g->s, block_cache(dec, slot, i), gpt_kept_at(g, st.qkv, AD),
                          g->dtype, n, 2 * AD, 3 * AD);
        if (is_rounded_after(g, i))
            gpt_keep(g, st.x, x, n * H);
    }
    dec->n_past[slot] = n;
    give_output(dec, x, n, 1);
}

/* -- later tokens -------------------------------------------------------------------- */

/* As gpt_keep(): what training would round is rounded here too. */
static void round_rows(struct gpt_decoder *dec, float *x, int64_t n)
{
    gpt_keep(dec->gpt, dec->kept, x, n);
}

/* Each row's key and value join its slot's; att (n, A, D) := what its query finds. */
static void attend(struct gpt_decoder *dec, int64_t block, const int64_t *slots,
                   int64_t n)
{
    const struct gpt *g = dec->gpt;
    int64_t A = g->dims.A, D = g->dims.D, AD = A * D;
    for (int64_t i = 0; i < n; i++) {
        const float *qkv = dec->qkv + i * 3 * AD;
        float *cache = block_cache(dec, slots[i], block);
        int64_t n_past = dec->n_past[slots[i]];
        memcpy(cache + n_past * 2 * AD, qkv + AD, (size_t)(2 * AD) * sizeof *qkv);
        g->k->attention_decode(g->s, &(struct attention_decode){.out = dec->att + i * AD,
                                                                .q = qkv,
                                                                .keys = cache,
                                                                .values = cache + AD,
                                                                .kv_row = 2 * AD,
                                                                .scores = dec->scores,
                                                                .n_keys = n_past + 1,
                                                                .A = A,
                                                                .A_kv = A,
                                                                .D = D});
    }
}

/* y (n, H) = res + x (n, I) w^T + bias, summed over the ranks that share the block. */
static void project(struct gpt_decoder *dec, float *y, const float *res, const float *x,
                    const void *w, const float *bias, int64_t n, int64_t I)
{
    struct gpt *g = dec->gpt;
    int64_t H = g->dims.H;
    multiply_rows(dec, dec->out, w, x, NULL, n, H, I);
    gpt_sum_over_model(g, dec->out, n * H);
    g->k->bias_dropout_residual(g->s, &(struct residual){.y = y,
                                                         .res = res,
                                                         .x = dec->out,
                                                         .b = bias,
                                                         .B = 1,
                                                         .S = n,
                                                         .C = H,
                                                         .drop = dropout_none()});
}

static void block_rows(struct gpt_decoder *dec, int64_t block, const int64_t *slots,
                       int64_t n)
{
    struct gpt *g = dec->gpt;
    const struct weight *p = gpt_block_params(g, block);
    int64_t H = g->dims.H, F = g->dims.F, AD = g->dims.A * g->dims.D;

    norm_rows(dec, dec->x, p[GPT_LN1_WEIGHT].data, p[GPT_LN1_BIAS].data, n);
    multiply_rows(dec, dec->qkv, p[GPT_QKV_WEIGHT].data, dec->norm, p[GPT_QKV_BIAS].data,
                  n, 3 * AD, H);
    round_rows(dec, dec->qkv, n * 3 * AD);
    attend(dec, block, slots, n);
    round_rows(dec, dec->att, n * AD);
    project(dec, dec->x_mid, dec->x, dec->att, p[GPT_ATTN_PROJ_WEIGHT].data,
            p[GPT_ATTN_PROJ_BIAS].data, n, AD);
    round_rows(dec, dec->x_mid, n * H);

    norm_rows(dec, dec->x_mid, p[GPT_LN2_WEIGHT].data, p[GPT_LN2_BIAS].data, n);
    multiply_rows(dec, dec->wide, p[GPT_FC_WEIGHT].data, dec->norm, NULL, n, F, H);
    round_rows(dec, dec->wide, n * F);
    g->k->activation_fwd(g->s, &(struct activation_fwd){.act = ACTIVATION_GELU,
                                                        .y = dec->wide,
                                                        .x = dec->wide,
                                                        .b = p[GPT_FC_BIAS].data,
                                                        .N = n,
                                                        .C = F});
    project(dec, dec->x, dec->x_mid, dec->wide, p[GPT_MLP_PROJ_WEIGHT].data,
            p[GPT_MLP_PROJ_BIAS].data, n, F);
    if (is_rounded_after(g, block))
        round_rows(dec, dec->x, n * H);
}

void gpt_decoder_step(struct gpt_decoder *dec, const int64_t *slots,
                      const int32_t *tokens, int64_t n)
{
    struct gpt *g = dec->gpt;
    CHECK(n > 0 && n <= dec->n_slots, "%lld rows", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t n_past = dec->n_past[slots[i]];
        CHECK(n_past > 0 && n_past < g->dims.S, "a token after %lld", (long long)n_past);
        dec->positions[i] = (int32_t)n_past;
    }
    take_input(dec, dec->x, tokens, n);
    round_rows(dec, dec->x, n * g->dims.H);
    for (int64_t i = g->part.chunks[0].first; i < g->part.chunks[0].end; i++) {
        beat(BEAT_TOKEN, i + 1);
        block_rows(dec, i, slots, n);
    }
    for (int64_t i = 0; i < n; i++)
        dec->n_past[slots[i]]++;
    give_output(dec, dec->x, n, n);
}
