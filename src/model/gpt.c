/*
 * The model as a whole: forward and backward of a micro-batch, and what a step needs
 * before and after its micro-batches.
 *
 * Weight gradients of matrices are overwritten by the first micro-batch of a step and
 * accumulated into by the rest; so only the small gradients (biases, norms, positions)
 * need zeroing, and the lookup rows that the step touches.
 */
#include "model/gpt.h"

#include "base/beat.h"
#include "model/gpt_internal.h"

#include <string.h>

/* -- the group that shares each block ------------------------------------------------ */

void gpt_lost_peer(struct gpt *g, const struct error *err)
{
    comm_abort_with(g->model_group, err);
}

void gpt_sum_over_model(struct gpt *g, float *x, int64_t n)
{
    struct error err;
    if (comm_allreduce_f32(g->model_group, x, n, &err))
        gpt_lost_peer(g, &err);
}

void gpt_local_ids(const struct gpt *g, int32_t *local, const int32_t *ids, int64_t N)
{
    for (int64_t n = 0; n < N; n++) {
        int64_t id = ids[n] - g->dims.V_first;
        local[n] = id >= 0 && id < g->dims.V ? (int32_t)id : -1;
    }
}

/* -- one micro-batch ----------------------------------------------------------------- */

static struct dropout embedding_dropout(const struct gpt *g, const struct batch *batch)
{
    if (!batch->is_training)
        return dropout_none();
    return dropout_init(g->embedding_dropout, g->seed, PHILOX_DROP_EMBEDDING, 0,
                        batch->step, batch->first_sample);
}

static bool chunk_has_embedding(const struct gpt *g, int chunk)
{
    return g->part.has_embedding && chunk == 0;
}

static bool chunk_has_head(const struct gpt *g, int chunk)
{
    return g->part.has_head && chunk == g->part.n_chunks - 1;
}

/* Where gradients of blocks hold stashes until a block's backward, it is there that those
 * which accumulate are zeroed. */
static bool is_zeroed_late(const struct gpt *g, int64_t row)
{
    const struct param_table *table = g->params.table;
    if (!g->stashes_in_grads || table->n_blocks == 0)
        return false;
    const struct param_layer *blocks = &table->layers[table->by_kind[LAYER_BLOCK]];
    return row >= blocks[0].first_row && row < blocks[table->n_blocks - 1].end_row;
}

void gpt_start_step(struct gpt *g)
{
    const struct weight *grads = g->params.weights[STORE_GRADS];
    if (g->part.has_embedding)
        g->k->fill(g->s,
                   &(struct fill){gpt_grads(g, LAYER_EMBEDDING)[GPT_POSITION_WEIGHT].data,
                                  0.0F, g->dims.P * g->dims.H});
    for (int64_t i = 0; i < g->params.table->n_params; i++)
        if (g->params.table->params[i].grad == GRAD_ACCUMULATED &&
            !g->params.owner.takes_grads && !is_zeroed_late(g, i))
            g->k->fill(g->s, &(struct fill){grads[i].data, 0.0F,
                                            g->params.table->params[i].n_elements});
}

/* Tokens and positions of a batch, as the rows of this process's embeddings. */
static void set_rows(struct gpt *g, const struct batch *batch)
{
    int64_t N = batch->B * batch->S;
    gpt_local_ids(g, g->scratch.tokens, batch->tokens, N);
    for (int64_t n = 0; n < N; n++)
        g->scratch.positions[n] = (int32_t)(n % batch->S) -
                                  (batch->document_start ? batch->document_start[n] : 0);
}

