#include "optim/optimizer.h"

#include "base/beat.h"

#include <math.h>
#include <string.h>

#define STEP_BLOCK                                                                       \
    ((int64_t)1 << 20) // elements updated at a time where state is offloaded

/* -- the rules ----------------------------------------------------------------------- */

#define DECLARE_RULE(word, id, rule) extern const struct update_rule update_rule_##rule;
#define RULE_ROW(word, id, rule) [OPTIMIZER_##id] = &update_rule_##rule,

UPDATE_RULES(DECLARE_RULE, UPDATE_RULE_NOTHING)

const struct update_rule *update_rule_of(const struct config_optim *cfg)
{
    static const struct update_rule *const rules[N_OPTIMIZERS] = {
        UPDATE_RULES(RULE_ROW, UPDATE_RULE_NOTHING)};
    return rules[cfg->name];
}

int update_rule_n_tensors(const struct update_rule *rule)
{
    return 1 + rule->n_states;
}

/* -- memory -------------------------------------------------------------------------- */

static int64_t n_chunks(int64_t n)
{
    return i64_round_up(n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
}

/* Tensors [first, end) of a parameter are stored here. */
static int first_tensor(const struct optimizer *o)
{
    return o->opt.has_master ? OPTIMIZER_WEIGHTS : OPTIMIZER_WEIGHTS + 1;
}

static int end_tensor(const struct optimizer *o)
{
    return update_rule_n_tensors(o->rule);
}

static const char *tensor_name(const struct optimizer *o, int tensor)
{
    return tensor == OPTIMIZER_WEIGHTS ? "the master weights"
                                       : o->rule->states[tensor - 1].what;
}

static size_t tensor_bytes(const struct optimizer *o)
{
    return (size_t)o->opt.map->n_local * sizeof(float);
}

/* State is not the device's but the host's, and the processor updates it. */
static bool is_updated_by_host(const struct optimizer *o)
{
    return !device_is_host(o->opt.dev) && (o->opt.offload_dir || o->opt.is_in_host);
}

static void place_optimizer(struct optimizer *o, struct arena *ar, struct arena *pinned)
{
    const struct param_table *table = o->opt.map->table;
    size_t block = (size_t)STEP_BLOCK * sizeof(float);
    int64_t all_chunks = 0;
    for (int64_t i = 0; i < table->n_params; i++)
        all_chunks += n_chunks(table->params[i].n_elements);
    for (int i = first_tensor(o); i < end_tensor(o) && !o->opt.offload_dir; i++)
        o->tensors[i].data = is_updated_by_host(o) ? arena_table(ar, tensor_bytes(o))
                                                   : arena_f32(ar, o->opt.map->n_local);
    o->row_chunks =
        arena_table(ar, (size_t)(table->n_params + 1) * sizeof *o->row_chunks);
    o->squares = arena_bytes(pinned, (size_t)all_chunks * sizeof *o->squares);
    o->row_squares =
        arena_table(ar, (size_t)table->n_params_whole * sizeof *o->row_squares);
    for (size_t i = 0; i < ARRAY_LEN(o->stages) && is_updated_by_host(o); i++)
        o->stages[i] = (struct optimizer_stage){.grad = arena_bytes(pinned, block),
                                                .param = arena_bytes(pinned, block)};
}

struct optimizer_memory optimizer_measure(const struct optimizer_options *opt)
{
    struct optimizer measured = {.opt = *opt, .rule = update_rule_of(&opt->cfg)};
    size_t window = OFFLOAD_WINDOWS * OFFLOAD_WINDOW_BYTES;
    size_t each = tensor_bytes(&measured);
    struct optimizer_memory mem = {0};
    struct arena ar, pinned;
    arena_measure(&ar);
    arena_measure(&pinned);
    place_optimizer(&measured, &ar, &pinned);
    mem.resident = ar.used_bytes + pinned.used_bytes;
    mem.host = device_is_host(opt->dev) ? 0 : ar.table_bytes + pinned.used_bytes;
    for (int i = first_tensor(&measured); i < end_tensor(&measured) && opt->offload_dir;
         i++) {
        mem.offloaded += each;
        mem.resident += window < each ? window : each;
        mem.host += device_is_host(opt->dev) ? 0 : window < each ? window : each;
    }
    return mem;
}

static int open_offloads(struct optimizer *o, struct error *err)
{
    for (int i = first_tensor(o); i < end_tensor(o) && o->opt.offload_dir; i++) {
        struct offload_options opt = {.dir = o->opt.offload_dir,
                                      .dir_key = "save_load.offload_dir",
                                      .what = tensor_name(o, i),
                                      .n_bytes = tensor_bytes(o)};
        if (offload_open(&o->tensors[i].held, &opt, err))
            return -1;
        o->tensors[i].data = offload_data(o->tensors[i].held);
    }
    return 0;
}

int optimizer_open(struct optimizer *o, const struct optimizer_options *opt,
                   struct error *err)
{
    const struct param_table *table = opt->map->table;
    struct arena ar, pinned;
    *o = (struct optimizer){.opt = *opt, .rule = update_rule_of(&opt->cfg)};
    arena_measure(&ar);
    arena_measure(&pinned);
    place_optimizer(o, &ar, &pinned);
    if (arena_open(&o->arena_tables, ar.table_bytes, "the optimizer", err) ||
        device_host_arena_open(opt->dev, &o->arena_pinned, pinned.used_bytes,
                               "the optimizer", err) ||
        device_arena_open(opt->dev, &o->arena, ar.used_bytes - ar.table_bytes,
                          &o->arena_tables, "the optimizer", err)) {
        optimizer_close(o);
        return -1;
    }
    place_optimizer(o, &o->arena, &o->arena_pinned);
    for (int64_t i = 0; i < table->n_params; i++)
        o->row_chunks[i + 1] = o->row_chunks[i] + n_chunks(table->params[i].n_elements);
    if (open_offloads(o, err)) {
        optimizer_close(o);
        return -1;
    }
    return 0;
}

void optimizer_close(struct optimizer *o)
{
    for (size_t i = 0; i < ARRAY_LEN(o->tensors); i++)
        offload_close(o->tensors[i].held);
    if (o->opt.dev) {
        device_event_close(&o->updated);
        device_event_close(&o->copied);
        device_arena_close(o->opt.dev, &o->arena);
        device_host_arena_close(o->opt.dev, &o->arena_pinned);
    }
    arena_close(&o->arena_tables);
    *o = (struct optimizer){0};
}

static struct stream *compute(const struct optimizer *o)
{
    return device_stream(o->opt.dev, STREAM_COMPUTE);
}

/* -- the norm ------------------------------------------------------------------------ */

static int64_t count_squares(const struct optimizer *o)
{
    return o->row_chunks[o->opt.map->table->n_params];
}

/* o->squares := those of the chunks owned, 0 for the others. */
static void sum_chunk_squares(struct optimizer *o, const struct shard_store *grads)
{
    const struct shard_map *map = o->opt.map;
    memset(o->squares, 0, (size_t)count_squares(o) * sizeof *o->squares);
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        const struct param *row = &map->table->params[piece->row];
        int64_t chunk = o->row_chunks[piece->row] + piece->first / KERNEL_SQUARE_CHUNK;
        beat(BEAT_NORM, i);
        o->opt.dev->k->sum_squares(
            compute(o),
            &(struct sum_squares){o->squares + chunk, shard_piece_at(map, grads, piece),
                                  row->in[STORE_GRADS].dtype, piece->n});
    }
    device_synchronize(compute(o));
}

