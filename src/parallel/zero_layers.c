/*
 * Layers that come and go within a step: parameters through slots (stage 3), gradients
 * through buckets (stages 2 and 3).
 *
 * A slot keeps its layer until another one needs the room, so a layer that is used twice
 * in a row (the last one of forward is the first one of backward) is gathered once.
 */
#include "parallel/zero_internal.h"

#include <string.h>

#define WIDENED_ELEMENTS 65536

void zero_fail(struct zero *z, const struct error *err)
{
    comm_abort_with(z->opt.data, err);
}

static int wait_for_slot(struct zero_slot *slot, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < slot->n_requests; i++)
        if (comm_wait(&slot->requests[i], err))
            rc = -1;
    slot->n_requests = 0;
    slot->is_busy = false;
    return rc;
}

/* -- parameters ---------------------------------------------------------------------- */

static struct zero_slot *find_slot(struct zero *z, int i)
{
    if (!z->layers[i].is_block)
        return &z->ends[z->layers[i].layer > 0];
    for (int s = 0; s < ZERO_SLOTS; s++)
        if (z->slots[s].layer == i)
            return &z->slots[s];
    return NULL;
}

/* This rank's own part of the layer, from where it is kept. */
static void copy_owned(struct zero *z, const struct zero_layer *l, char *to)
{
    size_t at = (size_t)l->owned_param_at, end = at + (size_t)l->owned_param_bytes;
    struct error err;
    if (at == end)
        return;
    if (z->offload) {
        offload_fetch(z->offload, at, end);
        if (offload_wait(z->offload, at, end, &err))
            zero_fail(z, &err);
    }
    memcpy(to + l->owned_param_first, (char *)z->params.owned + at, end - at);
    if (z->offload)
        offload_drop(z->offload, at, end, OFFLOAD_READ);
}

/* Start to gather layer i, unless it is there or on its way. */
static struct zero_slot *start_gather(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    struct zero_slot *slot = find_slot(z, i);
    if (slot && slot->layer == i)
        return slot;
    if (!slot) {
        slot = &z->slots[z->next_slot];
        z->next_slot = (z->next_slot + 1) % ZERO_SLOTS;
    }
    slot->layer = i;
    slot->is_busy = true;
    copy_owned(z, l, slot->memory);
    comm_allgather_start(z->opt.sharding, slot->memory, ZERO_UNIT_BYTES, l->param_bounds,
                         &slot->requests[0]);
    slot->n_requests = 1;
    return slot;
}

static void bring_params(struct zero *z, int i, int next)
{
    struct error err;
    struct gpt *g = z->gpt;
    struct zero_slot *slot = start_gather(z, i);
    if (slot->is_busy && wait_for_slot(slot, &err))
        zero_fail(z, &err);
    param_table_bind_layer(&g->table, STORE_PARAMS, z->layers[i].layer, slot->memory,
                           g->p);
    // the next layer takes the other slot: the one that is not this one's
    if (z->layers[i].is_block)
        z->next_slot = (int)(slot - z->slots + 1) % ZERO_SLOTS;
    if (next >= 0)
        start_gather(z, next);
}

/* -- gradients ----------------------------------------------------------------------- */

char *zero_owned_grads(struct zero *z, const struct zero_layer *l)
{
    if (z->opt.stage < 2)
        return (char *)z->gpt->grads + l->grad_at;
    if (l->layer == 0)
        return z->end_buckets[0].memory;
    return (char *)z->grads.owned + l->owned_grad_at - l->owned_grad_first;
}

/* to[0, n) += from, both of one type. */
static void add_typed(struct zero *z, char *to, const char *from, enum dtype dtype,
                      int64_t n)
{
    const struct kernels *k = z->gpt->k;
    struct stream *s = z->gpt->s;
    int64_t size = (int64_t)dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i += WIDENED_ELEMENTS) {
        int64_t part = i64_min(WIDENED_ELEMENTS, n - i);
        k->load(s, z->widened, from + i * size, dtype, part);
        k->store_add(s, to + i * size, z->widened, dtype, part);
    }
}

