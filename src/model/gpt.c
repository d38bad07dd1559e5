/*
 * The model as a whole: memory, forward and backward of a micro-batch, and what a step
 * needs before and after its micro-batches.
 *
 * Weight gradients of matrices are overwritten by the first micro-batch of a step and
 * accumulated into by the rest; so only the small gradients (biases, norms, positions)
 * need zeroing, and the lookup rows that the step touches.
 */
#include "model/gpt.h"

#include "base/log.h"
#include "model/gpt_internal.h"

#include <string.h>

/* -- memory -------------------------------------------------------------------------- */

static void layout_block(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    const struct gpt_dims *d = &g->dims;
    int64_t N = d->B * d->S, own = N / g->sp;
    st->x = arena_f32(ar, own * d->H);
    st->ln1_mean = arena_f32(ar, own);
    st->ln1_rstd = arena_f32(ar, own);
    st->qkv = arena_f32(ar, N * 3 * d->A * d->D);
    st->att = arena_f32(ar, N * d->A * d->D);
    st->lse = arena_f32(ar, N * d->A);
    st->x_mid = arena_f32(ar, own * d->H);
    st->ln2_mean = arena_f32(ar, own);
    st->ln2_rstd = arena_f32(ar, own);
    st->fc = arena_f32(ar, N * d->F);
}

static int64_t longest_chunk(const struct param_part *part)
{
    int64_t most = 0;
    for (int c = 0; c < part->n_chunks; c++)
        most = i64_max(most, part->chunks[c].end - part->chunks[c].first);
    return most;
}

/* A model that only evaluates needs one block's stash: each block reuses it. */
static void layout_stash(struct gpt_stash *st, struct arena *ar, const struct gpt *g,
                         bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    int64_t own = d->B * d->S / g->sp, n_blocks = longest_chunk(&g->part);
    st->blocks = arena_bytes(ar, (size_t)n_blocks * sizeof *st->blocks);
    struct block_stash shared = {0};
    if (!has_grads)
        layout_block(&shared, ar, g);
    for (int64_t i = 0; i < n_blocks; i++) {
        struct block_stash block = shared;
        if (has_grads)
            layout_block(&block, ar, g);
        if (st->blocks)
            st->blocks[i] = block;
    }
    bool has_head = has_grads && g->part.has_head;
    st->x_final = has_head ? arena_f32(ar, own * d->H) : shared.x;
    st->dx = arena_f32(ar, has_head ? own * d->H : 0);
}

static void layout_stashes(struct gpt *g, struct arena *ar, int n_stashes, bool has_grads)
{
    g->stashes = arena_bytes(ar, (size_t)n_stashes * sizeof *g->stashes);
    for (int i = 0; i < n_stashes; i++) {
        struct gpt_stash st;
        layout_stash(&st, ar, g, has_grads);
        if (g->stashes)
            g->stashes[i] = st;
    }
}

static void layout_scratch(struct gpt_scratch *sc, struct arena *ar, const struct gpt *g,
                           bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    int64_t N = d->B * d->S, R = i64_min(N, GPT_LOGIT_ROWS);
    int64_t wide = i64_max(d->F, 3 * d->A * d->D);
    sc->norm = arena_f32(ar, N * d->H);
    sc->hidden = arena_f32(ar, N * d->H);
    sc->wide = arena_f32(ar, N * wide);
    sc->dhidden = arena_f32(ar, has_grads ? N * d->H : 0);
    sc->dwide = arena_f32(ar, has_grads ? N * wide : 0);
    sc->delta = arena_f32(ar, has_grads ? N * d->A : 0);
    sc->partial =
        arena_f32(ar, has_grads ? kernel_partials(N, i64_max(wide, 2 * d->H)) : 0);
    sc->logits = arena_f32(ar, g->part.has_head ? R * d->V : 0);
    sc->mean = arena_f32(ar, N);
    sc->rstd = arena_f32(ar, N);
    sc->row_max = arena_f32(ar, R);
    sc->row_sum = arena_f32(ar, 2 * R);
    sc->tokens = arena_i32(ar, N);
    sc->targets = arena_i32(ar, N);
    sc->positions = arena_i32(ar, N);
    sc->bounds = arena_bytes(ar, (size_t)(g->sp + 1) * sizeof *sc->bounds);
}

