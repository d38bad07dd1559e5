/*
 * What the stages have in common: the ranges of each layer, memory, the sums of gradients
 * and the gathering of parameters at the end of a step. Slots and buckets, by which
 * layers come and go within a step, are in zero_layers.c.
 */
#include "parallel/zero.h"

#include "parallel/zero_internal.h"

#include <stdlib.h>
#include <string.h>

#define WIDENED_ELEMENTS 65536

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

/* Rows of one type that follow each other are one run: vectors, then matrices. */
static void set_runs(struct zero *z, struct zero_layer *l, int i, int64_t **bounds)
{
    const struct shard_map *map = z->opt.map;
    const struct param_table *table = map->table;
    int SH = map->size, DP = comm_size(z->opt.dp);
    int64_t first_row, end_row;
    param_table_rows(table, l->layer, &first_row, &end_row);
    for (int64_t r = first_row; r < end_row;) {
        const struct param *row = &table->params[r], *last = row;
        for (; r < end_row &&
               table->params[r].in[STORE_GRADS].dtype == row->in[STORE_GRADS].dtype;
             r++)
            last = &table->params[r];
        struct zero_run *run = &l->runs[l->n_runs++];
        *run = (struct zero_run){.dtype = row->in[STORE_GRADS].dtype,
                                 .at = row->in[STORE_GRADS].at - l->grad_at,
                                 .n = last->offset + last->n_elements - row->offset,
                                 .bounds = *bounds,
                                 .dp_bounds = *bounds + (int64_t)SH * DP + 1};
        *bounds += (int64_t)SH * DP + 1 + DP + 1;
        set_run_bounds(z, run, row->offset, map->cuts + (int64_t)i * (SH + 1));
    }
}

