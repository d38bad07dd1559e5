#include "optim/optimizer.h"

#include "base/beat.h"

#include <math.h>
#include <string.h>

#define STEP_BLOCK ((int64_t)1 << 20) // elements updated at a time where state is on disk

static const char *const buffer_names[OPTIMIZER_BUFFERS] = {
    [OPTIMIZER_EXP_AVG] = "the first moments",
    [OPTIMIZER_EXP_AVG_SQ] = "the second moments",
    [OPTIMIZER_MASTER] = "the master weights",
};

static int64_t n_chunks(int64_t n)
{
    return i64_round_up(n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
}

static bool has_buffer(const struct optimizer_options *opt, int b)
{
    return b != OPTIMIZER_MASTER || opt->has_master;
}

static size_t buffer_bytes(const struct optimizer_options *opt)
{
    return (size_t)opt->map->n_local * sizeof(float);
}

/* -- memory -------------------------------------------------------------------------- */

static void layout(struct optimizer *o, struct arena *ar)
{
    const struct param_table *table = o->opt.map->table;
    int64_t all_chunks = 0;
    for (int64_t i = 0; i < table->n_params; i++)
        all_chunks += n_chunks(table->params[i].n_elements);
    for (int b = 0; b < OPTIMIZER_BUFFERS && !o->opt.offload_dir; b++)
        if (has_buffer(&o->opt, b))
            o->buffers[b] = arena_f32(ar, o->opt.map->n_local);
    o->row_chunks =
        arena_bytes(ar, (size_t)(table->n_params + 1) * sizeof *o->row_chunks);
    o->squares = arena_f64(ar, all_chunks);
    o->row_squares = arena_f64(ar, table->n_params_whole);
}

struct optimizer_memory optimizer_measure(const struct optimizer_options *opt)
{
    struct optimizer measured = {.opt = *opt};
    struct optimizer_memory mem = {0};
    struct arena ar;
    arena_measure(&ar);
    layout(&measured, &ar);
    mem.resident = ar.used_bytes;
    for (int b = 0; b < OPTIMIZER_BUFFERS && opt->offload_dir; b++)
        if (has_buffer(opt, b)) {
            size_t window = OFFLOAD_WINDOWS * OFFLOAD_WINDOW_BYTES;
            mem.offloaded += buffer_bytes(opt);
            mem.resident += window < buffer_bytes(opt) ? window : buffer_bytes(opt);
        }
    return mem;
}

static int open_offloads(struct optimizer *o, struct error *err)
{
    for (int b = 0; b < OPTIMIZER_BUFFERS && o->opt.offload_dir; b++) {
        struct offload_options opt = {.dir = o->opt.offload_dir,
                                      .dir_key = "save_load.offload_dir",
                                      .what = buffer_names[b],
                                      .n_bytes = buffer_bytes(&o->opt)};
        if (!has_buffer(&o->opt, b))
            continue;
        if (offload_open(&o->offloads[b], &opt, err))
            return -1;
        o->buffers[b] = offload_data(o->offloads[b]);
    }
    return 0;
}

int optimizer_open(struct optimizer *o, const struct optimizer_options *opt,
                   struct error *err)
{
    const struct param_table *table = opt->map->table;
    struct arena ar;
    *o = (struct optimizer){.opt = *opt};
    arena_measure(&ar);
    layout(o, &ar);
    if (arena_open(&o->arena, ar.used_bytes, "the optimizer", err))
        return -1;
    layout(o, &o->arena);
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
    for (int b = 0; b < OPTIMIZER_BUFFERS; b++)
        offload_close(o->offloads[b]);
    arena_close(&o->arena);
    *o = (struct optimizer){0};
}

/* -- the norm ------------------------------------------------------------------------ */

int64_t optimizer_n_squares(const struct optimizer *o)
{
    return o->row_chunks[o->opt.map->table->n_params];
}

void optimizer_squares(struct optimizer *o, const struct shard_store *grads)
{
    const struct shard_map *map = o->opt.map;
    memset(o->squares, 0, (size_t)optimizer_n_squares(o) * sizeof *o->squares);
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        const struct param *row = &map->table->params[piece->row];
        int64_t chunk = o->row_chunks[piece->row] + piece->first / KERNEL_SQUARE_CHUNK;
        beat(BEAT_NORM, i);
        o->opt.k->sum_squares(o->squares + chunk, shard_piece_at(map, grads, piece),
                              row->in[STORE_GRADS].dtype, piece->n);
    }
}

double *optimizer_row_squares(struct optimizer *o)
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
    return o->row_squares;
}

double optimizer_norm(const struct optimizer *o)
{
    double total = 0;
    for (int64_t i = 0; i < o->opt.map->table->n_params_whole; i++)
        total += o->row_squares[i];
    return sqrt(total);
}

/* -- the update ---------------------------------------------------------------------- */

