/*
 * Decoding. A prompt's rows and a later token's go through the same gpt_block_fwd(): the
 * first as one sequence, the others as one row per text against its cache.
 *
 * Cost of a step: one read of the matrices here, whatever the number of slots, and of the
 * keys and values that the slots hold. Communication: two all-reduces of (R, H) per block
 * over the ranks that share it, one all-gather of the logits over them, and (R, H) from
 * stage to stage.
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

/* The vocabulary of the whole model, in a process that has the head. */
static int64_t whole_vocabulary(const struct gpt *g)
{
    const struct param_table *table = g->params.table;
    int64_t row = table->layers[param_table_layer(table, LAYER_HEAD, 0)].first_row;
    return table->params[row + GPT_WORD_WEIGHT].split_full;
}

static void layout_decoder(struct gpt_decoder *dec, struct arena *ar)
{
    const struct gpt *g = dec->gpt;
    const struct gpt_dims *d = &g->dims;
    int64_t R = dec->n_slots, mp = g->part.mp;
    dec->n_past = arena_table(ar, (size_t)R * sizeof *dec->n_past);
    dec->cache = arena_bytes(ar, gpt_bytes(g, R * n_blocks(g) * d->S * 2 * d->A * d->D));
    dec->scores = arena_f32(ar, d->A * d->S);
    dec->logits = arena_f32(ar, R * dec->V);
    dec->logit_row = arena_table(ar, (size_t)dec->V * sizeof *dec->logit_row);
    dec->bounds = arena_table(ar, (size_t)(mp + 1) * sizeof *dec->bounds);
    dec->gathered = arena_table(ar, (size_t)(mp + 1) * sizeof *dec->gathered);
}

int gpt_decoder_open(struct gpt_decoder *dec, struct gpt *gpt, int64_t n_slots,
                     struct comm *pipe, struct error *err)
{
    struct arena measure;
    CHECK(gpt->part.n_chunks == 1 && gpt->sp == 1, "%d chunks", gpt->part.n_chunks);
    CHECK(n_slots > 0, "%lld slots", (long long)n_slots);
    *dec = (struct gpt_decoder){
        .gpt = gpt, .pipe = pipe, .n_slots = i64_min(n_slots, gpt->dims.N)};
    dec->V = gpt->part.has_head ? whole_vocabulary(gpt) : 0;
    arena_measure(&measure);
    layout_decoder(dec, &measure);
    const char *what = "the keys and values of texts";
    if (arena_open(&dec->arena_tables, measure.table_bytes, what, err))
        return -1;
    if (device_arena_open(gpt->dev, &dec->arena, measure.used_bytes, &dec->arena_tables,
                          what, err)) {
        gpt_decoder_close(dec);
        return -1;
    }
    layout_decoder(dec, &dec->arena);
    for (int r = 0; r < gpt->part.mp; r++) {
        int64_t n = param_share(dec->V, gpt->part.mp, r, &dec->bounds[r]);
        dec->bounds[r + 1] = dec->bounds[r] + n;
    }
    return 0;
}

void gpt_decoder_close(struct gpt_decoder *dec)
{
    if (dec->gpt)
        device_arena_close(dec->gpt->dev, &dec->arena);
    arena_close(&dec->arena_tables);
    *dec = (struct gpt_decoder){0};
}

/* -- input and output of a stage ----------------------------------------------------- */

/* x (rows, H) := what this stage begins with; the rows' positions are in scratch. */
static void stage_input(struct gpt_decoder *dec, const struct batch *batch, void *x)
{
    struct gpt *g = dec->gpt;
    struct comm_request req;
    struct error err;
    if (g->part.has_embedding) {
        gpt_local_ids(g, g->scratch.tokens, batch->tokens, batch->S);
        gpt_embed(g, batch, x);
        return;
    }
    comm_recv_bytes_start(dec->pipe, x, (int64_t)gpt_bytes(g, batch->S * g->dims.H),
                          comm_rank(dec->pipe) - 1, PIPE_TAG, &req);
    if (comm_wait(&req, &err))
        gpt_lost_peer(g, &err);
}

/* The logits of n rows: each process computes those of its part of the vocabulary. */
static void make_logits(struct gpt_decoder *dec, const void *x, int64_t n)
{
    struct gpt *g = dec->gpt;
    const struct gpt_dims *d = &g->dims;
    const struct weight *head = gpt_params(g, LAYER_HEAD);
    struct gpt_norm norm = gpt_final_norm(g);
    struct error err;
    for (int r = 0; r <= g->part.mp; r++)
        dec->gathered[r] = n * dec->bounds[r];
    gpt_norm_fwd(g, &(struct batch){.B = 1, .S = n}, &norm, g->scratch.norm, x);
    g->k->matvec(g->s, &(struct matvec){.y = dec->logits + n * d->V_first,
                                        .y_dtype = DTYPE_F32,
                                        .w = &head[GPT_HEAD_WEIGHT],
                                        .x = g->scratch.norm,
                                        .R = n});
    if (comm_allgather_f32(g->model_group, dec->logits, dec->gathered, &err))
        gpt_lost_peer(g, &err);
    dec->n_logit_rows = n;
}

