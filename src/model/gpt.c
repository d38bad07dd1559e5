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

static void *arena_typed(struct arena *ar, const struct gpt *g, int64_t n)
{
    return arena_bytes(ar, (size_t)n * dtype_bytes(g->dtype));
}

/* The members of a block's stash, in the order in which recomputation gives them up. */
static void layout_core(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    int64_t N = g->dims.B * g->dims.S, A = g->dims.A;
    st->att = arena_typed(ar, g, N * A * g->dims.D);
    st->lse = arena_f32(ar, N * A);
}

static void layout_qkv(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    st->qkv = arena_typed(ar, g, g->dims.B * g->dims.S * 3 * g->dims.A * g->dims.D);
}

static void layout_rest(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    int64_t N = g->dims.B * g->dims.S, own = N / g->sp;
    st->ln1_mean = arena_f32(ar, own);
    st->ln1_rstd = arena_f32(ar, own);
    st->x_mid = arena_typed(ar, g, own * g->dims.H);
    st->ln2_mean = arena_f32(ar, own);
    st->ln2_rstd = arena_f32(ar, own);
    st->fc = arena_typed(ar, g, N * g->dims.F);
}

/* Give a block what it does not recompute; the rest is as it was, shared. */
static void layout_block(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    st->x = arena_typed(ar, g, g->dims.B * g->dims.S / g->sp * g->dims.H);
    if (st->recompute < RECOMPUTE_CORE)
        layout_core(st, ar, g);
    if (st->recompute < RECOMPUTE_ATTENTION)
        layout_qkv(st, ar, g);
    if (st->recompute < RECOMPUTE_BLOCK)
        layout_rest(st, ar, g);
}

/* What blocks share: all but its input of one that is recomputed; everything in a model
 * that only evaluates. */
static void layout_shared(struct block_stash *st, struct arena *ar, const struct gpt *g,
                          const struct gpt_options *opt)
{
    *st = (struct block_stash){0};
    if (!opt->has_grads) {
        layout_block(st, ar, g);
        return;
    }
    if (opt->recompute >= RECOMPUTE_CORE)
        layout_core(st, ar, g);
    if (opt->recompute >= RECOMPUTE_ATTENTION)
        layout_qkv(st, ar, g);
    if (opt->recompute >= RECOMPUTE_BLOCK)
        layout_rest(st, ar, g);
}

static int64_t longest_chunk(const struct param_part *part)
{
    int64_t most = 0;
    for (int c = 0; c < part->n_chunks; c++)
        most = i64_max(most, part->chunks[c].end - part->chunks[c].first);
    return most;
}

/* The i-th block of any chunk: a stash serves all chunks, so it recomputes only what all
 * of them do. */
static enum gpt_recompute recompute_of(const struct gpt_options *opt, int64_t i)
{
    for (int c = 0; c < opt->part.n_chunks && opt->keeps_all; c++) {
        int64_t layer = opt->part.chunks[c].first + i;
        if (layer < opt->part.chunks[c].end && opt->keeps_all[layer])
            return RECOMPUTE_NOTHING;
    }
    return opt->recompute;
}

static void layout_stash(struct gpt_stash *st, struct arena *ar, const struct gpt *g,
                         const struct gpt_options *opt, const struct block_stash *shared)
{
    const struct gpt_dims *d = &g->dims;
    int64_t own = d->B * d->S / g->sp, n_blocks = longest_chunk(&g->part);
    st->blocks = arena_bytes(ar, (size_t)n_blocks * sizeof *st->blocks);
    for (int64_t i = 0; i < n_blocks; i++) {
        struct block_stash block = *shared;
        block.recompute = recompute_of(opt, i);
        if (opt->has_grads)
            layout_block(&block, ar, g);
        if (st->blocks)
            st->blocks[i] = block;
    }
    bool has_head = opt->has_grads && g->part.has_head;
    st->dx = arena_f32(ar, has_head ? own * d->H : 0);
}