/* The vocabulary's rows are sharded over ranks; one of them adds the position. */
void gpt_embed(struct gpt *g, const struct batch *batch, void *x)
{
    struct gpt_scratch *sc = &g->scratch;
    struct dropout drop = embedding_dropout(g, batch);
    const struct weight *p = gpt_params(g, LAYER_EMBEDDING);
    const struct weight *wpe = g->part.mp_rank == 0 ? &p[GPT_POSITION_WEIGHT] : NULL;
    g->k->embedding_fwd(g->s, &(struct embedding){.x = sc->hidden,
                                                  .wte = &p[GPT_WORD_WEIGHT],
                                                  .wpe = wpe,
                                                  .tokens = sc->tokens,
                                                  .positions = sc->positions,
                                                  .B = batch->B,
                                                  .S = batch->S,
                                                  .H = g->dims.H});
    gpt_scatter(g, batch, x, sc->hidden, &drop);
}

/* `next`: a block, from 0, or -1. */
static void open_block(struct gpt *g, int64_t block, int64_t next, bool is_backward)
{
    params_open_layer(&g->params, LAYER_BLOCK, block,
                      next < 0 ? -1
                               : param_table_layer(g->params.table, LAYER_BLOCK, next),
                      is_backward);
}

/* In traces the embedding is layer 0. */
static void trace_layer(const struct gpt *g, double start, int64_t block)
{
    trace_end(g->trace, start,
              &(struct trace_span){.name = "layer", .args = {{"layer", block + 1}}});
}

/* x: the input of a chunk's first block. */
static void chunk_input(struct gpt *g, int chunk, const struct batch *batch, void *x,
                        const void *x_in)
{
    if (chunk_has_embedding(g, chunk)) {
        params_open_layer(
            &g->params, LAYER_EMBEDDING, 0,
            param_table_layer(g->params.table, LAYER_BLOCK, g->part.chunks[chunk].first),
            false);
        set_rows(g, batch);
        gpt_embed(g, batch, x);
        params_close_layer(&g->params, LAYER_EMBEDDING, 0, false, batch->is_last);
        return;
    }
    CHECK(x_in, "chunk %d has no input", chunk);
    gpt_copy(g, x, x_in, gpt_own_rows(g, batch) * g->dims.H);
}

/* Final norm and loss of x, what the last block left. */
static void chunk_head(struct gpt *g, const struct batch *batch, struct gpt_stash *st,
                       const void *x)
{
    bool is_training = batch->is_training;
    double start = trace_begin(g->trace);
    params_open_layer(&g->params, LAYER_FINAL_NORM, 0, -1, is_training);
    params_open_layer(&g->params, LAYER_HEAD, 0, -1, is_training);
    gpt_head(g, batch, x, st->dx);
    trace_layer(g, start, g->dims.L);
    params_close_layer(&g->params, LAYER_HEAD, 0, is_training, batch->is_last);
    params_close_layer(&g->params, LAYER_FINAL_NORM, 0, is_training, batch->is_last);
}

/* Where the last block of a chunk leaves its output. */
static void *chunk_output(const struct gpt *g, int chunk, const struct gpt_stash *st,
                          void *x_out)
{
    if (!chunk_has_head(g, chunk))
        return x_out;
    // blocks that only evaluate share one stash, and may write what they read
    return g->scratch.top ? g->scratch.top : st->blocks[0].sub[0].x;
}

void gpt_chunk_forward(struct gpt *g, int chunk, const struct batch *batch,
                       struct gpt_stash *st, const void *x_in, void *x_out)
{
    CHECK(batch->B <= g->dims.B && batch->S <= g->dims.S, "batch of %lld x %lld",
          (long long)batch->B, (long long)batch->S);
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    void *x = st->blocks[0].sub[0].x;
    chunk_input(g, chunk, batch, x, x_in);
    for (int64_t i = first; i < end; i++) {
        bool is_end = i + 1 == end;
        void *to = is_end ? chunk_output(g, chunk, st, x_out)
                          : st->blocks[i + 1 - first].sub[0].x;
        double start = trace_begin(g->trace);
        open_block(g, i, is_end ? -1 : i + 1, false);
        beat(BEAT_FORWARD, i + 1);
        gpt_block_fwd(g, i, batch, &st->blocks[i - first], NULL, x, to);
        params_close_layer(&g->params, LAYER_BLOCK, i, false, batch->is_last);
        trace_layer(g, start, i);
        x = to;
    }
    if (chunk_has_head(g, chunk))
        chunk_head(g, batch, st, x);
}