/* o->row_squares := the sum of the squares of each parameter's gradient, by its row in
 * the whole model; 0 for what this process does not hold or another one counts. */
static void sum_row_squares(struct optimizer *o)
{
    const struct param_table *table = o->opt.map->table;
    memset(o->row_squares, 0, (size_t)table->n_params_whole * sizeof *o->row_squares);
    for (int64_t i = 0; i < table->n_params; i++) {
        const struct param *row = &table->params[i];
        double sum = 0;
        for (int64_t c = o->row_chunks[i]; c < o->row_chunks[i + 1]; c++)
            sum += o->squares[c];
        if (row->is_counted)
            o->row_squares[row->number] = sum;
    }
}

static int sum_over(struct comm *group, double *x, int64_t n, struct error *err)
{
    return group ? comm_sum_f64(group, x, n, err) : 0;
}

int optimizer_norm(struct optimizer *o, const struct shard_store *grads, double *norm,
                   struct error *err)
{
    int64_t n_rows = o->opt.map->table->n_params_whole;
    double total = 0;
    sum_chunk_squares(o, grads);
    if (sum_over(o->opt.sharding, o->squares, count_squares(o), err))
        return -1;
    sum_row_squares(o);
    if (sum_over(o->opt.model, o->row_squares, n_rows, err) ||
        sum_over(o->opt.pipe, o->row_squares, n_rows, err))
        return -1;
    for (int64_t i = 0; i < n_rows; i++)
        total += o->row_squares[i];
    *norm = sqrt(total);
    return 0;
}