static void layout_stashes(struct gpt *g, struct arena *ar, const struct gpt_options *opt)
{
    struct block_stash shared;
    layout_shared(&shared, ar, g, opt);
    g->stashes = arena_bytes(ar, (size_t)opt->n_stashes * sizeof *g->stashes);
    for (int i = 0; i < opt->n_stashes; i++) {
        struct gpt_stash st;
        layout_stash(&st, ar, g, opt, &shared);
        if (g->stashes)
            g->stashes[i] = st;
    }
}

/* Products of a whole micro-batch, and the logits of a chunk of rows, which are never
 * there at the same time. */
static void layout_wide(struct gpt_scratch *sc, struct arena *ar, const struct gpt *g,
                        bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    int64_t N = d->B * d->S, R = i64_min(N, GPT_LOGIT_ROWS);
    int64_t wide = N * i64_max(d->F, 3 * d->A * d->D);
    int64_t logits = g->part.has_head ? R * d->V : 0;
    bool has_two = has_grads && g->dtype == DTYPE_F32;
    sc->wide = arena_f32(ar, has_two ? wide : i64_max(wide, logits));
    sc->dwide = arena_f32(ar, has_two ? i64_max(wide, logits) : 0);
    sc->logits = has_two ? sc->dwide : sc->wide;
}

static void layout_scratch(struct gpt_scratch *sc, struct arena *ar, const struct gpt *g,
                           bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    int64_t N = d->B * d->S, R = i64_min(N, GPT_LOGIT_ROWS), AD = d->A * d->D;
    int64_t widest = i64_max(i64_max(d->F, 3 * AD), 2 * d->H);
    int64_t rows = i64_max(d->S * 4 * AD, GPT_WIDENED_ROWS * d->F);
    bool is_typed = g->dtype != DTYPE_F32;
    sc->stream = arena_f32(ar, is_typed || g->part.has_head ? N / g->sp * d->H : 0);
    sc->norm = arena_f32(ar, N * d->H);
    sc->hidden = arena_f32(ar, N * d->H);
    layout_wide(sc, ar, g, has_grads);
    // backward widens rows while nothing is in the stream
    sc->rows = sc->stream;
    if (is_typed && has_grads && rows > N / g->sp * d->H)
        sc->rows = arena_f32(ar, rows);
    sc->panel = arena_f32(ar, gpt_panel_elements(g));
    sc->delta = arena_f32(ar, has_grads ? N * d->A : 0);
    sc->partial = arena_f32(ar, has_grads ? kernel_partials(N, widest) : 0);
    sc->mean = arena_f32(ar, N);
    sc->rstd = arena_f32(ar, N);
    sc->row_max = arena_f32(ar, R);
    sc->row_sum = arena_f32(ar, 2 * R);
    sc->tokens = arena_i32(ar, N);
    sc->targets = arena_i32(ar, N);
    sc->positions = arena_i32(ar, N);
    sc->bounds = arena_bytes(ar, (size_t)(g->sp + 1) * sizeof *sc->bounds);
}

/* The lookup's gradient is there where the lookup is. */
static void layout_lookup(struct gpt_lookup *lookup, struct arena *ar,
                          const struct gpt *g, const struct gpt_options *opt)
{
    int64_t V = g->part.has_embedding && opt->has_grads ? g->dims.V : 0;
    int64_t most = opt->n_step_tokens > 0 ? opt->n_step_tokens : g->dims.B * g->dims.S;
    lookup->n_rows_most = i64_min(V, most);
    // after the only micro-batch of a step, scratch is free until the gradients are added
    lookup->rows = g->scratch.wide;
    if (!opt->has_one_micro_batch)
        lookup->rows = arena_f32(ar, lookup->n_rows_most * g->dims.H);
    lookup->ids = arena_i32(ar, lookup->n_rows_most);
    lookup->slot = arena_i32(ar, V);
}

static void layout_grads(struct gpt *g, struct arena *ar, const struct gpt_options *opt)
{
    int64_t n =
        opt->has_grads && !opt->grads_are_brought ? g->table.n_bytes[STORE_GRADS] : 0;
    g->d = arena_bytes(ar, (size_t)(g->dims.L + 2) * sizeof *g->d);
    g->grads = arena_bytes(ar, (size_t)n);
}

