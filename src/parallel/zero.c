/*
 * What the stages have in common: the ranges of each layer, memory, and at the end of a
 * step the reduction of gradients and the all-gather of parameters. Buffers and buckets,
 * through which layers pass within a step, are in zero_layers.c.
 */
#include "parallel/zero.h"

#include "parallel/zero_internal.h"

#include <stdlib.h>
#include <string.h>

/* -- ranges -------------------------------------------------------------------------- */

static int data_rank_piece(int dp, int sharding, int data_rank)
{
    return data_rank % sharding * dp + data_rank / sharding;
}

/* The pieces of a run: each sharding range in as many parts as there are dp ranks. */
static void set_run_bounds(struct zero *z, struct zero_run *run, int64_t first,
                           const int64_t *cuts)
{
    int SH = z->opt.map->size, DP = comm_size(z->opt.dp), me = z->opt.map->rank;
    for (int s = 0; s < SH; s++) {
        int64_t begin = i64_min(i64_max(cuts[s] - first, 0), run->n);
        int64_t end = i64_min(i64_max(cuts[s + 1] - first, 0), run->n);
        if (s == SH - 1)
            end = run->n;
        comm_even_bounds(end - begin, DP, run->bounds + s * DP);
        for (int d = 0; d <= DP; d++)
            run->bounds[s * DP + d] += begin;
        if (s != me)
            continue;
        run->owned_first = begin;
        run->owned_end = end;
        for (int d = 0; d <= DP; d++)
            run->dp_bounds[d] = run->bounds[s * DP + d] - begin;
    }
}

/* The end of the run of one type that begins with row `r`. */
static int64_t run_end(const struct param_table *table, int64_t r)
{
    const struct param *first = &table->params[r];
    int64_t end_row = table->layers[first->layer].end_row;
    while (r < end_row &&
           table->params[r].in[STORE_GRADS].dtype == first->in[STORE_GRADS].dtype)
        r++;
    return r;
}

static int64_t run_elements(const struct param_table *table, int64_t first_row)
{
    const struct param *last = &table->params[run_end(table, first_row) - 1];
    return last->offset + last->n_elements - table->params[first_row].offset;
}

static int count_runs(const struct param_table *table, int layer)
{
    int n = 0;
    for (int64_t r = table->layers[layer].first_row; r < table->layers[layer].end_row;
         r = run_end(table, r))
        n++;
    return n;
}

static void set_runs(struct zero *z, struct zero_layer *l, int i, int64_t **bounds)
{
    const struct shard_map *map = z->opt.map;
    const struct param_table *table = map->table;
    int SH = map->size, DP = comm_size(z->opt.dp);
    l->runs = z->all_runs + z->n_runs;
    for (int64_t r = table->layers[i].first_row; r < table->layers[i].end_row;
         r = run_end(table, r)) {
        const struct param *row = &table->params[r];
        struct zero_run *run = &l->runs[l->n_runs++];
        *run = (struct zero_run){.dtype = row->in[STORE_GRADS].dtype,
                                 .at = row->in[STORE_GRADS].at - l->grad_at,
                                 .n = run_elements(table, r),
                                 .bounds = *bounds,
                                 .dp_bounds = *bounds + (int64_t)SH * DP + 1};
        *bounds += (int64_t)SH * DP + 1 + DP + 1;
        set_run_bounds(z, run, row->offset, map->cuts + (int64_t)i * (SH + 1));
    }
    z->n_runs += l->n_runs;
}

static void set_layer(struct zero *z, int i, int64_t **bounds)
{
    const struct shard_map *map = z->opt.map;
    const struct param_layer *of = &map->table->layers[i];
    struct zero_layer *l = &z->layers[i];
    int SH = map->size;
    int64_t unused;
    for (int64_t r = of->first_row; r < of->end_row; r++)
        CHECK(map->table->params[r].owner == OWNED_BY_DATA_RANKS,
              "row %lld is not the "
              "data ranks'",
              (long long)r);
    l->is_block = of->kind == LAYER_BLOCK;
    l->is_late = of->is_late;
    l->param_at = param_table_layer_bytes(map->table, STORE_PARAMS, i, &l->param_bytes);
    l->grad_at = param_table_layer_bytes(map->table, STORE_GRADS, i, &l->grad_bytes);

    l->param_bounds = *bounds;
    *bounds += SH + 1;
    shard_map_bounds(map, i, STORE_GRADS, l->param_bounds);
    l->owned_grad_first = l->param_bounds[map->rank];
    shard_map_bounds(map, i, STORE_PARAMS, l->param_bounds);
    l->owned_param_first = l->param_bounds[map->rank];
    for (int r = 0; r <= SH; r++)
        l->param_bounds[r] /= ZERO_UNIT_BYTES;
    l->owned_param_at = shard_map_local_at(map, i, STORE_PARAMS, &l->owned_param_bytes);
    l->owned_grad_at = shard_map_local_at(map, i, STORE_GRADS, &unused);
    set_runs(z, l, i, bounds);
}