/* The sums that this rank has got in a bucket go to the gradients it owns. */
static void take_sums(struct zero *z, struct zero_slot *bucket)
{
    struct zero_layer *l = &z->layers[bucket->layer];
    int mine = z->piece_of_rank[comm_rank(z->opt.data)];
    for (int r = 0; r < l->n_runs; r++) {
        const struct zero_run *run = &l->runs[r];
        int64_t size = (int64_t)dtype_bytes(run->dtype);
        int64_t first = run->bounds[mine], n = run->bounds[mine + 1] - first;
        char *to = zero_owned_grads(z, l) + run->at + first * size;
        const char *from = bucket->memory + run->at + first * size;
        if (l->has_sums)
            add_typed(z, to, from, run->dtype, n);
        else
            memcpy(to, from, (size_t)(n * size));
    }
    l->has_sums = true;
}

static int settle(struct zero *z, struct zero_slot *bucket, struct error *err)
{
    if (!bucket->is_busy)
        return 0;
    if (wait_for_slot(bucket, err))
        return -1;
    take_sums(z, bucket);
    return 0;
}

int zero_settle_buckets(struct zero *z, struct error *err)
{
    if (z->opt.stage < 2)
        return 0;
    for (int i = 0; i < ZERO_SLOTS; i++)
        if (settle(z, &z->buckets[(z->next_bucket + i) % ZERO_SLOTS], err))
            return -1;
    return settle(z, &z->end_buckets[1], err);
}

static void clear_accumulated(struct zero *z, const struct zero_layer *l, char *memory)
{
    const struct param_table *table = &z->gpt->table;
    int64_t first, end;
    param_table_rows(table, l->layer, &first, &end);
    for (int64_t r = first; r < end; r++) {
        const struct param *row = &table->params[r];
        if (row->grad == GRAD_ACCUMULATED)
            memset(memory + row->in[STORE_GRADS].at - l->grad_at, 0,
                   (size_t)row->n_elements * sizeof(float));
    }
}

static void bring_grads(struct zero *z, int i)
{
    struct error err;
    struct gpt *g = z->gpt;
    struct zero_slot *bucket =
        z->layers[i].is_block ? &z->buckets[z->next_bucket] : &z->end_buckets[1];
    if (settle(z, bucket, &err))
        zero_fail(z, &err);
    bucket->layer = i;
    clear_accumulated(z, &z->layers[i], bucket->memory);
    param_table_bind_layer(&g->table, STORE_GRADS, z->layers[i].layer, bucket->memory,
                           g->d);
}

static void take_grads(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    struct zero_slot *bucket =
        l->is_block ? &z->buckets[z->next_bucket] : &z->end_buckets[1];
    if (l->is_block)
        z->next_bucket = (z->next_bucket + 1) % ZERO_SLOTS;
    bucket->is_busy = true;
    for (int r = 0; r < l->n_runs; r++)
        comm_reduce_scatter_start(z->opt.data, bucket->memory + l->runs[r].at,
                                  l->runs[r].dtype, l->runs[r].bounds, z->piece_of_rank,
                                  &bucket->requests[bucket->n_requests++]);
}

/* -- what the model calls ------------------------------------------------------------ */

void zero_open_layer(void *zero, int layer, int next, bool is_backward)
{
    struct zero *z = zero;
    int i = shard_map_find(z->opt.map, layer);
    if (z->opt.stage >= 3)
        bring_params(z, i, next < 0 ? -1 : shard_map_find(z->opt.map, next));
    // the head also needs the embedding, as its matrix
    if (z->opt.stage >= 3 && layer == z->gpt->dims.L + 1)
        bring_params(z, shard_map_find(z->opt.map, 0), -1);
    if (z->opt.stage >= 2 && is_backward)
        bring_grads(z, i);
}

void zero_close_layer(void *zero, int layer, bool is_backward, bool is_last)
{
    struct zero *z = zero;
    int i = shard_map_find(z->opt.map, layer);
    if (is_backward && z->opt.stage >= 2)
        take_grads(z, i);
    else if (is_backward && is_last)
        zero_sum_layer(z, i, (char *)z->gpt->grads + z->layers[i].grad_at);
}