static void layout_params(struct gpt *g, struct arena *ar, const struct gpt_options *opt)
{
    int64_t n = opt->params_are_brought ? 0 : g->table.n_bytes[STORE_PARAMS];
    g->p = arena_bytes(ar, (size_t)(g->dims.L + 2) * sizeof *g->p);
    g->params = arena_bytes(ar, (size_t)n);
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
        .dtype = opt->dtype,
        .grad_dtype = opt->grad_dtype,
        .fuses_bias = opt->fuses_bias,
    };
    if (param_table_init_part(&g->table, &cfg->model, &opt->part, err))
        return -1;
    param_table_set_types(&g->table, opt->dtype, opt->grad_dtype);
    return 0;
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
    layout_params(&g, &ar, opt);
    mem->params = ar.used_bytes;
    arena_measure(&ar);
    layout_stashes(&g, &ar, opt);
    mem->activations = ar.used_bytes;
    arena_measure(&ar);
    layout_scratch(&g.scratch, &ar, &g, opt->has_grads);
    layout_lookup(&g.lookup, &ar, &g, opt);
    mem->scratch = ar.used_bytes;
    arena_measure(&ar);
    layout_grads(&g, &ar, opt);
    mem->grads = ar.used_bytes;
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
    layout_params(g, &g->arena_params, opt);
    layout_grads(g, &g->arena_grads, opt);
    if (!opt->params_are_brought)
        param_table_bind(&g->table, STORE_PARAMS, g->params, g->p);
    if (opt->has_grads && !opt->grads_are_brought)
        param_table_bind(&g->table, STORE_GRADS, g->grads, g->d);
    layout_stashes(g, &g->arena_acts, opt);
    layout_scratch(&g->scratch, &g->arena_acts, g, opt->has_grads);
    layout_lookup(&g->lookup, &g->arena_acts, g, opt);
    for (int64_t i = 0; i < g->dims.V && g->lookup.n_rows_most > 0; i++)
        g->lookup.slot[i] = -1;
    return 0;
}

int gpt_open(struct gpt *g, const struct config *cfg, int64_t B, bool has_grads,
             struct comm *alone, struct error *err)
{
    struct gpt_options opt = {.B = B,
                              .n_stashes = 1,
                              .has_grads = has_grads,
                              .part = param_part_whole(cfg->model.num_layers),
                              .model_group = alone,
                              .n_step_tokens = cfg->model.vocab_size};
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

void gpt_init_params(struct gpt *g, double std)
{
    enum { BLOCK = 16384 }; // elements a thread draws at a time
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        enum dtype dtype = row->in[STORE_PARAMS].dtype;
        char *to = (char *)g->params + row->in[STORE_PARAMS].at;
#pragma omp parallel for schedule(static)
        for (int64_t at = 0; at < row->n_elements; at += BLOCK) {
            float x[BLOCK];
            int64_t n = i64_min(BLOCK, row->n_elements - at);
            param_init_values(row, at, n, g->seed, std, x);
            dtype_store(to + at * (int64_t)dtype_bytes(dtype), x, dtype, n);
        }
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
    if (g->d[0].wpe)
        g->k->fill(g->d[0].wpe, 0.0F, g->dims.P * g->dims.H);
    if (g->layers.takes_grads)
        return;
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        if (!row->has_decay)
            memset((char *)g->grads + row->in[STORE_GRADS].at, 0,
                   (size_t)row->n_elements * sizeof(float));
    }
}

/* Tokens and positions of a batch, as the rows of this process's embeddings. */
static void set_rows(struct gpt *g, const struct gpt_batch *batch)
{
    int64_t N = batch->B * batch->S;
    gpt_local_ids(g, g->scratch.tokens, batch->tokens, N);
    for (int64_t n = 0; n < N; n++)
        g->scratch.positions[n] = (int32_t)(n % batch->S) -
                                  (batch->document_start ? batch->document_start[n] : 0);
}

