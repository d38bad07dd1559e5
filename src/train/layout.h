/*
 * layout - how a run is spread over processes: the grid, the pipeline's pieces, and the
 * part of the model and of the batch that is this process's.
 */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include "comm/grid.h"
#include "config/config.h"
#include "parallel/partition.h"
#include "parallel/schedule.h"
#include "params/param_table.h"

/* Refuse a layout that cannot run, before any process is started or memory taken: sizes
 * that do not fit, layers that do not divide, micro-batches too few for chunks.
 * n_processes is what there is, or 0: as many as the layout wants. */
MUST_CHECK int layout_check(const struct config *cfg, int64_t n_processes,
                            struct error *err);

struct grid_shape layout_grid(const struct config *cfg);
struct schedule_shape layout_schedule(const struct config *cfg);

/* What the process at `at` holds. */
MUST_CHECK int layout_part(struct param_part *part, const struct config *cfg,
                           struct grid_coord at, struct error *err);

/* The pieces of the pipeline, a line a stage and a line a layer. */
void layout_log(const struct config *cfg);

#endif
