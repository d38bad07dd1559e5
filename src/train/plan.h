/*
 * plan - what one process of a run will hold, known from the configuration and its place
 * in the grid alone: nothing is allocated or asked of others, so any process of any
 * layout can be planned on a laptop.
 *
 * The run is opened from its plan, and the memory report is the plan's: one description,
 * two uses.
 */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "comm/grid.h"
#include "config/config.h"
#include "model/gpt.h"
#include "optim/optimizer.h"
#include "parallel/zero.h"
#include "params/shard_map.h"
#include "train/plan_data.h"

struct plan {
    struct grid_shape shape;
    struct grid_coord at;
    struct param_table table;
    struct shard_map map;
    struct gpt_options model;           // model_group is the caller's to fill in
    struct zero_options zero;           // likewise data, sharding, dp
    struct optimizer_options optimizer; // its groups are the caller's too
    int64_t n_message; // numbers that pass between pipeline stages at a time
    bool *keeps_all;   // (layers) owned; what model.keeps_all points to
};

/* *cfg is borrowed. */
MUST_CHECK int plan_init(struct plan *p, const struct config *cfg, struct grid_coord at,
                         struct error *err);
void plan_release(struct plan *p);

struct plan_memory { // bytes
    double params, grads, optimizer, activations, comm, scratch;
    double saving;    // the copy that a checkpoint in flight is written from
    double data;      // lengths of documents, order of samples, batches
    double program;   // what a process has before anything of this
    double total;     // of all the above
    double offloaded; // on disk
    double shared;    // of `data`, there once for all processes of a machine
};
/* *data NULL: it is not known. */
MUST_CHECK int plan_memory(struct plan_memory *mem, const struct plan *p,
                           const struct config *cfg, const struct plan_data *data,
                           struct error *err);

/* The directory of offloaded state, or NULL when there is none. */
const char *plan_offload_dir(const struct config *cfg);

#endif