/* The lookup's gradient is there where the lookup is; untouched rows stay unmapped. */
static void layout_grads(struct gpt *g, struct arena *ar)
{
    int64_t V = g->part.has_embedding ? g->dims.V : 0, H = g->dims.H;
    g->grads = arena_f32(ar, g->table.n_flat);
    g->d = arena_bytes(ar, (size_t)(g->dims.L + 2) * sizeof *g->d);
    g->dwte_lookup = arena_f32(ar, V * H);
    g->touched = arena_i32(ar, V);
    g->is_touched = arena_bytes(ar, (size_t)V);
}

static void layout_params(struct gpt *g, struct arena *ar)
{
    g->params = arena_f32(ar, g->table.n_flat);
    g->p = arena_bytes(ar, (size_t)(g->dims.L + 2) * sizeof *g->p);
}

static struct gpt_dims dims_of(const struct config *cfg, const struct gpt_options *opt)
{
    const struct config_model *m = &cfg->model;
    const struct param_part *part = &opt->part;
    int64_t F_first;
    struct gpt_dims d = {
        .B = opt->B,
        .S = cfg->dataset.max_seq_len,
        .H = m->hidden_size,
        .D = m->hidden_size / m->num_attention_heads,
        .L = m->num_layers,
        .P = m->max_position_embeddings,
    };
    d.A = param_share(m->num_attention_heads, part->mp, part->mp_rank, &d.A_first);
    d.F = param_share(m->ffn_hidden_size, part->mp, part->mp_rank, &F_first);
    d.V = param_share(m->vocab_size, part->mp, part->mp_rank, &d.V_first);
    return d;
}

/* Everything of *g that needs no memory of its own size. */
static int prepare(struct gpt *g, const struct config *cfg, const struct gpt_options *opt,
                   struct error *err)
{
    *g = (struct gpt){
        .k = kernels_best(),
        .dims = dims_of(cfg, opt),
        .part = opt->part,
        .hidden_dropout = cfg->model.hidden_dropout_prob,
        .attention_dropout = cfg->model.attention_probs_dropout_prob,
        .seed = (uint64_t)cfg->seed,
        .model_group = opt->model_group,
        .sp = opt->sequence_parallel ? opt->part.mp : 1,
    };
    return param_table_init_part(&g->table, &cfg->model, &opt->part, err);
}

int gpt_measure(struct gpt_memory *mem, const struct config *cfg,
                const struct gpt_options *opt, struct error *err)
{
    struct gpt g;
    struct arena ar;
    *mem = (struct gpt_memory){0};
    if (prepare(&g, cfg, opt, err))
        return -1;
    arena_measure(&ar);
    layout_params(&g, &ar);
    mem->params = ar.used_bytes;
    arena_measure(&ar);
    layout_stashes(&g, &ar, opt->n_stashes, opt->has_grads);
    mem->activations = ar.used_bytes;
    arena_measure(&ar);
    layout_scratch(&g.scratch, &ar, &g, opt->has_grads);
    mem->scratch = ar.used_bytes;
    if (opt->has_grads) {
        arena_measure(&ar);
        layout_grads(&g, &ar);
        mem->grads = ar.used_bytes;
    }
    param_table_release(&g.table);
    return 0;
}

int gpt_open_part(struct gpt *g, const struct config *cfg, const struct gpt_options *opt,
                  struct error *err)
{
    struct gpt_memory mem;
    if (gpt_measure(&mem, cfg, opt, err) || prepare(g, cfg, opt, err))
        return -1;
    if (arena_open(&g->arena_params, mem.params, "parameters", err) ||
        arena_open(&g->arena_grads, mem.grads, "gradients", err) ||
        arena_open(&g->arena_acts, mem.activations + mem.scratch, "activations", err)) {
        gpt_close(g);
        return -1;
    }
    layout_params(g, &g->arena_params);
    param_table_bind(&g->table, g->params, g->p);
    if (opt->has_grads) {
        layout_grads(g, &g->arena_grads);
        param_table_bind(&g->table, g->grads, g->d);
    }
    layout_stashes(g, &g->arena_acts, opt->n_stashes, opt->has_grads);
    layout_scratch(&g->scratch, &g->arena_acts, g, opt->has_grads);
    return 0;
}

