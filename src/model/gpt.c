/*
 * The model as a whole: memory, forward and backward of a micro-batch, and what a step
 * needs before and after its micro-batches.
 *
 * Weight gradients of matrices are overwritten by the first micro-batch of a step and
 * accumulated into by the rest; so only the small gradients (biases, norms, positions)
 * need zeroing, and the lookup rows that the step touches.
 */
#include "model/gpt.h"
#include "model/gpt_internal.h"

#include <string.h>

/* -- memory -------------------------------------------------------------------------- */

static void layout_block(struct block_stash *st, struct arena *ar,
                         const struct gpt_dims *d)
{
    int64_t N = d->B * d->S;
    st->x = arena_f32(ar, N * d->H);
    st->ln1_mean = arena_f32(ar, N);
    st->ln1_rstd = arena_f32(ar, N);
    st->qkv = arena_f32(ar, N * 3 * d->H);
    st->att = arena_f32(ar, N * d->H);
    st->lse = arena_f32(ar, N * d->A);
    st->x_mid = arena_f32(ar, N * d->H);
    st->ln2_mean = arena_f32(ar, N);
    st->ln2_rstd = arena_f32(ar, N);
    st->fc = arena_f32(ar, N * d->F);
}

/* A model that only evaluates needs one block's stash: each block reuses it. */
static void layout_stash(struct gpt_stash *st, struct arena *ar, const struct gpt_dims *d,
                         bool has_grads)
{
    int64_t N = d->B * d->S;
    st->blocks = arena_bytes(ar, (size_t)d->L * sizeof *st->blocks);
    struct block_stash shared = {0};
    if (!has_grads)
        layout_block(&shared, ar, d);
    for (int64_t i = 0; i < d->L; i++) {
        struct block_stash block = shared;
        if (has_grads)
            layout_block(&block, ar, d);
        if (st->blocks)
            st->blocks[i] = block;
    }
    st->x_final = has_grads ? arena_f32(ar, N * d->H) : shared.x;
    st->dx = arena_f32(ar, has_grads ? N * d->H : 0);
}

static void layout_scratch(struct gpt_scratch *sc, struct arena *ar,
                           const struct gpt_dims *d, bool has_grads)
{
    int64_t N = d->B * d->S, R = i64_min(N, GPT_LOGIT_ROWS);
    int64_t wide = i64_max(d->F, 3 * d->H);
    sc->norm = arena_f32(ar, N * d->H);
    sc->hidden = arena_f32(ar, N * d->H);
    sc->wide = arena_f32(ar, N * wide);
    sc->dhidden = arena_f32(ar, has_grads ? N * d->H : 0);
    sc->dwide = arena_f32(ar, has_grads ? N * wide : 0);
    sc->delta = arena_f32(ar, has_grads ? N * d->A : 0);
    sc->partial = arena_f32(ar, has_grads ? kernel_partials(N, wide) : 0);
    sc->logits = arena_f32(ar, R * d->V);
    sc->mean = arena_f32(ar, N);
    sc->rstd = arena_f32(ar, N);
    sc->row_max = arena_f32(ar, R);
    sc->row_sum = arena_f32(ar, R);
    sc->target_logit = arena_f32(ar, R);
    sc->positions = arena_i32(ar, N);
}

static void layout_grads(struct gpt *g, struct arena *ar)
{
    int64_t V = g->dims.V, H = g->dims.H;
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

static struct gpt_dims dims_of(const struct config *cfg, int64_t B)
{
    const struct config_model *m = &cfg->model;
    return (struct gpt_dims){
        .B = B,
        .S = cfg->dataset.max_seq_len,
        .H = m->hidden_size,
        .A = m->num_attention_heads,
        .D = m->hidden_size / m->num_attention_heads,
        .F = m->ffn_hidden_size,
        .V = m->vocab_size,
        .L = m->num_layers,
        .P = m->max_position_embeddings,
    };
}

/* Everything of *g that needs no memory of its own size. */
static int prepare(struct gpt *g, const struct config *cfg, int64_t B, struct error *err)
{
    *g = (struct gpt){
        .k = kernels_best(),
        .dims = dims_of(cfg, B),
        .hidden_dropout = cfg->model.hidden_dropout_prob,
        .attention_dropout = cfg->model.attention_probs_dropout_prob,
        .seed = (uint64_t)cfg->seed,
    };
    return param_table_init(&g->table, &cfg->model, err);
}

int gpt_measure(struct gpt_memory *mem, const struct config *cfg, int64_t B,
                bool has_grads, struct error *err)
{
    struct gpt g;
    struct arena ar;
    *mem = (struct gpt_memory){0};
    if (prepare(&g, cfg, B, err))
        return -1;
    arena_measure(&ar);
    layout_params(&g, &ar);
    mem->params = ar.used_bytes;
    arena_measure(&ar);
    layout_stash(&g.stash, &ar, &g.dims, has_grads);
    mem->activations = ar.used_bytes;
    arena_measure(&ar);
    layout_scratch(&g.scratch, &ar, &g.dims, has_grads);
    mem->scratch = ar.used_bytes;
    if (has_grads) {
        arena_measure(&ar);
        layout_grads(&g, &ar);
        mem->grads = ar.used_bytes;
    }
    param_table_release(&g.table);
    return 0;
}

/* Positions stay as they are while batches have the same length. */
static void fill_positions(struct gpt_scratch *sc, int64_t B, int64_t S)
{
    if (sc->positions_S == S && sc->positions_B >= B)
        return;
    for (int64_t n = 0; n < B * S; n++)
        sc->positions[n] = (int32_t)(n % S);
    sc->positions_B = B;
    sc->positions_S = S;
}

int gpt_open(struct gpt *g, const struct config *cfg, int64_t B, bool has_grads,
             struct error *err)
{
    struct gpt_memory mem;
    if (gpt_measure(&mem, cfg, B, has_grads, err) || prepare(g, cfg, B, err))
        return -1;
    if (arena_open(&g->arena_params, mem.params, "parameters", err) ||
        arena_open(&g->arena_grads, mem.grads, "gradients", err) ||
        arena_open(&g->arena_acts, mem.activations + mem.scratch, "activations", err)) {
        gpt_close(g);
        return -1;
    }
    layout_params(g, &g->arena_params);
    param_table_bind(&g->table, g->params, g->p);
    if (has_grads) {
        layout_grads(g, &g->arena_grads);
        param_table_bind(&g->table, g->grads, g->d);
    }
    layout_stash(&g->stash, &g->arena_acts, &g->dims, has_grads);
    layout_scratch(&g->scratch, &g->arena_acts, &g->dims, has_grads);
    return 0;
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

static void init_normal(float *x, int64_t n, struct philox_key key, double std)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += INIT_BLOCK)
        philox_normal_fill(x + i, i64_min(INIT_BLOCK, n - i), key, (uint64_t)i, std);
}

