/*
 * run_pipeline - one step of a run's pipeline: the last that was traced, as it went, or the
 * schedule of the run's layout by the cost model of `trefoil schedule`.
 */
#ifndef BOARD_RUN_PIPELINE_H
#define BOARD_RUN_PIPELINE_H

#include "base/base.h"
#include "board/board_text.h"
#include "board/run.h"

/* Read the run's trace if it is another file than the one that was read last, or has
 * changed since. It is looked for in the run's directory alone, by the last part of the
 * name that the run's configuration has for it. */
void run_pipeline_refresh(struct run *run);

/* {"boxes": [{stage, start, end, kind, label}, ...], "traced": ..., "step": ..., "unit":
 * ...}, as of the last refresh. */
void run_pipeline_write(const struct run *run, struct board_text *out);

#endif