int gpt_open(struct gpt *g, const struct config *cfg, int64_t B, bool has_grads,
             struct comm *alone, struct error *err)
{
    struct gpt_options opt = {.B = B,
                              .n_stashes = 1,
                              .has_grads = has_grads,
                              .part = param_part_whole(cfg->model.num_layers),
                              .model_group = alone};
    return gpt_open_part(g, cfg, &opt, err);
}

void gpt_close(struct gpt *g)
{
    arena_close(&g->arena_params);
    arena_close(&g->arena_grads);
    arena_close(&g->arena_acts);
    param_table_release(&g->table);
    *g = (struct gpt){0};
}

/* -- initial weights ----------------------------------------------------------------- */

#define INIT_BLOCK 65536 // elements a thread draws at a time

/* x[i] := element first + i of the parameter's stream. */
static void init_normal(float *x, int64_t n, struct philox_key key, int64_t first,
                        double std)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += INIT_BLOCK)
        philox_normal_fill(x + i, i64_min(INIT_BLOCK, n - i), key, (uint64_t)(first + i),
                           std);
}

void gpt_init_params(struct gpt *g, double std)
{
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        float *x = g->params + row->offset;
        if (row->init != INIT_NORMAL) {
            g->k->fill(x, row->init == INIT_ONES ? 1.0F : 0.0F, row->n_elements);
            continue;
        }
        struct philox_key key = philox_key(g->seed, PHILOX_INIT, (uint32_t)row->number);
        struct param_runs runs = param_runs(row);
        for (int64_t r = 0; r < runs.n_runs; r++)
            init_normal(x + r * runs.run_length, runs.run_length, key,
                        runs.first + r * runs.run_stride, std);
    }
}

/* -- the group that shares each block ------------------------------------------------ */

void gpt_lost_peer(struct gpt *g, const struct error *err)
{
    log_error("%s", err->text);
    comm_abort(g->model_group, error_exit_code(err));
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

static struct dropout embedding_dropout(const struct gpt *g,
                                        const struct gpt_batch *batch)
{
    if (!batch->is_training)
        return dropout_none();
    return dropout_init(g->hidden_dropout, g->seed, PHILOX_DROP_EMBEDDING, 0, batch->step,
                        batch->first_sample);
}

bool gpt_chunk_has_embedding(const struct gpt *g, int chunk)
{
    return g->part.has_embedding && chunk == 0;
}

bool gpt_chunk_has_head(const struct gpt *g, int chunk)
{
    return g->part.has_head && chunk == g->part.n_chunks - 1;
}

void gpt_start_step(struct gpt *g)
{
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        if (row->init != INIT_NORMAL)
            g->k->fill(g->grads + row->offset, 0.0F, row->n_elements);
    }
    if (g->d[0].wpe)
        g->k->fill(g->d[0].wpe, 0.0F, g->dims.P * g->dims.H);
}

/* The rows of the vocabulary lie with different ranks; one of them adds the position. */
static void embed(struct gpt *g, const struct gpt_batch *batch, float *x)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S, H = g->dims.H;
    struct dropout none = dropout_none(), drop = embedding_dropout(g, batch);
    for (int64_t n = 0; n < N; n++)
        sc->positions[n] = (int32_t)(n % batch->S);
    gpt_local_ids(g, sc->tokens, batch->tokens, N);
    g->k->embedding_fwd(sc->hidden, g->p[0].wte,
                        g->part.mp_rank == 0 ? g->p[0].wpe : NULL, sc->tokens,
                        sc->positions, batch->B, batch->S, H, &none);
    gpt_scatter(g, batch, x, sc->hidden, &drop);
}

static void layer_is_done(struct gpt *g, const struct gpt_batch *batch, int64_t layer)
{
    if (batch->is_last && g->on_layer_done)
        g->on_layer_done(g->context, (int)layer);
}

static void trace_layer(const struct gpt *g, double start, int64_t layer)
{
    trace_end(g->trace, start,
              &(struct trace_span){.name = "layer", .args = {{"layer", layer}}});
}