void gpt_init_params(struct gpt *g, double std)
{
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        float *x = g->params + row->offset;
        if (row->init == INIT_NORMAL)
            init_normal(x, row->n_elements, philox_key(g->seed, PHILOX_INIT, (uint32_t)i),
                        std);
        else
            g->k->fill(x, row->init == INIT_ONES ? 1.0F : 0.0F, row->n_elements);
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

/* Before the first micro-batch of a step: zero what is only ever added to. */
static void clear_small_grads(struct gpt *g)
{
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        if (row->init != INIT_NORMAL)
            g->k->fill(g->grads + row->offset, 0.0F, row->n_elements);
    }
    g->k->fill(g->d[0].wpe, 0.0F, g->dims.P * g->dims.H);
}

void gpt_forward(struct gpt *g, const struct gpt_batch *batch, double *loss_sums)
{
    CHECK(batch->B <= g->dims.B && batch->S <= g->dims.S, "batch of %lld x %lld",
          (long long)batch->B, (long long)batch->S);
    if (batch->is_training && !batch->accumulate)
        clear_small_grads(g);
    fill_positions(&g->scratch, batch->B, batch->S);
    struct dropout drop = embedding_dropout(g, batch);
    struct gpt_stash *st = &g->stash;
    g->k->embedding_fwd(st->blocks[0].x, g->p[0].wte, g->p[0].wpe, batch->tokens,
                        g->scratch.positions, batch->B, batch->S, g->dims.H, &drop);
    for (int64_t i = 0; i < g->dims.L; i++) {
        float *x_out = i + 1 < g->dims.L ? st->blocks[i + 1].x : st->x_final;
        gpt_block_fwd(g, i + 1, batch, &st->blocks[i], x_out);
    }
    gpt_head(g, batch, st->x_final, loss_sums, st->dx);
}

/* Give every token of the batch a zeroed row of dwte_lookup, once a step. */
static void touch_rows(struct gpt *g, const struct gpt_batch *batch)
{
    for (int64_t n = 0; n < batch->B * batch->S; n++) {
        int32_t id = batch->tokens[n];
        if (g->is_touched[id])
            continue;
        g->is_touched[id] = 1;
        g->touched[g->n_touched++] = id;
        memset(g->dwte_lookup + id * g->dims.H, 0,
               (size_t)g->dims.H * sizeof *g->dwte_lookup);
    }
}

void gpt_backward(struct gpt *g, const struct gpt_batch *batch)
{
    struct gpt_stash *st = &g->stash;
    for (int64_t i = g->dims.L - 1; i >= 0; i--)
        gpt_block_bwd(g, i + 1, batch, &st->blocks[i], st->dx);
    struct dropout drop = embedding_dropout(g, batch);
    touch_rows(g, batch);
    g->k->embedding_bwd(g->dwte_lookup, g->d[0].wpe, st->dx, batch->tokens,
                        g->scratch.positions, batch->B, batch->S, g->dims.H, &drop);
}

void gpt_finish_grads(struct gpt *g)
{
    int64_t H = g->dims.H;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < g->n_touched; i++) {
        int64_t at = g->touched[i] * H;
        for (int64_t c = 0; c < H; c++)
            g->d[0].wte[at + c] += g->dwte_lookup[at + c];
        g->is_touched[g->touched[i]] = 0;
    }
    g->n_touched = 0;
}