/* Buffers and buckets, of blocks and of other layers, have as many requests as any layer
 * has runs. */
static void deal_requests(struct zero *z, int most)
{
    struct comm_request *next = z->buffer_requests;
    for (int i = 0; i < ZERO_BUFFERS; i++, next += 2 * (int64_t)most) {
        z->buffers[i].requests = next;
        z->buckets[i].requests = next + most;
    }
    for (int i = 0; i < z->opt.map->table->n_layers; i++, next += 2 * (int64_t)most) {
        z->layers[i].buffer.requests = next;
        z->layers[i].bucket.requests = next + most;
    }
}

static int open_ranges(struct zero *z, struct error *err)
{
    const struct shard_map *map = z->opt.map;
    int n = map->table->n_layers, SH = map->size, size = comm_size(z->opt.data);
    int DP = comm_size(z->opt.dp), n_runs = 0, most = 1;
    for (int i = 0; i < n; i++) {
        int here = count_runs(map->table, i);
        n_runs += here;
        most = here > most ? here : most;
    }
    int64_t n_bounds = n * (int64_t)(SH + 1) + n_runs * ((int64_t)size + 1 + DP + 1);
    z->layers = calloc((size_t)n + 1, sizeof *z->layers);
    z->late_grads = calloc((size_t)n + 1, sizeof *z->late_grads);
    z->all_runs = calloc((size_t)n_runs + 1, sizeof *z->all_runs);
    z->all_bounds = calloc((size_t)n_bounds + 1, sizeof *z->all_bounds);
    z->piece_of_rank = calloc((size_t)size, sizeof *z->piece_of_rank);
    z->requests = calloc((size_t)(n + n_runs) + 1, sizeof *z->requests);
    z->buffer_requests =
        calloc(2 * (size_t)(n + ZERO_BUFFERS) * (size_t)most, sizeof *z->buffer_requests);
    if (!z->layers || !z->late_grads || !z->all_runs || !z->all_bounds ||
        !z->piece_of_rank || !z->requests || !z->buffer_requests)
        return error_set(err, ERROR_RUNTIME, "out of memory for the ranges of %d layers",
                         n);
    for (int r = 0; r < size; r++)
        z->piece_of_rank[r] = data_rank_piece(DP, SH, r);
    int64_t *bounds = z->all_bounds;
    for (int i = 0; i < n; i++)
        set_layer(z, i, &bounds);
    deal_requests(z, most);
    return 0;
}

/* -- memory -------------------------------------------------------------------------- */

/* A pair as large as the largest block, and one for each of the other layers. */
static void layout_buffers(struct zero *z, struct arena *ar, enum param_store store)
{
    const struct param_table *table = z->opt.map->table;
    int64_t block = 0, n;
    for (int i = 0; i < table->n_layers; i++)
        if (table->layers[i].kind == LAYER_BLOCK) {
            param_table_layer_bytes(table, store, i, &n);
            block = i64_max(block, n);
        }
    for (int i = 0; i < ZERO_BUFFERS; i++) {
        struct zero_buffer *b = store == STORE_PARAMS ? &z->buffers[i] : &z->buckets[i];
        b->memory = arena_bytes(ar, (size_t)block);
        b->layer = -1;
    }
    for (int i = 0; i < table->n_layers; i++) {
        if (table->layers[i].kind == LAYER_BLOCK)
            continue;
        param_table_layer_bytes(table, store, i, &n);
        char *memory = arena_bytes(ar, (size_t)n);
        if (!z->layers)
            continue; // only measured
        struct zero_layer *l = &z->layers[i];
        struct zero_buffer *b = store == STORE_PARAMS ? &l->buffer : &l->bucket;
        b->memory = memory;
        b->layer = -1;
    }
}

/* Bytes of this rank's range of the gradients of late layers, which come first in what is
 * owned; they stay in these layers' buckets, and have no other memory. */
static int64_t late_grad_bytes(const struct zero_options *opt)
{
    const struct shard_map *map = opt->map;
    const struct param_table *table = map->table;
    int n = 0;
    while (n < table->n_layers && table->layers[n].is_late)
        n++;
    for (int i = n; i < table->n_layers; i++)
        CHECK(!table->layers[i].is_late, "late layer %d is not before the others", i);
    int64_t next = map->layer_pieces[n];
    if (opt->stage < 2)
        return 0;
    return next < map->n_pieces ? map->pieces[next].local_at[STORE_GRADS]
                                : map->n_local_bytes[STORE_GRADS];
}