static struct adamw rule_of(const struct optimizer *o, const struct optimizer_update *u)
{
    const struct config_optim *cfg = &o->opt.cfg;
    bool is_clipped = cfg->grad_clip > 0 && u->grad_norm > cfg->grad_clip;
    return (struct adamw){
        .lr = u->lr,
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .epsilon = cfg->adam_epsilon,
        .bias1 = 1.0 - pow(cfg->adam_beta1, (double)u->number),
        .bias2 = 1.0 - pow(cfg->adam_beta2, (double)u->number),
        .grad_scale = u->grad_scale * (is_clipped ? cfg->grad_clip / u->grad_norm : 1.0),
        .is_l2 = cfg->name == OPTIMIZER_ADAM,
    };
}

/* What is on disk passes through memory window by window. */
static int advance(struct optimizer *o, int64_t first, int64_t n, struct error *err)
{
    for (int b = 0; b < OPTIMIZER_BUFFERS; b++)
        if (o->offloads[b] &&
            offload_advance(o->offloads[b], (size_t)first * sizeof(float),
                            (size_t)(first + n) * sizeof(float), err))
            return -1;
    return 0;
}

/* Elements [at, at + n) of the piece. */
static void update_part(const struct optimizer *o, const struct optimizer_update *u,
                        const struct adamw *rule, const struct shard_piece *piece,
                        int64_t at, int64_t n)
{
    const struct shard_map *map = o->opt.map;
    const struct param *row = &map->table->params[piece->row];
    enum dtype p = row->in[STORE_PARAMS].dtype, g = row->in[STORE_GRADS].dtype;
    char *param = shard_piece_at(map, u->params, piece);
    const char *grad = shard_piece_at(map, u->grads, piece);
    int64_t local = piece->local + at;
    param += at * (int64_t)dtype_bytes(p);
    float *master = o->buffers[OPTIMIZER_MASTER];
    o->opt.k->adamw(
        &(struct update){.master = master ? master + local : (float *)(void *)param,
                         .param = param,
                         .param_dtype = p,
                         .grad = grad + at * (int64_t)dtype_bytes(g),
                         .grad_dtype = g,
                         .exp_avg = o->buffers[OPTIMIZER_EXP_AVG] + local,
                         .exp_avg_sq = o->buffers[OPTIMIZER_EXP_AVG_SQ] + local,
                         .n = n},
        rule);
}

static int update_piece(struct optimizer *o, const struct optimizer_update *u,
                        const struct shard_piece *piece, struct error *err)
{
    struct adamw rule = rule_of(o, u);
    const struct param *row = &o->opt.map->table->params[piece->row];
    int64_t block = o->opt.offload_dir ? STEP_BLOCK : piece->n;
    rule.lr *= row->lr_scale;
    rule.decay = row->decays ? o->opt.cfg.weight_decay : 0.0;
    for (int64_t at = 0; at < piece->n; at += block) {
        int64_t n = i64_min(block, piece->n - at);
        beat(BEAT_UPDATE, piece->row);
        if (advance(o, piece->local + at, n, err))
            return -1;
        update_part(o, u, &rule, piece, at, n);
    }
    return 0;
}

static int update_layers(struct optimizer *o, const struct optimizer_update *u,
                         struct error *err)
{
    const struct shard_map *map = o->opt.map;
    for (int i = 0; i < map->n_layers; i++) {
        if (u->before_layer)
            u->before_layer(u->context, i);
        for (int64_t p = map->layer_pieces[i]; p < map->layer_pieces[i + 1]; p++)
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
    for (int b = 0; b < OPTIMIZER_BUFFERS; b++)
        if (o->offloads[b])
            offload_begin(o->offloads[b], OFFLOAD_UPDATE);
    int rc = update_layers(o, update, err);
    for (int b = 0; b < OPTIMIZER_BUFFERS; b++)
        if (o->offloads[b])
            offload_end(o->offloads[b]);
    return rc;
}

/* -- for checkpoints ----------------------------------------------------------------- */

/* One of x and y is in the buffer; the buffer's range is held while it is copied. */
static int copy_held(struct optimizer *o, enum optimizer_buffer b, int64_t first,
                     int64_t n, float *to, const float *from, enum offload_use use,
                     struct error *err)
{
    size_t bytes = (size_t)n * sizeof(float), at = (size_t)first * sizeof(float);
    struct offload *held = o->offloads[b];
    int rc = 0;
    if (held) {
        offload_fetch(held, at, at + bytes);
        rc = offload_wait(held, at, at + bytes, err);
    }
    if (rc == 0)
        memcpy(to, from, bytes);
    if (held)
        offload_drop(held, at, at + bytes, use);
    return rc;
}

int optimizer_read(struct optimizer *o, enum optimizer_buffer b, int64_t first, int64_t n,
                   float *x, struct error *err)
{
    return copy_held(o, b, first, n, x, o->buffers[b] + first, OFFLOAD_READ, err);
}

int optimizer_write(struct optimizer *o, enum optimizer_buffer b, int64_t first,
                    int64_t n, const float *x, struct error *err)
{
    return copy_held(o, b, first, n, o->buffers[b] + first, x, OFFLOAD_UPDATE, err);
}