static void set_layer(struct zero *z, int i, int64_t **bounds)
{
    const struct shard_map *map = z->opt.map;
    struct zero_layer *l = &z->layers[i];
    int SH = map->size;
    int64_t first, end, unused;
    l->layer = map->layers[i];
    l->is_block = l->layer > 0 && l->layer <= z->gpt->dims.L;
    param_table_layer(map->table, l->layer, &first, &end);
    l->param_at = param_table_byte(map->table, STORE_PARAMS, first);
    l->param_bytes = param_table_byte(map->table, STORE_PARAMS, end) - l->param_at;
    l->grad_at = param_table_byte(map->table, STORE_GRADS, first);
    l->grad_bytes = param_table_byte(map->table, STORE_GRADS, end) - l->grad_at;

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

static int open_ranges(struct zero *z, struct error *err)
{
    const struct shard_map *map = z->opt.map;
    int n = map->n_layers, SH = map->size, size = comm_size(z->opt.data);
    int DP = comm_size(z->opt.dp);
    int64_t each = (SH + 1) + 2 * ((int64_t)size + 1 + DP + 1);
    z->layers = calloc((size_t)n + 1, sizeof *z->layers);
    z->all_bounds = calloc((size_t)(n * each) + 1, sizeof *z->all_bounds);
    z->piece_of_rank = calloc((size_t)size, sizeof *z->piece_of_rank);
    z->requests = calloc((size_t)n * 2 + 1, sizeof *z->requests);
    if (!z->layers || !z->all_bounds || !z->piece_of_rank || !z->requests)
        return error_set(err, ERROR_RUNTIME, "out of memory for the ranges of %d layers",
                         n);
    for (int r = 0; r < size; r++)
        z->piece_of_rank[r] = data_rank_piece(DP, SH, r);
    int64_t *bounds = z->all_bounds;
    for (int i = 0; i < n; i++)
        set_layer(z, i, &bounds);
    return 0;
}

/* -- memory -------------------------------------------------------------------------- */

/* The bytes of the largest block in a store, and of the layers before and after blocks.
 */
static void layer_sizes(const struct shard_map *map, int64_t n_layers,
                        enum param_store store, int64_t *block, int64_t ends[2])
{
    *block = ends[0] = ends[1] = 0;
    for (int i = 0; i < map->n_layers; i++) {
        int64_t first, end;
        param_table_layer(map->table, map->layers[i], &first, &end);
        int64_t n = param_table_byte(map->table, store, end) -
                    param_table_byte(map->table, store, first);
        if (map->layers[i] > 0 && map->layers[i] <= n_layers)
            *block = i64_max(*block, n);
        else
            ends[map->layers[i] > 0] = n;
    }
}

static void layout_slots(struct zero_slot *slots, struct zero_slot *ends,
                         struct arena *ar, const struct shard_map *map, int64_t n_layers,
                         enum param_store store)
{
    int64_t block, end_bytes[2];
    layer_sizes(map, n_layers, store, &block, end_bytes);
    for (int i = 0; i < ZERO_SLOTS; i++)
        slots[i] =
            (struct zero_slot){.memory = arena_bytes(ar, (size_t)block), .layer = -1};
    for (int i = 0; i < 2; i++)
        ends[i] = (struct zero_slot){.memory = arena_bytes(ar, (size_t)end_bytes[i]),
                                     .layer = -1};
}

/* Bytes of this rank's range of the embedding's gradient, which comes first in what is
 * owned; it stays in the embedding's own bucket, and has no other memory. */
static int64_t embedding_grad_bytes(const struct zero_options *opt)
{
    bool has_embedding = opt->map->n_layers > 0 && opt->map->layers[0] == 0;
    int64_t next = has_embedding ? opt->map->layer_pieces[1] : 0;
    if (opt->stage < 2 || !has_embedding)
        return 0;
    return next < opt->map->n_pieces ? opt->map->pieces[next].local_at[STORE_GRADS]
                                     : opt->map->n_local_bytes[STORE_GRADS];
}

static void layout_owned(struct zero *z, struct arena *ar, enum param_store store)
{
    int64_t n = z->opt.map->n_local_bytes[store];
    if (store == STORE_PARAMS && z->opt.stage >= 3 && !z->opt.offload_dir)
        z->params.owned = arena_bytes(ar, (size_t)n);
    if (store == STORE_GRADS && z->opt.stage >= 2) {
        int64_t elsewhere = embedding_grad_bytes(&z->opt);
        char *rest = arena_bytes(ar, (size_t)(n - elsewhere));
        z->grads.owned = rest ? rest - elsewhere : NULL;
    }
}

static void layout_buckets(struct zero *z, struct arena *ar, int64_t n_layers)
{
    if (z->opt.stage >= 3)
        layout_slots(z->slots, z->ends, ar, z->opt.map, n_layers, STORE_PARAMS);
    if (z->opt.stage >= 2) {
        layout_slots(z->buckets, z->end_buckets, ar, z->opt.map, n_layers, STORE_GRADS);
        z->widened = arena_f32(ar, WIDENED_ELEMENTS);
    }
}

struct zero_memory zero_measure(const struct zero_options *opt, int64_t n_layers)
{
    struct zero measured = {.opt = *opt};
    struct zero_memory mem = {0};
    struct arena ar;
    arena_measure(&ar);
    layout_owned(&measured, &ar, STORE_PARAMS);
    mem.params = ar.used_bytes;
    arena_measure(&ar);
    layout_owned(&measured, &ar, STORE_GRADS);
    mem.grads = ar.used_bytes;
    arena_measure(&ar);
    layout_buckets(&measured, &ar, n_layers);
    mem.buckets = ar.used_bytes;
    // what is owned of the embedding's bucket counts as owned
    mem.grads += (size_t)embedding_grad_bytes(opt);
    mem.buckets -= (size_t)embedding_grad_bytes(opt);
    if (opt->stage >= 3 && opt->offload_dir) {
        mem.offloaded = (size_t)opt->map->n_local_bytes[STORE_PARAMS];
        mem.buckets += OFFLOAD_WINDOWS * OFFLOAD_WINDOW_BYTES;
    }
    return mem;
}

static int open_memory(struct zero *z, struct error *err)
{
    int64_t L = z->gpt->dims.L;
    struct arena ar;
    arena_measure(&ar);
    layout_owned(z, &ar, STORE_PARAMS);
    layout_owned(z, &ar, STORE_GRADS);
    layout_buckets(z, &ar, L);
    if (arena_open(&z->arena, ar.used_bytes, "shards", err))
        return -1;
    layout_owned(z, &z->arena, STORE_PARAMS);
    layout_owned(z, &z->arena, STORE_GRADS);
    layout_buckets(z, &z->arena, L);
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

/* The embedding's and the final norm's gradients have their places for good. */
static void bind_ends(struct zero *z)
{
    struct gpt *g = z->gpt;
    if (z->opt.stage < 2)
        return;
    z->grads.embedding = z->end_buckets[0].memory;
    param_table_bind_layer(&g->table, STORE_GRADS, 0, z->end_buckets[0].memory, g->d);
    param_table_bind_layer(&g->table, STORE_GRADS, (int)g->dims.L + 1,
                           z->end_buckets[1].memory, g->d);
}

int zero_open(struct zero *z, struct gpt *gpt, const struct zero_options *opt,
              struct error *err)
{
    *z = (struct zero){.opt = *opt,
                       .gpt = gpt,
                       .params = {STORE_PARAMS, gpt->params, NULL, NULL},
                       .grads = {STORE_GRADS, gpt->grads, NULL, NULL}};
    if (opt->stage >= 3)
        z->params.whole = NULL;
    if (opt->stage >= 2)
        z->grads.whole = NULL;
    if (open_ranges(z, err) || open_memory(z, err) ||
        reducer_init(&z->reducer, opt->data, opt->fused_bytes, opt->map->n_layers * 2 + 1,
                     err)) {
        zero_close(z);
        return -1;
    }
    bind_ends(z);
    gpt->layers = (struct gpt_layers){.context = z,
                                      .open = zero_open_layer,
                                      .close = zero_close_layer,
                                      .takes_grads = opt->stage >= 2};
    return 0;
}

void zero_close(struct zero *z)
{
    reducer_release(&z->reducer);
    offload_close(z->offload);
    arena_close(&z->arena);
    free(z->layers);
    free(z->all_bounds);
    free(z->piece_of_rank);
    free(z->requests);
    *z = (struct zero){0};
}

/* -- sums of a whole layer, stages 0 and 1, and of the embedding ----------------------
 */

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
    for (int i = 0; i < z->opt.map->n_layers; i++) {
        struct zero_layer *l = &z->layers[i];
        for (int r = 0; r < l->n_runs; r++) {
            struct zero_run *run = &l->runs[r];
            size_t size = dtype_bytes(run->dtype);
            char *x = zero_owned_grads(z, l) + run->at + run->owned_first * (int64_t)size;
            comm_allgather_start(z->opt.dp, x, size, run->dp_bounds,
                                 &z->requests[z->n_requests++]);
        }
    }
    return wait_for_requests(z, err);
}

void zero_start_step(struct zero *z)
{
    for (int i = 0; i < z->opt.map->n_layers; i++)
        z->layers[i].has_sums = false;
}

int zero_finish_grads(struct zero *z, struct error *err)
{
    int embedding = shard_map_find(z->opt.map, 0);
    if (embedding >= 0)
        zero_sum_layer(z, embedding,
                       z->opt.stage >= 2
                           ? z->end_buckets[0].memory
                           : (char *)z->gpt->grads + z->layers[embedding].grad_at);
    if (z->opt.map->size == 1)
        return reducer_wait(&z->reducer, err);
    if (zero_settle_buckets(z, err) || wait_for_requests(z, err))
        return -1;
    return comm_size(z->opt.dp) > 1 ? gather_over_dp(z, err) : 0;
}

/* -- parameters after the update ------------------------------------------------------
 */

static void gather_layer(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    comm_allgather_start(z->opt.sharding, (char *)z->gpt->params + l->param_at,
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
    for (int i = 0; i < ZERO_SLOTS; i++)
        z->slots[i].layer = -1;
    for (int i = 0; i < 2; i++)
        z->ends[i].layer = -1;
    return wait_for_requests(z, err);
}

/* -- checkpoints --------------------------------------------------------------------- */

/* `outside` := elements of an owned piece, or the other way round. */
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
    if (rc == 0 && to)
        memcpy(to, inside, bytes);
    else if (rc == 0 && from)
        memcpy(inside, from, bytes);
    if (z->offload)
        offload_drop(z->offload, at, at + bytes, to ? OFFLOAD_READ : OFFLOAD_UPDATE);
    return rc;
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
    for (int i = 0; i < z->opt.map->n_layers && z->opt.stage < 3; i++)
        gather_layer(z, i);
    return zero_finish_update(z, err);
}