static void layout_owned(struct zero *z, struct arena *ar, struct arena *pinned,
                         enum param_store store)
{
    int64_t n = z->opt.map->n_local_bytes[store];
    if (store == STORE_PARAMS && z->opt.stage >= 3 && !z->opt.offload_dir)
        z->params.owned = arena_bytes(z->opt.is_in_host ? pinned : ar, (size_t)n);
    if (store == STORE_GRADS && z->opt.stage >= 2) {
        z->grads.owned_from = late_grad_bytes(&z->opt);
        z->grads.owned = arena_bytes(ar, (size_t)(n - z->grads.owned_from));
    }
}

static void layout_buckets(struct zero *z, struct arena *ar)
{
    if (z->opt.stage >= 3)
        layout_buffers(z, ar, STORE_PARAMS);
    if (z->opt.stage >= 2) {
        layout_buffers(z, ar, STORE_GRADS);
    }
}

/* Of one run. In stage 0, the reducer adds runs to fused_bytes and one more. */
static size_t longest_reduction(const struct zero_options *opt)
{
    const struct param_table *table = opt->map->table;
    int64_t longest = 0;
    for (int i = 0; i < table->n_layers; i++)
        for (int64_t r = table->layers[i].first_row; r < table->layers[i].end_row;
             r = run_end(table, r)) {
            enum dtype dtype = table->params[r].in[STORE_GRADS].dtype;
            int64_t bytes = run_elements(table, r) * (int64_t)dtype_bytes(dtype);
            longest = i64_max(longest, bytes);
        }
    if (opt->map->size == 1)
        longest += opt->fused_bytes;
    return (size_t)i64_min(longest, table->n_bytes[STORE_GRADS]);
}

struct zero_memory zero_measure(const struct zero_options *opt)
{
    struct zero measured = {.opt = *opt};
    struct zero_memory mem = {.longest = longest_reduction(opt)};
    struct arena ar, pinned;
    arena_measure(&ar);
    arena_measure(&pinned);
    layout_owned(&measured, &ar, &pinned, STORE_PARAMS);
    mem.params = ar.used_bytes + pinned.used_bytes;
    mem.host = pinned.used_bytes;
    arena_measure(&ar);
    layout_owned(&measured, &ar, &pinned, STORE_GRADS);
    mem.grads = ar.used_bytes;
    arena_measure(&ar);
    layout_buckets(&measured, &ar);
    mem.buckets = ar.used_bytes;
    // what is owned of a late layer's bucket counts as owned
    mem.grads += (size_t)late_grad_bytes(opt);
    mem.buckets -= (size_t)late_grad_bytes(opt);
    if (opt->stage >= 3 && opt->offload_dir) {
        size_t windows = OFFLOAD_WINDOWS * OFFLOAD_WINDOW_BYTES;
        mem.offloaded = (size_t)opt->map->n_local_bytes[STORE_PARAMS];
        windows = windows < mem.offloaded ? windows : mem.offloaded;
        mem.buckets += windows;
        if (!device_is_host(opt->dev))
            mem.host += windows;
    }
    return mem;
}

static int open_memory(struct zero *z, struct error *err)
{
    struct arena ar, pinned;
    arena_measure(&ar);
    arena_measure(&pinned);
    layout_owned(z, &ar, &pinned, STORE_PARAMS);
    layout_owned(z, &ar, &pinned, STORE_GRADS);
    layout_buckets(z, &ar);
    if (device_arena_open(z->opt.dev, &z->arena, ar.used_bytes, NULL, "shards", err) ||
        device_host_arena_open(z->opt.dev, &z->arena_pinned, pinned.used_bytes,
                               "the parameters", err))
        return -1;
    layout_owned(z, &z->arena, &z->arena_pinned, STORE_PARAMS);
    layout_owned(z, &z->arena, &z->arena_pinned, STORE_GRADS);
    layout_buckets(z, &z->arena);
    if (z->opt.stage < 3 || !z->opt.offload_dir)
        return 0;
    struct offload_options opt = {.dir = z->opt.offload_dir,
                                  .dir_key = "save_load.offload_dir",
                                  .what = "the parameters",
                                  .n_bytes =
                                      (size_t)z->opt.map->n_local_bytes[STORE_PARAMS]};
    if (offload_open(&z->offload, &opt, err))
        return -1;
    z->params.owned = offload_data(z->offload);
    return 0;
}

