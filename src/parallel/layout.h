/*
 * layout - how a run is spread over processes: the grid, the stages of the pipeline, and
 * what one process holds of the model.
 *
 * All of it follows from the configuration and a place in the grid, with tables but
 * no tensors and no communication, so any process of any layout can be examined on a
 * laptop. The runner (parallel/runner.h) and the memory plan (train/plan.h) are made from
 * it.
 */
#ifndef PARALLEL_LAYOUT_H
#define PARALLEL_LAYOUT_H

#include "comm/grid.h"
#include "config/config.h"
#include "model/gpt.h"
#include "parallel/partition.h"
#include "parallel/schedule.h"
#include "parallel/zero.h"
#include "params/param_table.h"
#include "params/shard_map.h"

/* Refuse a layout that cannot run, before any process is started or memory taken: sizes
 * that do not fit, layers that do not divide, micro-batches too few for chunks.
 * n_processes is what there is, or 0: as many as the layout wants. */
MUST_CHECK int layout_check(const struct config *cfg, int64_t n_processes,
                            struct error *err);

struct grid_shape layout_grid(const struct config *cfg);

/* The stages of the pipeline, a line for each and for each of its layers. */
void layout_log(const struct config *cfg);

/* -- one process --------------------------------------------------------------------- */

enum layout_use {
    LAYOUT_TRAIN,
    LAYOUT_EVALUATE, // forward alone, in float32 whatever it was trained in
    LAYOUT_DECODE,   // likewise; matrices as training's forward had them, since reading
                     // them is what decoding spends its time on
};

struct layout {
    struct grid_shape shape;
    struct grid_coord at;
    struct param_table table; // of what this process holds
    struct param_table whole; // of the model, in float32: what a checkpoint has
    struct shard_map map;
    struct gpt_options model; // model_group is the runner's to fill in
    struct zero_options zero; // likewise data, sharding, dp, tied
    struct schedule_shape schedule;
    int64_t n_message; // numbers that pass between pipeline stages at a time
    bool *keeps_all;   // (layers) owned; what model.keeps_all points to
};

/* What the process at `at` holds. *cfg is borrowed; *l stays where it is. */
MUST_CHECK int layout_init(struct layout *l, const struct config *cfg,
                           struct grid_coord at, enum layout_use use, struct error *err);
void layout_release(struct layout *l);

/* The directory of offloaded state, or NULL when there is none: nothing is offloaded, or
 * what a GPU holds goes to the host's memory, unless a directory is named. */
const char *layout_offload_dir(const struct config *cfg);
bool layout_offloads_to_host(const struct config *cfg);

#endif