/* Give every token of the batch a zeroed row of the lookup's gradient, once per step; and
 * tokens[n] := that row, instead of the token. */
static void assign_lookup_rows(struct gpt *g, int32_t *tokens, int64_t N)
{
    struct gpt_lookup *lookup = &g->lookup;
    int64_t H = g->dims.H, n_before = lookup->n_rows;
    for (int64_t n = 0; n < N; n++) {
        int32_t id = tokens[n];
        if (id < 0)
            continue;
        if (lookup->slot[id] < 0) {
            CHECK(lookup->n_rows < lookup->n_rows_most, "%lld rows",
                  (long long)lookup->n_rows);
            lookup->slot[id] = (int32_t)lookup->n_rows;
            lookup->ids[lookup->n_rows++] = id;
        }
        tokens[n] = lookup->slot[id];
    }
    device_fill(g->s, lookup->rows + n_before * H, 0,
                (size_t)((lookup->n_rows - n_before) * H) * sizeof(float));
}

static void embed_bwd(struct gpt *g, const struct batch *batch, const void *dx)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S;
    struct dropout drop = embedding_dropout(g, batch);
    set_rows(g, batch);
    assign_lookup_rows(g, sc->tokens, N);
    g->k->embedding_bwd(
        g->s, &(struct embedding_bwd){
                  .dwte = g->lookup.rows,
                  .dwpe = gpt_grads(g, LAYER_EMBEDDING)[GPT_POSITION_WEIGHT].data,
                  .dx = gpt_dropout_bwd(g, batch, sc->norm, dx, &drop),
                  .tokens = sc->tokens,
                  .positions = sc->positions,
                  .B = batch->B,
                  .S = batch->S,
                  .H = g->dims.H});
}

void gpt_chunk_backward(struct gpt *g, int chunk, const struct batch *batch,
                        struct gpt_stash *st, void *dx, enum gpt_half half)
{
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    bool is_input = half & GPT_BWD_INPUT, is_weight = half & GPT_BWD_WEIGHT;
    if (!dx)
        dx = st->dx;
    else if (chunk_has_head(g, chunk) && is_input)
        gpt_copy(g, dx, st->dx, gpt_own_rows(g, batch) * g->dims.H);
    for (int64_t i = end - 1; i >= first; i--) {
        double start = trace_begin(g->trace);
        open_block(g, i, i > first ? i - 1 : -1, is_weight);
        beat(BEAT_BACKWARD, i + 1);
        gpt_block_bwd(g, i, batch, &st->blocks[i - first], dx, half);
        params_close_layer(&g->params, LAYER_BLOCK, i, is_weight, batch->is_last);
        trace_layer(g, start, i);
    }
    if (chunk_has_embedding(g, chunk) && is_input)
        embed_bwd(g, batch, dx);
}

void gpt_finish_grads(struct gpt *g)
{
    struct gpt_lookup *lookup = &g->lookup;
    int64_t H = g->dims.H;
    if (!g->part.has_embedding)
        return;
    float *dwte = gpt_grads(g, LAYER_EMBEDDING)[GPT_WORD_WEIGHT].data;
    if (!g->part.has_head) // the head's gradient is another stage's
        g->k->fill(g->s, &(struct fill){dwte, 0.0F, g->dims.V * H});
    g->k->add_rows(
        g->s, &(struct add_rows){dwte, lookup->rows, lookup->ids, lookup->n_rows, H});
    for (int64_t i = 0; i < lookup->n_rows; i++)
        lookup->slot[lookup->ids[i]] = -1;
    lookup->n_rows = 0;
}