/* The gradients of layers that are no blocks have their places for good. */
static void bind_own_buckets(struct zero *z)
{
    for (int i = 0; i < z->opt.map->table->n_layers && z->opt.stage >= 2; i++) {
        struct zero_layer *l = &z->layers[i];
        if (l->is_block)
            continue;
        params_bind_layer(z->of, STORE_GRADS, i, l->bucket.memory);
        if (l->is_late)
            z->late_grads[i] = l->bucket.memory;
    }
    z->grads.layers = z->late_grads;
}

int zero_open(struct zero *z, struct params *of, const struct zero_options *opt,
              struct error *err)
{
    *z = (struct zero){
        .opt = *opt,
        .of = of,
        .params = {.store = STORE_PARAMS, .whole = of->storage[STORE_PARAMS]},
        .grads = {.store = STORE_GRADS, .whole = of->storage[STORE_GRADS]}};
    if (open_ranges(z, err) || open_memory(z, err) ||
        reducer_init(&z->reducer, opt->data, opt->fused_bytes, z->n_runs + 1, err)) {
        zero_close(z);
        return -1;
    }
    bind_own_buckets(z);
    of->owner = (struct params_owner){.context = z,
                                      .open = zero_open_layer,
                                      .close = zero_close_layer,
                                      .takes_grads = opt->stage >= 2};
    return 0;
}

void zero_close(struct zero *z)
{
    reducer_release(&z->reducer);
    offload_close(z->offload);
    if (z->opt.dev) {
        device_event_close(&z->updated);
        device_arena_close(z->opt.dev, &z->arena);
        device_host_arena_close(z->opt.dev, &z->arena_pinned);
    }
    free(z->layers);
    free(z->late_grads);
    free(z->all_runs);
    free(z->all_bounds);
    free(z->buffer_requests);
    free(z->piece_of_rank);
    free(z->requests);
    *z = (struct zero){0};
}

/* -- reductions of a whole layer: stages 0 and 1, and late layers ------------------- */

void zero_sum_layer(struct zero *z, int i, char *grads)
{
    struct zero_layer *l = &z->layers[i];
    for (int r = l->n_runs - 1; r >= 0; r--) {
        struct zero_run *run = &l->runs[r];
        if (z->opt.map->size == 1)
            reducer_add(&z->reducer, grads + run->at, run->dtype, run->n);
        else
            comm_reduce_scatter_start(z->opt.data, grads + run->at, run->dtype,
                                      run->bounds, z->piece_of_rank,
                                      &z->requests[z->n_requests++]);
    }
}

static int wait_for_requests(struct zero *z, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < z->n_requests; i++)
        if (comm_wait(&z->requests[i], err))
            rc = -1;
    z->n_requests = 0;
    return rc;
}

/* The ranks that share a sharding range have a part each; now all of it. */
static int gather_over_dp(struct zero *z, struct error *err)
{
    for (int i = 0; i < z->opt.map->table->n_layers; i++) {
        struct zero_layer *l = &z->layers[i];
        for (int r = 0; r < l->n_runs; r++) {
            struct zero_run *run = &l->runs[r];
            if (run->owned_first == run->owned_end)
                continue;
            size_t size = dtype_bytes(run->dtype);
            char *x = zero_owned_grad(z, l, run->at + run->owned_first * (int64_t)size);
            comm_allgather_start(z->opt.dp, x, size, run->dp_bounds,
                                 &z->requests[z->n_requests++]);
        }
    }
    return wait_for_requests(z, err);
}

void zero_start_step(struct zero *z)
{
    for (int i = 0; i < z->opt.map->table->n_layers; i++)
        z->layers[i].has_sums = false;
}

/* Each stage that holds a row that is tied has the gradients of its own uses of it. */
static int sum_tied_grads(struct zero *z, struct error *err)
{
    const struct param_table *table = z->opt.map->table;
    for (int64_t i = 0; i < table->n_params; i++)
        if (table->params[i].is_tied &&
            comm_allreduce_f32(z->opt.tied, z->of->weights[STORE_GRADS][i].data,
                               table->params[i].n_elements, err))
            return -1;
    return 0;
}

int zero_finish_grads(struct zero *z, struct error *err)
{
    if (sum_tied_grads(z, err))
        return -1;
    for (int i = 0; i < z->opt.map->table->n_layers; i++)
        if (z->layers[i].is_late)
            zero_sum_layer(z, i,
                           z->opt.stage >= 2
                               ? z->layers[i].bucket.memory
                               : (char *)z->grads.whole + z->layers[i].grad_at);
    if (z->opt.map->size == 1)
        return reducer_wait(&z->reducer, err);
    if (zero_drain_buckets(z, err) || wait_for_requests(z, err))
        return -1;
    return comm_size(z->opt.dp) > 1 ? gather_over_dp(z, err) : 0;
}

