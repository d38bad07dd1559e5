/*
 * Layers within a step: parameters pass through buffers (stage 3), gradients through
 * buckets (stages 2 and 3).
 *
 * A buffer keeps its layer until another one needs it, so a layer that is used twice
 * in a row (the last one of forward is the first one of backward) is gathered once.
 */
#include "parallel/zero_internal.h"

void zero_fail(struct zero *z, const struct error *err)
{
    comm_abort_with(z->opt.data, err);
}

static int wait_for_buffer(struct zero_buffer *buffer, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < buffer->n_requests; i++)
        if (comm_wait(&buffer->requests[i], err))
            rc = -1;
    buffer->n_requests = 0;
    buffer->is_busy = false;
    return rc;
}

/* -- parameters ---------------------------------------------------------------------- */

static struct zero_buffer *find_buffer(struct zero *z, int i)
{
    if (!z->layers[i].is_block)
        return &z->layers[i].buffer;
    for (int s = 0; s < ZERO_BUFFERS; s++)
        if (z->buffers[s].layer == i)
            return &z->buffers[s];
    return NULL;
}

/* Copy this rank's own shard of the layer into the buffer. */
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
    device_copy(device_stream(z->opt.dev, STREAM_COMPUTE), to + l->owned_param_first,
                (char *)z->params.owned + at, end - at,
                zero_params_in_host(z) ? COPY_TO_DEVICE : COPY_ON_DEVICE);
    if (z->offload)
        offload_drop(z->offload, at, end, OFFLOAD_READ);
}

/* Start to gather layer i, unless it is there or on its way. */
static struct zero_buffer *start_gather(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    struct zero_buffer *buffer = find_buffer(z, i);
    if (buffer && buffer->layer == i)
        return buffer;
    if (!buffer) {
        buffer = &z->buffers[z->next_buffer];
        z->next_buffer = (z->next_buffer + 1) % ZERO_BUFFERS;
    }
    buffer->layer = i;
    buffer->is_busy = true;
    copy_owned(z, l, buffer->memory);
    comm_allgather_start(z->opt.sharding, buffer->memory, ZERO_UNIT_BYTES,
                         l->param_bounds, &buffer->requests[0]);
    buffer->n_requests = 1;
    return buffer;
}

static void gather_params(struct zero *z, int i, int next)
{
    struct error err;
    struct zero_buffer *buffer = start_gather(z, i);
    if (buffer->is_busy && wait_for_buffer(buffer, &err))
        zero_fail(z, &err);
    params_bind_layer(z->of, STORE_PARAMS, i, buffer->memory);
    // the next block takes the other buffer
    if (z->layers[i].is_block)
        z->next_buffer = (int)(buffer - z->buffers + 1) % ZERO_BUFFERS;
    if (next >= 0)
        start_gather(z, next);
}

/* -- gradients ----------------------------------------------------------------------- */

char *zero_owned_grad(struct zero *z, const struct zero_layer *l, int64_t at)
{
    if (z->opt.stage < 2)
        return (char *)z->grads.whole + l->grad_at + at;
    if (l->is_late)
        return l->bucket.memory + at;
    int64_t owned_at = l->owned_grad_at + (at - l->owned_grad_first);
    return (char *)z->grads.owned + (owned_at - z->grads.owned_from);
}

/* Move the reduced shard of a bucket to the gradients that this rank owns. */
static void add_sums(struct zero *z, struct zero_buffer *bucket)
{
    struct zero_layer *l = &z->layers[bucket->layer];
    int mine = z->piece_of_rank[comm_rank(z->opt.data)];
    for (int r = 0; r < l->n_runs; r++) {
        const struct zero_run *run = &l->runs[r];
        int64_t size = (int64_t)dtype_bytes(run->dtype);
        int64_t first = run->bounds[mine], n = run->bounds[mine + 1] - first;
        if (n == 0)
            continue;
        char *to = zero_owned_grad(z, l, run->at + first * size);
        const char *from = bucket->memory + run->at + first * size;
        if (l->has_sums)
            z->opt.dev->k->add_stored(device_stream(z->opt.dev, STREAM_COMPUTE),
                                      &(struct convert){to, from, run->dtype, n});
        else
            device_copy(device_stream(z->opt.dev, STREAM_COMPUTE), to, from,
                        (size_t)(n * size), COPY_ON_DEVICE);
    }
    l->has_sums = true;
}

static int drain_bucket(struct zero *z, struct zero_buffer *bucket, struct error *err)
{
    if (!bucket->is_busy)
        return 0;
    if (wait_for_buffer(bucket, err))
        return -1;
    add_sums(z, bucket);
    return 0;
}

int zero_drain_buckets(struct zero *z, struct error *err)
{
    if (z->opt.stage < 2)
        return 0;
    for (int i = 0; i < ZERO_BUFFERS; i++)
        if (drain_bucket(z, &z->buckets[(z->next_bucket + i) % ZERO_BUFFERS], err))
            return -1;
    for (int i = 0; i < z->opt.map->table->n_layers; i++)
        if (!z->layers[i].is_block && drain_bucket(z, &z->layers[i].bucket, err))
            return -1;
    return 0;
}

static struct zero_buffer *bucket_of(struct zero *z, int i)
{
    return z->layers[i].is_block ? &z->buckets[z->next_bucket] : &z->layers[i].bucket;
}

/* An empty bucket for the gradients of layer i, zero where they are added to. */
static void open_bucket(struct zero *z, int i)
{
    const struct param_table *table = z->opt.map->table;
    struct zero_buffer *bucket = bucket_of(z, i);
    struct stream *s = device_stream(z->opt.dev, STREAM_COMPUTE);
    struct error err;
    if (drain_bucket(z, bucket, &err))
        zero_fail(z, &err);
    bucket->layer = i;
    params_bind_layer(z->of, STORE_GRADS, i, bucket->memory);
    for (int64_t r = table->layers[i].first_row; r < table->layers[i].end_row; r++)
        if (table->params[r].grad == GRAD_ACCUMULATED)
            z->opt.dev->k->fill(s, &(struct fill){z->of->weights[STORE_GRADS][r].data,
                                                  0.0F, table->params[r].n_elements});
}

static void reduce_bucket(struct zero *z, int i)
{
    struct zero_layer *l = &z->layers[i];
    struct zero_buffer *bucket = bucket_of(z, i);
    if (l->is_block)
        z->next_bucket = (z->next_bucket + 1) % ZERO_BUFFERS;
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
    if (z->opt.stage >= 3)
        gather_params(z, layer, next);
    if (z->opt.stage >= 2 && is_backward && !z->layers[layer].is_late)
        open_bucket(z, layer);
}

void zero_close_layer(void *zero, int layer, bool is_backward, bool is_last)
{
    struct zero *z = zero;
    if (!is_backward || z->layers[layer].is_late)
        return;
    if (z->opt.stage >= 2)
        reduce_bucket(z, layer);
    else if (is_last)
        zero_sum_layer(z, layer, (char *)z->grads.whole + z->layers[layer].grad_at);
}