/* Rows of the whole model are numbered layer by layer, and all blocks have as many: so one
 * of them tells where the others are. */
int64_t optimizer_layer_norms(const struct optimizer *o, int64_t n_blocks, double *norms)
{
    const struct param_table *table = o->opt.map->table;
    int at = 0;
    while (at < table->n_layers && table->layers[at].kind != LAYER_BLOCK)
        at++;
    if (at == table->n_layers)
        return 0;
    const struct param_layer *block = &table->layers[at];
    int64_t n_rows = block->end_row - block->first_row, first = INT64_MAX;
    for (int64_t i = block->first_row; i < block->end_row; i++)
        first = i64_min(first, table->params[i].number);
    first -= block->block * n_rows;
    for (int64_t layer = 0, row = 0; layer < n_blocks + 2; layer++) {
        int64_t end = layer > n_blocks ? table->n_params_whole : first + layer * n_rows;
        double sum = 0;
        for (; row < end; row++)
            sum += o->row_squares[row];
        norms[layer] = sqrt(sum);
    }
    return n_blocks + 2;
}

/* -- the update ---------------------------------------------------------------------- */

/* What is on disk passes through memory window by window. */
static int advance_window(struct optimizer *o, int64_t first, int64_t n,
                          struct error *err)
{
    for (int i = first_tensor(o); i < end_tensor(o); i++)
        if (o->tensors[i].held &&
            offload_advance(o->tensors[i].held, (size_t)first * sizeof(float),
                            (size_t)(first + n) * sizeof(float), err))
            return -1;
    return 0;
}

/* Elements [at, at + n) of the piece. */
static struct update_range range_of(const struct optimizer *o,
                                    const struct optimizer_update *u,
                                    const struct shard_piece *piece, int64_t at,
                                    int64_t n)
{
    const struct shard_map *map = o->opt.map;
    const struct param *row = &map->table->params[piece->row];
    enum dtype p = row->in[STORE_PARAMS].dtype, g = row->in[STORE_GRADS].dtype;
    char *param = shard_piece_at(map, u->params, piece);
    const char *grad = shard_piece_at(map, u->grads, piece);
    int64_t local = piece->local + at;
    param += at * (int64_t)dtype_bytes(p);
    struct update_range range = {
        .weights = o->opt.has_master ? o->tensors[OPTIMIZER_WEIGHTS].data + local
                                     : (float *)(void *)param,
        .param = param,
        .param_dtype = p,
        .grad = grad + at * (int64_t)dtype_bytes(g),
        .grad_dtype = g,
        .n = n};
    for (int i = 0; i < o->rule->n_states; i++)
        range.states[i] = o->tensors[1 + i].data + local;
    return range;
}