/* -- parameters after the update ---------------------------------------------------- */

static void gather_layer(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    comm_allgather_start(z->opt.sharding, (char *)z->params.whole + l->param_at,
                         ZERO_UNIT_BYTES, l->param_bounds, &z->requests[z->n_requests++]);
}

void zero_before_update(void *zero, int i)
{
    struct zero *z = zero;
    struct zero_layer *l = &z->layers[i];
    size_t at = (size_t)l->owned_param_at, end = at + (size_t)l->owned_param_bytes;
    struct error err;
    if (!z->offload || at == end)
        return;
    offload_fetch(z->offload, at, end);
    if (offload_wait(z->offload, at, end, &err))
        zero_fail(z, &err);
}

void zero_after_update(void *zero, int i)
{
    struct zero *z = zero;
    struct zero_layer *l = &z->layers[i];
    size_t at = (size_t)l->owned_param_at, end = at + (size_t)l->owned_param_bytes;
    if (z->offload && at < end)
        offload_drop(z->offload, at, end, OFFLOAD_UPDATE);
    if (z->opt.stage < 3)
        gather_layer(z, i);
    comm_progress(z->opt.data);
}

int zero_finish_update(struct zero *z, struct error *err)
{
    for (int i = 0; i < ZERO_BUFFERS; i++)
        z->buffers[i].layer = -1;
    for (int i = 0; i < z->opt.map->table->n_layers; i++)
        z->layers[i].buffer.layer = -1;
    params_changed(z->of);
    int rc = wait_for_requests(z, err);
    device_record(&z->updated, device_stream(z->opt.dev, STREAM_COMPUTE));
    return rc;
}

/* -- checkpoints --------------------------------------------------------------------- */

/* Elements of an owned piece to `to`, or from `from`; the other is NULL. */
static int copy_params(struct zero *z, const struct shard_piece *piece, int64_t first,
                       int64_t n, void *to, const void *from, struct error *err)
{
    const struct param *row = &z->opt.map->table->params[piece->row];
    size_t size = dtype_bytes(row->in[STORE_PARAMS].dtype);
    char *inside = shard_piece_at(z->opt.map, &z->params, piece);
    size_t at = (size_t)piece->local_at[STORE_PARAMS] + (size_t)first * size;
    size_t bytes = (size_t)n * size;
    int rc = 0;
    inside += (size_t)first * size;
    if (z->offload) {
        offload_fetch(z->offload, at, at + bytes);
        rc = offload_wait(z->offload, at, at + bytes, err);
    }
    // a stream of its own: the thread that saves copies while others compute, after the
    // last update; and the next one waits for that thread
    struct stream *s = device_stream(
        zero_params_in_host(z) ? device_cpu(z->opt.dev->dtype) : z->opt.dev, STREAM_COPY);
    device_wait(s, &z->updated);
    if (rc == 0 && to)
        device_copy(s, to, inside, bytes, COPY_TO_HOST);
    else if (rc == 0 && from)
        device_copy(s, inside, from, bytes, COPY_TO_DEVICE);
    device_synchronize(s);
    if (z->offload)
        offload_drop(z->offload, at, at + bytes, to ? OFFLOAD_READ : OFFLOAD_UPDATE);
    return rc ? rc : device_check(s->dev, err);
}

int zero_read_params(struct zero *z, const struct shard_piece *piece, int64_t first,
                     int64_t n, void *x, struct error *err)
{
    return copy_params(z, piece, first, n, x, NULL, err);
}

int zero_write_params(struct zero *z, const struct shard_piece *piece, int64_t first,
                      int64_t n, const float *x, struct error *err)
{
    enum { PART = 16384 };
    enum dtype dtype = z->opt.map->table->params[piece->row].in[STORE_PARAMS].dtype;
    float rounded[PART];
    for (int64_t at = 0; at < n; at += PART) {
        int64_t part = i64_min(PART, n - at);
        dtype_store(rounded, x + at, dtype, part);
        if (copy_params(z, piece, first + at, part, NULL, rounded, err))
            return -1;
    }
    return 0;
}

int zero_spread_params(struct zero *z, struct error *err)
{
    for (int i = 0; i < z->opt.map->table->n_layers && z->opt.stage < 3; i++)
        gather_layer(z, i);
    return zero_finish_update(z, err);
}
