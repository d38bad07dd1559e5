/*
 * The memory of a model, measured and laid out by the same functions.
 *
 * A stash serves any chunk of any micro-batch. What blocks recompute lies in one stash
 * that they share. Scratch buffers that are never in use at the same time share memory,
 * where that does not cost a copy.
 *
 * In a step of one micro-batch a block's gradients are written once, by its backward.
 * Before it their memory is free: there later blocks, whose backward is over by then,
 * stash what fits, one after the other.
 */
#include "model/gpt.h"
#include "model/gpt_internal.h"

#define LOGIT_BYTES ((int64_t)64 << 20)
#define LOGIT_ROWS_UNIT 512

/* Where a stash is laid out: in borrowed memory where it fits, else in its own. */
struct space {
    struct arena *own, spare;
};

static void *space_bytes(struct space *space, size_t bytes)
{
    bool fits = arena_has_room(&space->spare, bytes);
    return arena_bytes(fits ? &space->spare : space->own, bytes);
}

static void *space_typed(struct space *space, const struct gpt *g, int64_t n)
{
    return space_bytes(space, gpt_bytes(g, n));
}

static float *space_f32(struct space *space, int64_t n)
{
    return space_bytes(space, (size_t)n * sizeof(float));
}

/* Which members of a block's stash recomputation drops. Attention's output is a third of
 * the size of its input and takes as long to compute: RECOMPUTE_ATTENTION stashes it. */
static bool gives_up_core(enum gpt_recompute r)
{
    return r == RECOMPUTE_CORE || r == RECOMPUTE_BLOCK;
}

static bool gives_up_qkv(enum gpt_recompute r)
{
    return r == RECOMPUTE_ATTENTION || r == RECOMPUTE_BLOCK;
}

static void layout_core(struct block_stash *st, struct space *space, const struct gpt *g)
{
    st->sub[0].mixed = space_typed(space, g, g->dims.N * g->dims.A * g->dims.D);
    st->sub[0].lse = space_f32(space, g->dims.N * g->dims.A);
}

static void layout_qkv(struct block_stash *st, struct space *space, const struct gpt *g)
{
    st->sub[0].in = space_typed(space, g, g->dims.N * 3 * g->dims.A * g->dims.D);
}

static void layout_rest(struct block_stash *st, struct space *space, const struct gpt *g)
{
    int64_t own = g->dims.N / g->sp;
    st->sub[1].in = space_typed(space, g, g->dims.N * g->dims.F);
    st->sub[1].x = space_typed(space, g, own * g->dims.H);
    for (size_t s = 0; s < ARRAY_LEN(st->sub); s++) {
        st->sub[s].mean = space_f32(space, own);
        st->sub[s].rstd = space_f32(space, own);
    }
}

/* What the input half of backward leaves for the weight half. */
static void layout_halves(struct block_stash *st, struct arena *ar, const struct gpt *g)
{
    const struct gpt_dims *d = &g->dims;
    const int64_t in_width[] = {3 * d->A * d->D, d->F};
    for (size_t s = 0; s < ARRAY_LEN(st->sub); s++) {
        st->sub[s].dout = arena_bytes(ar, gpt_bytes(g, d->N * d->H));
        st->sub[s].din = arena_bytes(ar, gpt_bytes(g, d->N * in_width[s]));
        st->sub[s].partial = arena_f32(ar, gpt_norm_partials(g));
    }
}

/* Give a block what it does not recompute, large arrays first; the rest is as it was,
 * shared. */
static void layout_block(struct block_stash *st, struct space *space, const struct gpt *g)
{
    if (st->recompute != RECOMPUTE_BLOCK)
        layout_rest(st, space, g);
    if (!gives_up_qkv(st->recompute))
        layout_qkv(st, space, g);
    st->sub[0].x = space_typed(space, g, g->dims.N / g->sp * g->dims.H);
    if (!gives_up_core(st->recompute))
        layout_core(st, space, g);
}

/* What blocks share: all but its input of one that is recomputed; everything in a model
 * that only evaluates. */
static void layout_shared(struct block_stash *st, struct arena *ar, const struct gpt *g,
                          const struct gpt_options *opt)
{
    struct space space = {.own = ar};
    *st = (struct block_stash){0};
    if (!opt->has_grads) {
        layout_block(st, &space, g);
        return;
    }
    if (gives_up_core(opt->recompute))
        layout_core(st, &space, g);
    if (gives_up_qkv(opt->recompute))
        layout_qkv(st, &space, g);
    if (opt->recompute == RECOMPUTE_BLOCK)
        layout_rest(st, &space, g);
}

/* Whether nothing is in the gradients of blocks before their backward, and nothing but
 * them is there: gaps behind matrices must stay zero. Vectors, with their gaps, are zeroed
 * when a block's backward begins. */