/* x (N, H) := the rows of 16-bit embeddings. */
static void embed_typed(const struct gpt *g, float *x, const void *wpe, int64_t N)
{
    enum { PIECE = 1024 };
    const struct gpt_scratch *sc = &g->scratch;
    int64_t H = g->dims.H;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
        int64_t word = sc->tokens[n] * H, position = sc->positions[n] * H;
        for (int64_t c = 0; c < H; c += PIECE) {
            float add[PIECE] = {0}, *to = x + n * H + c;
            int64_t part = i64_min(PIECE, H - c);
            memset(to, 0, (size_t)part * sizeof *to);
            if (word >= 0)
                dtype_load(to, gpt_kept_at(g, g->p[0].wte, word + c), g->dtype, part);
            if (wpe)
                dtype_load(add, gpt_kept_at(g, wpe, position + c), g->dtype, part);
            for (int64_t i = 0; i < part; i++)
                to[i] += add[i];
        }
    }
}

/* The rows of the vocabulary lie with different ranks; one of them adds the position. */
static void embed(struct gpt *g, const struct gpt_batch *batch, float *x)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S;
    struct dropout none = dropout_none(), drop = embedding_dropout(g, batch);
    const void *wpe = g->part.mp_rank == 0 ? g->p[0].wpe : NULL;
    set_rows(g, batch);
    if (g->dtype == DTYPE_F32)
        g->k->embedding_fwd(sc->hidden, g->p[0].wte, wpe, sc->tokens, sc->positions,
                            batch->B, batch->S, g->dims.H, &none);
    else
        embed_typed(g, sc->hidden, wpe, N);
    gpt_scatter(g, batch, x, sc->hidden, &drop);
}

static void open_layer(struct gpt *g, int64_t layer, int64_t next, bool is_backward)
{
    if (g->layers.open)
        g->layers.open(g->layers.context, (int)layer, (int)next, is_backward);
}

static void close_layer(struct gpt *g, int64_t layer, bool is_backward, bool is_last)
{
    if (g->layers.close)
        g->layers.close(g->layers.context, (int)layer, is_backward, is_last);
}

static void trace_layer(const struct gpt *g, double start, int64_t layer)
{
    trace_end(g->trace, start,
              &(struct trace_span){.name = "layer", .args = {{"layer", layer}}});
}

/* The input of a chunk's first block: as its stash keeps it, and as float32. */
static const float *chunk_input(struct gpt *g, int chunk, const struct gpt_batch *batch,
                                struct block_stash *st, const void *x_in)
{
    int64_t n = gpt_own_rows(g, batch) * g->dims.H;
    float *x = gpt_work(g, st->x, g->scratch.stream);
    if (gpt_chunk_has_embedding(g, chunk)) {
        open_layer(g, 0, g->part.chunks[chunk].first + 1, false);
        embed(g, batch, x);
        gpt_keep(g, st->x, x, n);
        close_layer(g, 0, false, batch->is_last);
        return x;
    }
    CHECK(x_in, "chunk %d has no input", chunk);
    memcpy(st->x, x_in, (size_t)n * dtype_bytes(g->dtype));
    return gpt_recall(g, st->x, g->scratch.stream, n);
}

/* Final norm and loss of what the last block left in the stream. */
static void chunk_head(struct gpt *g, const struct gpt_batch *batch, struct gpt_stash *st,
                       double *loss_sums)
{
    int64_t L = g->dims.L;
    double start = trace_begin(g->trace);
    open_layer(g, L + 1, -1, batch->is_training);
    gpt_head(g, batch, g->scratch.stream, loss_sums, st->dx);
    trace_layer(g, start, L + 1);
    close_layer(g, L + 1, batch->is_training, batch->is_last);
}