static struct update_step step_of(const struct optimizer *o,
                                  const struct optimizer_update *u,
                                  const struct shard_piece *piece)
{
    const struct config_optim *cfg = &o->opt.cfg;
    const struct param *row = &o->opt.map->table->params[piece->row];
    bool decays = row->decays || cfg->decay == DECAYED_ALL;
    bool is_clipped = cfg->grad_clip > 0 && u->grad_norm > cfg->grad_clip;
    return (struct update_step){
        .cfg = cfg,
        .lr = u->lr * row->lr_scale,
        .decay = decays ? cfg->weight_decay : 0.0,
        .grad_scale = u->grad_scale * (is_clipped ? cfg->grad_clip / u->grad_norm : 1.0),
        .number = u->number,
    };
}

static int update_piece(struct optimizer *o, const struct optimizer_update *u,
                        const struct shard_piece *piece, struct error *err)
{
    struct update_step step = step_of(o, u, piece);
    int64_t block = o->opt.offload_dir ? STEP_BLOCK : piece->n;
    for (int64_t at = 0; at < piece->n; at += block) {
        int64_t n = i64_min(block, piece->n - at);
        beat(BEAT_UPDATE, piece->row);
        if (advance_window(o, piece->local + at, n, err))
            return -1;
        struct update_range range = range_of(o, u, piece, at, n);
        o->rule->update(compute(o), &range, &step);
    }
    return 0;
}

/* -- the update by the processor ----------------------------------------------------- */

/* Block k is updated while the gradients of block k + 1 come down and the parameters of
 * block k - 1 go up, all on one stream: so when the host has waited for it, block k is
 * there, and what its stage held before has left. */

struct block {
    int64_t piece; // of the map; past the last one: there is none
    int64_t at, n;
};

static struct block block_at(const struct shard_map *map, int64_t piece, int64_t at)
{
    while (piece < map->n_pieces && at >= map->pieces[piece].n) {
        piece++;
        at = 0;
    }
    int64_t n = piece < map->n_pieces ? map->pieces[piece].n - at : 0;
    return (struct block){piece, at, i64_min(n, STEP_BLOCK)};
}

/* Start to bring down what block `b` needs. */
static void fetch_block(struct optimizer *o, const struct optimizer_update *u,
                        struct optimizer_stage *stage, struct block b)
{
    struct stream *s = device_stream(o->opt.dev, STREAM_COPY);
    if (b.piece == o->opt.map->n_pieces)
        return;
    struct update_range on_device =
        range_of(o, u, &o->opt.map->pieces[b.piece], b.at, b.n);
    device_copy(s, stage->grad, on_device.grad,
                (size_t)b.n * dtype_bytes(on_device.grad_dtype), COPY_TO_HOST);
    if (!o->opt.has_master && !o->opt.params_are_in_host)
        device_copy(s, stage->param, on_device.param,
                    (size_t)b.n * dtype_bytes(on_device.param_dtype), COPY_TO_HOST);
}

static int update_block(struct optimizer *o, const struct optimizer_update *u,
                        const struct optimizer_stage *stage, struct block b,
                        struct error *err)
{
    const struct shard_piece *piece = &o->opt.map->pieces[b.piece];
    struct stream *s = device_stream(o->opt.dev, STREAM_COPY);
    struct update_step step = step_of(o, u, piece);
    struct update_range range = range_of(o, u, piece, b.at, b.n);
    void *param = range.param;
    beat(BEAT_UPDATE, piece->row);
    if (advance_window(o, piece->local + b.at, b.n, err))
        return -1;
    range.grad = stage->grad;
    if (!o->opt.params_are_in_host)
        range.param = stage->param;
    if (!o->opt.has_master)
        range.weights = range.param;
    o->rule->update(device_stream(device_cpu(o->opt.dev->dtype), STREAM_COMPUTE), &range,
                    &step);
    if (!o->opt.params_are_in_host)
        device_copy(s, param, range.param, (size_t)b.n * dtype_bytes(range.param_dtype),
                    COPY_TO_DEVICE);
    return 0;
}