static bool grads_are_free(const struct gpt_options *opt)
{
    const struct param_table *table = opt->table;
    if (!opt->has_grads || !opt->has_one_micro_batch || opt->n_stashes != 1 ||
        opt->part.n_chunks != 1 || opt->grads_are_owned || opt->splits_backward)
        return false;
    for (int i = 0; i < table->n_layers; i++)
        for (int64_t r = table->layers[i].first_row; r < table->layers[i].end_row; r++)
            if (table->layers[i].kind == LAYER_BLOCK &&
                table->params[r].grad == GRAD_OVERWRITTEN &&
                table->params[r].n_elements % PARAM_ALIGN != 0)
                return false;
    return true;
}

/* Give the i-th block, too, what may be free when it stashes: the gradients of the block
 * before it. Those of the last block are free until the head's backward is over. */
static void free_grads_before(struct arena *spare, const struct gpt *g, int64_t i)
{
    int64_t first = g->part.chunks[0].first, n_bytes;
    if (!g->stashes_in_grads || i == 0)
        return;
    const struct param_table *table = g->params.table;
    uint8_t *grads = g->params.storage[STORE_GRADS];
    int last = param_table_layer(table, LAYER_BLOCK, first + i - 1);
    int64_t from = param_table_layer_bytes(
        table, STORE_GRADS, param_table_layer(table, LAYER_BLOCK, first), &n_bytes);
    int64_t at = param_table_layer_bytes(table, STORE_GRADS, last, &n_bytes);
    if (i == 1)
        *spare = arena_over(grads ? grads + from : NULL, 0);
    spare->capacity_bytes = (size_t)(at + n_bytes - from);
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

/* Elements of what passes between the last block and the head, there and back. */
static int64_t n_top(const struct gpt *g, const struct gpt_options *opt)
{
    return opt->has_grads && g->part.has_head ? g->dims.N / g->sp * g->dims.H : 0;
}

static void layout_stash(struct gpt_stash *st, struct space *space, const struct gpt *g,
                         const struct gpt_options *opt, const struct block_stash *shared)
{
    int64_t n_blocks = longest_chunk(&g->part);
    st->blocks = arena_table(space->own, (size_t)n_blocks * sizeof *st->blocks);
    for (int64_t i = 0; i < n_blocks; i++) {
        struct block_stash block = *shared;
        block.recompute = recompute_of(opt, i);
        free_grads_before(&space->spare, g, i);
        if (opt->has_grads)
            layout_block(&block, space, g);
        if (opt->splits_backward)
            layout_halves(&block, space->own, g);
        if (st->blocks)
            st->blocks[i] = block;
    }
    st->dx = arena_bytes(space->own, gpt_bytes(g, n_top(g, opt)));
}

static void layout_stashes(struct gpt *g, struct arena *ar, const struct gpt_options *opt)
{
    struct block_stash shared;
    struct space space = {.own = ar};
    layout_shared(&shared, ar, g, opt);
    g->stashes = arena_table(ar, (size_t)opt->n_stashes * sizeof *g->stashes);
    for (int i = 0; i < opt->n_stashes; i++) {
        struct gpt_stash st;
        layout_stash(&st, &space, g, opt, &shared);
        if (g->stashes)
            g->stashes[i] = st;
    }
    free_grads_before(&space.spare, g,
                      longest_chunk(&g->part)); // they come after the head's
    g->scratch.top = n_top(g, opt) > 0 ? space_typed(&space, g, n_top(g, opt)) : NULL;
}

/* Rows of a whole micro-batch, and the logits of a chunk of rows, which are there at
 * another time; but partial sums of the head's input gradient gather in `hidden` while
 * logits come and go. */
static void layout_wide(struct gpt_scratch *sc, struct arena *ar, const struct gpt *g,
                        bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    bool is_apart = has_grads && g->part.mp > 1;
    size_t hidden = (size_t)(d->N * d->H) * sizeof(float);
    size_t wide = gpt_bytes(g, d->N * i64_max(d->F, 3 * d->A * d->D));
    size_t logits = g->part.has_head ? (size_t)(d->R * d->V) * sizeof(float) : 0;
    size_t shared = is_apart ? 0 : hidden; // side by side with wide
    size_t more = logits > shared ? logits - shared : 0;
    sc->hidden = arena_bytes(ar, hidden);
    sc->wide = arena_bytes(ar, wide > more ? wide : more);
    sc->logits = is_apart ? sc->wide : sc->hidden;
    sc->dout = sc->hidden;
}

static void layout_scratch(struct gpt_scratch *sc, struct arena *ar, const struct gpt *g,
                           bool has_grads)
{
    const struct gpt_dims *d = &g->dims;
    int64_t N = d->N, R = d->R;
    int64_t widest = i64_max(i64_max(d->F, 3 * d->A * d->D), 2 * d->H);
    int64_t attention = device_attention_scratch(g->dev, d->S, d->A, d->A, d->D);
    sc->norm = arena_bytes(ar, gpt_bytes(g, N * d->H));
    layout_wide(sc, ar, g, has_grads);
    // attention's backward comes when the gradient of its output has been used
    sc->attention = sc->hidden;
    if (has_grads && attention > N * d->H)
        sc->attention = arena_f32(ar, attention);
    sc->delta = arena_f32(ar, has_grads ? N * d->A : 0);
    int64_t partials = i64_max(kernel_partials(N, widest), gpt_norm_partials(g));
    sc->partial = arena_f32(ar, has_grads ? partials : 0);
    sc->mean = arena_f32(ar, N);
    sc->rstd = arena_f32(ar, N);
    sc->row_max = arena_f32(ar, R);
    sc->row_sum = arena_f32(ar, 2 * R);
    sc->tokens = arena_table(ar, (size_t)N * sizeof *sc->tokens);
    sc->targets = arena_table(ar, (size_t)N * sizeof *sc->targets);
    sc->positions = arena_table(ar, (size_t)N * sizeof *sc->positions);
    sc->bounds = arena_table(ar, (size_t)(g->sp + 1) * sizeof *sc->bounds);
}

/* The lookup's gradient is there where the lookup is. */
static void layout_lookup(struct gpt_lookup *lookup, struct arena *ar,
                          const struct gpt *g, const struct gpt_options *opt)
{
    int64_t V = g->part.has_embedding && opt->has_grads ? g->dims.V : 0;
    int64_t most = opt->n_step_tokens > 0 ? opt->n_step_tokens : g->dims.B * g->dims.S;
    lookup->n_rows_most = i64_min(V, most);
    // after the only micro-batch of a step, scratch is free until the gradients are added
    bool fits = lookup->n_rows_most <= g->dims.N;
    lookup->rows = g->scratch.hidden;
    if (!opt->has_one_micro_batch || opt->splits_backward || !fits)
        lookup->rows = arena_f32(ar, lookup->n_rows_most * g->dims.H);
    lookup->ids = arena_table(ar, (size_t)lookup->n_rows_most * sizeof *lookup->ids);
    lookup->slot = arena_table(ar, (size_t)V * sizeof *lookup->slot);
}

/* Room for the rows of a step, where they are read at its end. */
static void layout_losses(struct gpt_losses *l, struct arena *ar, const struct gpt *g,
                          const struct gpt_options *opt)
{
    const struct gpt_dims *d = &g->dims;
    int64_t n_micro = 1, n_chunks = (d->N + d->R - 1) / d->R;
    if (!device_is_host(g->dev))
        n_micro = i64_max(1, (opt->n_step_tokens + d->N - 1) / d->N);
    bool is_here = g->part.has_head;
    l->rows_most = !is_here ? 0 : device_is_host(g->dev) ? d->R : n_micro * d->N;
    l->chunks_most = !is_here ? 0 : device_is_host(g->dev) ? 1 : n_micro * n_chunks;
    l->chunks = arena_table(ar, (size_t)l->chunks_most * sizeof *l->chunks);
}

static size_t loss_bytes(const struct gpt_losses *l)
{
    struct arena ar;
    arena_measure(&ar);
    arena_f32(&ar, 2 * l->rows_most);
    return ar.used_bytes;
}

static void *layout_store(const struct gpt *g, enum param_store store, struct arena *ar,
                          const struct gpt_options *opt)
{
    bool is_own = store == STORE_PARAMS ? !opt->params_are_owned
                                        : opt->has_grads && !opt->grads_are_owned;
    return arena_bytes(ar, is_own ? (size_t)g->params.table->n_bytes[store] : 0);
}

/* As many as fit in LOGIT_BYTES, in steps that leave every reduction its order (gemm.c),
 * and the same in all processes that share the vocabulary: a GEMM packs the embedding
 * once per chunk. */
static int64_t logit_rows(int64_t vocab_size, int mp, int64_t n_tokens)
{
    int64_t first, share = param_share(vocab_size, mp, 0, &first);
    int64_t fitting = LOGIT_BYTES / (share * (int64_t)sizeof(float));
    int64_t rows = fitting / LOGIT_ROWS_UNIT * LOGIT_ROWS_UNIT;
    rows = i64_min(i64_max(rows, LOGIT_ROWS_UNIT), GPT_LOGIT_ROWS_MOST);
    return i64_min(rows, n_tokens);
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
    d.N = d.B * d.S;
    d.R = logit_rows(m->vocab_size, part->mp, d.B * d.S);
    return d;
}

static enum activation activation_of(const struct config_model *m)
{
    return m->activation == MODEL_GELU ? ACTIVATION_GELU : ACTIVATION_GELU_TANH;
}

/* Everything of *g that needs no memory of its own size. */
static void prepare_model(struct gpt *g, const struct config *cfg,
                          const struct gpt_options *opt)
{
    struct device *dev = opt->dev ? opt->dev : device_cpu(opt->dtype);
    CHECK(dev->dtype == opt->dtype, "a device for %s, a model of %s",
          dtype_name(dev->dtype), dtype_name(opt->dtype));
    *g = (struct gpt){
        .dev = dev,
        .k = dev->k,
        .s = device_stream(dev, STREAM_COMPUTE),
        .dims = dims_of(cfg, opt),
        .part = opt->part,
        .params = {.table = opt->table},
        .embedding_dropout = cfg->model.embed_drop_rate,
        .hidden_dropout = cfg->model.hidden_dropout_prob,
        .attention_dropout = cfg->model.attention_probs_dropout_prob,
        .norm_epsilon = (float)cfg->model.norm_epsilon,
        .activation = activation_of(&cfg->model),
        .seed = (uint64_t)cfg->seed,
        .model_group = opt->model_group,
        .sp = opt->sequence_parallel ? opt->part.mp : 1,
        .dtype = opt->dtype,
        .grad_dtype = opt->grad_dtype,
        .fuses_bias = opt->fuses_bias,
        .splits_backward = opt->splits_backward,
        .stashes_in_grads = grads_are_free(opt),
    };
}

struct gpt_memory gpt_measure(const struct config *cfg, const struct gpt_options *opt)
{
    struct gpt g;
    struct arena ar;
    struct gpt_memory mem = {0};
    prepare_model(&g, cfg, opt);
    arena_measure(&ar);
    layout_store(&g, STORE_PARAMS, &ar, opt);
    mem.params = ar.used_bytes;
    mem.tables = ar.table_bytes;
    arena_measure(&ar);
    layout_stashes(&g, &ar, opt);
    mem.activations = ar.used_bytes;
    mem.tables += ar.table_bytes;
    arena_measure(&ar);
    layout_scratch(&g.scratch, &ar, &g, opt->has_grads);
    layout_lookup(&g.lookup, &ar, &g, opt);
    layout_losses(&g.losses, &ar, &g, opt);
    mem.pinned = loss_bytes(&g.losses);
    mem.scratch = ar.used_bytes;
    mem.tables += ar.table_bytes;
    arena_measure(&ar);
    layout_store(&g, STORE_GRADS, &ar, opt);
    mem.grads = ar.used_bytes;
    mem.tables += ar.table_bytes;
    return mem;
}

int gpt_open(struct gpt *g, const struct config *cfg, const struct gpt_options *opt,
             struct error *err)
{
    struct gpt_memory mem = gpt_measure(cfg, opt);
    prepare_model(g, cfg, opt);
    struct arena *tables = &g->arena_tables;
    if (params_init(&g->params, opt->table, err) ||
        arena_open(tables, mem.tables, "tables of the model", err) ||
        device_arena_open(g->dev, &g->arena_params, mem.params, tables, "parameters",
                          err) ||
        device_arena_open(g->dev, &g->arena_grads, mem.grads, tables, "gradients", err) ||
        device_arena_open(g->dev, &g->arena_acts,
                          mem.activations + mem.scratch - mem.tables, tables,
                          "activations", err)) {
        gpt_close(g);
        return -1;
    }
    void *params = layout_store(g, STORE_PARAMS, &g->arena_params, opt);
    void *grads = layout_store(g, STORE_GRADS, &g->arena_grads, opt);
    if (!opt->params_are_owned)
        params_bind(&g->params, STORE_PARAMS, params);
    if (opt->has_grads && !opt->grads_are_owned)
        params_bind(&g->params, STORE_GRADS, grads);
    layout_stashes(g, &g->arena_acts, opt);
    layout_scratch(&g->scratch, &g->arena_acts, g, opt->has_grads);
    layout_lookup(&g->lookup, &g->arena_acts, g, opt);
    layout_losses(&g->losses, &g->arena_acts, g, opt);
    if (device_host_arena_open(g->dev, &g->losses.arena, loss_bytes(&g->losses), "losses",
                               err)) {
        gpt_close(g);
        return -1;
    }
    g->losses.sums = arena_f32(&g->losses.arena, 2 * g->losses.rows_most);
    for (int64_t i = 0; i < g->dims.V && g->lookup.n_rows_most > 0; i++)
        g->lookup.slot[i] = -1;
    return 0;
}

void gpt_close(struct gpt *g)
{
    if (g->dev) {
        device_host_arena_close(g->dev, &g->losses.arena);
        device_arena_close(g->dev, &g->arena_params);
        device_arena_close(g->dev, &g->arena_grads);
        device_arena_close(g->dev, &g->arena_acts);
    }
    arena_close(&g->arena_tables);
    params_release(&g->params);
    *g = (struct gpt){0};
}