void gpt_chunk_forward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                       struct gpt_stash *st, const float *x_in, float *x_out,
                       double *loss_sums)
{
    CHECK(batch->B <= g->dims.B && batch->S <= g->dims.S, "batch of %lld x %lld",
          (long long)batch->B, (long long)batch->S);
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    bool has_head = gpt_chunk_has_head(g, chunk);
    double start;
    if (gpt_chunk_has_embedding(g, chunk))
        embed(g, batch, st->blocks[0].x);
    else
        g->k->copy(st->blocks[0].x, x_in, gpt_own_rows(g, batch) * g->dims.H);
    for (int64_t i = first; i < end; i++) {
        float *last = has_head ? st->x_final : x_out;
        float *to = i + 1 < end ? st->blocks[i + 1 - first].x : last;
        start = trace_begin(g->trace);
        gpt_block_fwd(g, i + 1, batch, &st->blocks[i - first], to);
        trace_layer(g, start, i + 1);
    }
    if (!has_head)
        return;
    start = trace_begin(g->trace);
    gpt_head(g, batch, st->x_final, loss_sums, st->dx);
    trace_layer(g, start, g->dims.L + 1);
    if (batch->is_training)
        layer_is_done(g, batch, g->dims.L + 1);
}

/* Give every token of the batch a zeroed row of dwte_lookup, once a step. */
static void touch_rows(struct gpt *g, const int32_t *tokens, int64_t N)
{
    for (int64_t n = 0; n < N; n++) {
        int32_t id = tokens[n];
        if (id < 0 || g->is_touched[id])
            continue;
        g->is_touched[id] = 1;
        g->touched[g->n_touched++] = id;
        memset(g->dwte_lookup + id * g->dims.H, 0,
               (size_t)g->dims.H * sizeof *g->dwte_lookup);
    }
}

static void embed_bwd(struct gpt *g, const struct gpt_batch *batch, float *dx)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S;
    struct dropout none = dropout_none(), drop = embedding_dropout(g, batch);
    gpt_local_ids(g, sc->tokens, batch->tokens, N);
    for (int64_t n = 0; n < N; n++)
        sc->positions[n] = (int32_t)(n % batch->S);
    touch_rows(g, sc->tokens, N);
    const float *all = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    if (all != sc->hidden)
        g->k->copy(sc->hidden, all, N * g->dims.H);
    g->k->embedding_bwd(g->dwte_lookup, g->d[0].wpe, sc->hidden, sc->tokens,
                        sc->positions, batch->B, batch->S, g->dims.H, &none);
}

void gpt_chunk_backward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                        struct gpt_stash *st, float *dx)
{
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    if (gpt_chunk_has_head(g, chunk) && dx != st->dx)
        g->k->copy(dx, st->dx, gpt_own_rows(g, batch) * g->dims.H);
    for (int64_t i = end - 1; i >= first; i--) {
        double start = trace_begin(g->trace);
        gpt_block_bwd(g, i + 1, batch, &st->blocks[i - first], dx);
        trace_layer(g, start, i + 1);
        layer_is_done(g, batch, i + 1);
    }
    if (gpt_chunk_has_embedding(g, chunk))
        embed_bwd(g, batch, dx);
}

void gpt_finish_grads(struct gpt *g)
{
    int64_t H = g->dims.H;
    if (!g->part.has_embedding)
        return;
    if (!g->part.has_head) // the head's gradient is another stage's
        g->k->fill(g->d[0].wte, 0.0F, g->dims.V * H);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < g->n_touched; i++) {
        int64_t at = g->touched[i] * H;
        for (int64_t c = 0; c < H; c++)
            g->d[0].wte[at + c] += g->dwte_lookup[at + c];
        g->is_touched[g->touched[i]] = 0;
    }
    g->n_touched = 0;
}

/* -- a whole model ------------------------------------------------------------------- */

void gpt_forward(struct gpt *g, const struct gpt_batch *batch, double *loss_sums)
{
    if (batch->is_training && !batch->accumulate)
        gpt_start_step(g);
    gpt_chunk_forward(g, 0, batch, &g->stashes[0], NULL, NULL, loss_sums);
}

void gpt_backward(struct gpt *g, const struct gpt_batch *batch)
{
    gpt_chunk_backward(g, 0, batch, &g->stashes[0], g->stashes[0].dx);
}