/* Blocks from *b on up to the end of layer i. */
static int update_layer_by_host(struct optimizer *o, const struct optimizer_update *u,
                                int i, struct block *b, int *stage, struct error *err)
{
    const struct shard_map *map = o->opt.map;
    struct stream *copy = device_stream(o->opt.dev, STREAM_COPY);
    while (b->piece < map->layer_pieces[i + 1]) {
        struct block next = block_at(map, b->piece, b->at + b->n);
        device_synchronize(copy);
        if (device_check(o->opt.dev, err))
            return -1;
        fetch_block(o, u, &o->stages[1 - *stage], next);
        if (update_block(o, u, &o->stages[*stage], *b, err))
            return -1;
        *b = next;
        *stage = 1 - *stage;
    }
    device_order(compute(o), copy, &o->copied);
    return 0;
}

static int update_layers(struct optimizer *o, const struct optimizer_update *u,
                         struct error *err)
{
    const struct shard_map *map = o->opt.map;
    struct block b = block_at(map, 0, 0);
    bool is_by_host = is_updated_by_host(o);
    int stage = 0;
    if (is_by_host) {
        device_order(device_stream(o->opt.dev, STREAM_COPY), compute(o), &o->updated);
        fetch_block(o, u, &o->stages[stage], b);
    }
    for (int i = 0; i < map->table->n_layers; i++) {
        if (u->before_layer)
            u->before_layer(u->context, i);
        if (is_by_host && update_layer_by_host(o, u, i, &b, &stage, err))
            return -1;
        for (int64_t p = map->layer_pieces[i];
             p < map->layer_pieces[i + 1] && !is_by_host; p++)
            if (update_piece(o, u, &map->pieces[p], err))
                return -1;
        if (u->on_layer)
            u->on_layer(u->context, i);
    }
    return 0;
}

int optimizer_step(struct optimizer *o, const struct optimizer_update *update,
                   struct error *err)
{
    for (int i = first_tensor(o); i < end_tensor(o); i++)
        if (o->tensors[i].held)
            offload_begin(o->tensors[i].held, OFFLOAD_UPDATE);
    int rc = update_layers(o, update, err);
    for (int i = first_tensor(o); i < end_tensor(o); i++)
        if (o->tensors[i].held)
            offload_end(o->tensors[i].held);
    device_record(&o->updated, compute(o));
    return rc;
}

/* -- for checkpoints ----------------------------------------------------------------- */

/* One of `to` and `from` is in the tensor, whose range is held while it is copied. On a
 * stream of its own: the thread that saves copies while others compute, after the last
 * update; and the next one waits for that thread. */
static int copy_held(struct optimizer *o, int tensor, int64_t first, int64_t n, float *to,
                     const float *from, enum offload_use use, struct error *err)
{
    struct stream *s = device_stream(
        is_updated_by_host(o) ? device_cpu(DTYPE_F32) : o->opt.dev, STREAM_COPY);
    size_t bytes = (size_t)n * sizeof(float), at = (size_t)first * sizeof(float);
    struct offload *held = o->tensors[tensor].held;
    int rc = 0;
    if (held) {
        offload_fetch(held, at, at + bytes);
        rc = offload_wait(held, at, at + bytes, err);
    }
    device_wait(s, &o->updated);
    if (rc == 0)
        device_copy(s, to, from, bytes,
                    use == OFFLOAD_READ ? COPY_TO_HOST : COPY_TO_DEVICE);
    device_synchronize(s);
    if (held)
        offload_drop(held, at, at + bytes, use);
    return rc ? rc : device_check(s->dev, err);
}

int optimizer_read(struct optimizer *o, int tensor, int64_t first, int64_t n, float *x,
                   struct error *err)
{
    return copy_held(o, tensor, first, n, x, o->tensors[tensor].data + first,
                     OFFLOAD_READ, err);
}

int optimizer_write(struct optimizer *o, int tensor, int64_t first, int64_t n,
                    const float *x, struct error *err)
{
    return copy_held(o, tensor, first, n, o->tensors[tensor].data + first, x,
                     OFFLOAD_UPDATE, err);
}