/* x (n, H) goes to the next stage; or the last n_logits rows of it become logits. */
static void stage_output(struct gpt_decoder *dec, const void *x, int64_t n,
                         int64_t n_logits)
{
    struct gpt *g = dec->gpt;
    struct comm_request req;
    struct error err;
    if (g->part.has_head) {
        make_logits(dec, gpt_at_const(g, x, (n - n_logits) * g->dims.H), n_logits);
        return;
    }
    comm_send_bytes_start(dec->pipe, x, (int64_t)gpt_bytes(g, n * g->dims.H),
                          comm_rank(dec->pipe) + 1, PIPE_TAG, &req);
    if (comm_wait(&req, &err))
        gpt_lost_peer(g, &err);
}

const float *gpt_decoder_logits(struct gpt_decoder *dec, int64_t row)
{
    const struct gpt *g = dec->gpt;
    if (!g->part.has_head)
        return NULL;
    for (int r = 0; r < g->part.mp; r++) {
        int64_t first = dec->bounds[r], V = dec->bounds[r + 1] - first;
        device_copy(g->s, dec->logit_row + first,
                    dec->logits + dec->n_logit_rows * first + row * V,
                    (size_t)V * sizeof(float), COPY_TO_HOST);
    }
    device_synchronize(g->s);
    return dec->logit_row;
}

/* -- prompts and later tokens -------------------------------------------------------- */

/* The keys and values of a prompt's n rows, from where a block's forward left them. */
static void cache_prompt(const struct gpt *g, void *cache, const void *qkv, int64_t n)
{
    int64_t AD = g->dims.A * g->dims.D;
    for (int64_t i = 0; i < n; i++)
        gpt_copy(g, gpt_at(g, cache, i * 2 * AD), gpt_at_const(g, qkv, (3 * i + 1) * AD),
                 2 * AD);
}

/* The rows of the batch through this stage: one for each of `slots`, or the prompt of the
 * only one. */
static void stage_rows(struct gpt_decoder *dec, const struct batch *batch,
                       const int64_t *slots, bool is_prompt)
{
    struct gpt *g = dec->gpt;
    int64_t n = batch->S, first = g->part.chunks[0].first;
    int64_t each = g->dims.S * 2 * g->dims.A * g->dims.D;
    struct block_stash st = g->stashes[0].blocks[0]; // shared by all blocks
    struct gpt_kv_rows kv = {.slots = slots,
                             .n_past = dec->n_past,
                             .slot_stride = n_blocks(g) * each,
                             .scores = dec->scores};
    void *x = st.sub[0].x;
    stage_input(dec, batch, x);
    for (int64_t i = first; i < g->part.chunks[0].end; i++) {
        kv.cache = gpt_at(g, dec->cache, (i - first) * each);
        beat(is_prompt ? BEAT_FORWARD : BEAT_TOKEN, i + 1);
        gpt_block_fwd(g, i, batch, &st, is_prompt ? NULL : &kv, x, x);
        if (is_prompt)
            cache_prompt(g, gpt_at(g, kv.cache, slots[0] * kv.slot_stride), st.sub[0].in,
                         n);
    }
    stage_output(dec, x, n, is_prompt ? 1 : n);
}

void gpt_decoder_prompt(struct gpt_decoder *dec, int64_t slot, const int32_t *tokens,
                        int64_t n)
{
    CHECK(n > 0 && n <= dec->gpt->dims.S, "%lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        dec->gpt->scratch.positions[i] = (int32_t)i;
    stage_rows(dec, &(struct batch){.B = 1, .S = n, .tokens = tokens}, &slot, true);
    dec->n_past[slot] = n;
}

void gpt_decoder_step(struct gpt_decoder *dec, const int64_t *slots,
                      const int32_t *tokens, int64_t n)
{
    struct gpt *g = dec->gpt;
    CHECK(n > 0 && n <= dec->n_slots, "%lld rows", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t n_past = dec->n_past[slots[i]];
        CHECK(n_past > 0 && n_past < g->dims.S, "a token after %lld", (long long)n_past);
        g->scratch.positions[i] = (int32_t)n_past;
    }
    stage_rows(dec, &(struct batch){.B = 1, .S = n, .tokens = tokens}, slots, false);
    for (int64_t i = 0; i < n; i++)
        dec->n_past[slots[i]]++;
}
