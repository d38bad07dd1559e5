/*
 * zero - parameters and gradients of a model, sharded over its data ranks (ZeRO).
 *
 *   stage 0   everything on every data rank; gradients are all-reduced
 *   stage 1   optimizer state sharded: gradients are reduce-scattered, parameters
 *             all-gathered after the update
 *   stage 2   gradients too: a layer's are reduce-scattered after each micro-batch, from
 *             one of two buckets; no rank ever has them all
 *   stage 3   parameters too: a layer's are all-gathered into one of two buffers before
 *             it is used, the next layer's while this one computes
 *
 * A layer is the unit of all of it: its flat range is cut by a shard_map, and reductions
 * run over all data ranks (dp x sharding) in their order, whatever the stage. So all
 * stages give the same bits as plain data parallelism, except with several micro-batches
 * in stages 2 and 3, whose gradients are added in another order.
 *
 * Blocks share the buffers and buckets; other layers have their own, and are gathered
 * once per step. The gradient of a late layer (the embedding, where the lookup's is added
 * to the head's at the end) stays in its bucket for the whole step and is reduced at its
 * end. A row that is tied lies in the stages of all layers that use it: its gradients are
 * first summed over these.
 *
 * Sent by each rank in a step, in parameters P, of N data ranks: 2 P (N-1)/N in stages 0
 * and 1; with m micro-batches (m + 1) P (N-1)/N in stage 2; and 3 m P (N-1)/N at most in
 * stage 3, less what is found in a buffer.
 *
 * Knows layers of params and no model. A lost peer ends the job.
 */
#ifndef PARALLEL_ZERO_H
#define PARALLEL_ZERO_H

#include "base/arena.h"
#include "base/offload.h"
#include "comm/comm.h"
#include "device/device.h"
#include "parallel/reducer.h"
#include "params/params.h"
#include "params/shard_map.h"

#define ZERO_BUFFERS 2 // blocks gathered, and gradients on their way, at a time

struct zero_options {
    int stage;                   // 0 when there is nothing to shard
    const struct shard_map *map; // over the sharding group; borrowed
    struct comm *data;           // rank = dp * sharding + sharding rank
    struct comm *sharding, *dp;
    struct comm *tied; // the stages that hold the rows that are tied
    struct device *dev;
    int64_t fused_bytes;     // join all-reduces up to this; stage 0
    const char *offload_dir; // stage 3: where owned parameters are; NULL: in memory
    bool
        is_in_host; // stage 3: they are in the host's memory, where the device has its own
};

/* Rows of one layer that follow each other and whose gradients have one type. */
struct zero_run {
    enum dtype dtype;
    int64_t at;          // bytes from where the layer's gradients begin
    int64_t n;           // elements
    int64_t *bounds;     // (data size + 1) of the pieces of all data ranks, in elements
    int64_t *dp_bounds;  // (dp + 1) of my sharding range, among the ranks that share it
    int64_t owned_first; // elements [first, end) are this sharding rank's range
    int64_t owned_end;
};

/* What a layer is gathered into, or its gradients are computed in. */
struct zero_buffer {
    char *memory;
    int layer; // index of what it holds, -1: nothing
    bool is_busy;
    struct comm_request *requests; // as many as a layer has runs
    int n_requests;
};

struct zero_layer {
    bool is_block;         // shares buffers and buckets with those like it
    bool is_late;          // see struct param_layer
    struct zero_run *runs; // (n_runs)
    int n_runs;
    int64_t param_at, param_bytes; // in the whole storage
    int64_t grad_at, grad_bytes;   // likewise
    int64_t *param_bounds;         // (sharding + 1) in elements of 2 bytes
    int64_t owned_param_at;        // in the owned storage
    int64_t owned_grad_at;         // likewise
    int64_t owned_param_first;     // in the layer, bytes
    int64_t owned_grad_first;      // likewise
    int64_t owned_param_bytes;
    bool has_sums; // of an earlier micro-batch of this step, in the owned gradients
    struct zero_buffer buffer, bucket; // of a layer that is no block
};

struct zero {
    struct zero_options opt;
    struct params *of;         // whose layers these are; borrowed
    struct zero_layer *layers; // (layers of the table)
    struct zero_run *all_runs; // what the layers' runs point into
    int n_runs;
    int *piece_of_rank;  // (data size)
    int64_t *all_bounds; // what the layers' bounds point into
    struct shard_store params, grads;
    void **late_grads; // (layers of the table) where those of late layers are, or NULL
    struct zero_buffer buffers[ZERO_BUFFERS], buckets[ZERO_BUFFERS]; // of blocks
    int next_buffer, next_bucket;
    struct comm_request *buffer_requests; // what theirs point into
    struct reducer reducer;               // stage 0
    struct comm_request *requests;        // of reductions and gathers of whole layers
    int n_requests;
    struct offload *offload;
    struct event updated; // the last update, on the stream that computes
    struct arena arena;
    struct arena arena_pinned; // of owned parameters in the host's memory
};

struct zero_memory {      // bytes, beside what the model has itself
    size_t params, grads; // owned
    size_t buckets;       // buffers and buckets
    size_t host; // of these, what is not the device's, where it has its own memory
    size_t offloaded;
    size_t longest; // reduction of gradients over the data ranks, at most; of all ranks
};
/* What zero_open() would take. */
struct zero_memory zero_measure(const struct zero_options *opt);

/* Own the layers of `of`, which has no storage for parameters in stage 3, and none for
 * gradients from stage 2 on. */
MUST_CHECK int zero_open(struct zero *z, struct params *of,
                         const struct zero_options *opt, struct error *err);
void zero_close(struct zero *z);

/* Call before the first micro-batch of a step. */
void zero_start_step(struct zero *z);
/* After the last one, when the gradients of late layers are complete here: those that are
 * tied are summed over their stages; then all that this rank owns (all, in stage 0)
 * becomes its sum over the data ranks. [collective] */
MUST_CHECK int zero_finish_grads(struct zero *z, struct error *err);

/* Optimizer: layer i's parameters are needed; and have been updated. [collective] */
void zero_before_update(void *zero, int i);
void zero_after_update(void *zero, int i);
/* The update is over: every rank has its new parameters, or will gather them.
 * [collective] */
MUST_CHECK int zero_finish_update(struct zero *z, struct error *err);

/* Owned parameters of a piece, for checkpoints: copied to `x` in their type, or rounded
 * to it. (local) */
MUST_CHECK int zero_read_params(struct zero *z, const struct shard_piece *piece,
                                int64_t first, int64_t n, void *x, struct error *err);
MUST_CHECK int zero_write_params(struct zero *z, const struct shard_piece *piece,
                                 int64_t first, int64_t n, const float *x,
                                 struct error *err);
/* After writing: every rank gets what others wrote. [collective] */
MUST_CHECK int zero_spread_params(struct zero *z, struct error *err);

#endif