void gpt_chunk_forward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                       struct gpt_stash *st, const void *x_in, void *x_out,
                       double *loss_sums)
{
    CHECK(batch->B <= g->dims.B && batch->S <= g->dims.S, "batch of %lld x %lld",
          (long long)batch->B, (long long)batch->S);
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    int64_t n = gpt_own_rows(g, batch) * g->dims.H;
    bool has_head = gpt_chunk_has_head(g, chunk);
    const float *x = chunk_input(g, chunk, batch, &st->blocks[0], x_in);
    for (int64_t i = first; i < end; i++) {
        bool is_end = i + 1 == end;
        void *kept = !is_end ? st->blocks[i + 1 - first].x : has_head ? NULL : x_out;
        float *to = kept ? gpt_work(g, kept, g->scratch.stream) : g->scratch.stream;
        double start = trace_begin(g->trace);
        open_layer(g, i + 1, is_end ? -1 : i + 2, false);
        gpt_block_fwd(g, i + 1, batch, &st->blocks[i - first], x, to);
        if (kept)
            gpt_keep(g, kept, to, n);
        close_layer(g, i + 1, false, batch->is_last);
        trace_layer(g, start, i + 1);
        x = to;
    }
    if (has_head)
        chunk_head(g, batch, st, loss_sums);
}

/* Give every token of the batch a zeroed row of the lookup's gradient, once a step; and
 * tokens[n] := that row, instead of the token. */
static void take_lookup_rows(struct gpt *g, int32_t *tokens, int64_t N)
{
    struct gpt_lookup *lookup = &g->lookup;
    int64_t H = g->dims.H;
    for (int64_t n = 0; n < N; n++) {
        int32_t id = tokens[n];
        if (id < 0)
            continue;
        if (lookup->slot[id] < 0) {
            CHECK(lookup->n_rows < lookup->n_rows_most, "%lld rows",
                  (long long)lookup->n_rows);
            lookup->slot[id] = (int32_t)lookup->n_rows;
            lookup->ids[lookup->n_rows] = id;
            memset(lookup->rows + lookup->n_rows * H, 0, (size_t)H * sizeof(float));
            lookup->n_rows++;
        }
        tokens[n] = lookup->slot[id];
    }
}

static void embed_bwd(struct gpt *g, const struct gpt_batch *batch, float *dx)
{
    struct gpt_scratch *sc = &g->scratch;
    int64_t N = batch->B * batch->S;
    struct dropout none = dropout_none(), drop = embedding_dropout(g, batch);
    set_rows(g, batch);
    take_lookup_rows(g, sc->tokens, N);
    const float *all = gpt_dropout_bwd(g, batch, sc->hidden, dx, &drop);
    if (all != sc->hidden)
        g->k->copy(sc->hidden, all, N * g->dims.H);
    g->k->embedding_bwd(g->lookup.rows, g->d[0].wpe, sc->hidden, sc->tokens,
                        sc->positions, batch->B, batch->S, g->dims.H, &none);
}

void gpt_chunk_backward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                        struct gpt_stash *st, float *dx)
{
    int64_t first = g->part.chunks[chunk].first, end = g->part.chunks[chunk].end;
    if (!dx)
        dx = st->dx;
    else if (gpt_chunk_has_head(g, chunk))
        g->k->copy(dx, st->dx, gpt_own_rows(g, batch) * g->dims.H);
    for (int64_t i = end - 1; i >= first; i--) {
        double start = trace_begin(g->trace);
        open_layer(g, i + 1, i > first ? i : -1, true);
        gpt_block_bwd(g, i + 1, batch, &st->blocks[i - first], dx);
        close_layer(g, i + 1, true, batch->is_last);
        trace_layer(g, start, i + 1);
    }
    if (gpt_chunk_has_embedding(g, chunk))
        embed_bwd(g, batch, dx);
}

void gpt_finish_grads(struct gpt *g)
{
    struct gpt_lookup *lookup = &g->lookup;
    int64_t H = g->dims.H;
    float *dwte = g->d[0].wte;
    if (!g->part.has_embedding)
        return;
    if (!g->part.has_head) // the head's gradient is another stage's
        g->k->fill(dwte, 0.0F, g->dims.V * H);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < lookup->n_rows; i++) {
        float *to = dwte + lookup->ids[i] * H;
        for (int64_t c = 0; c < H; c++)
            to[c] += lookup->rows[i * H + c];
        lookup->slot[lookup->ids[i]] = -1;
    }
    lookup->n_rows = 0;
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
    gpt_chunk_backward(g, 0, batch, &g->stashes[0], NULL);
}
