/*
 * job_trace - one Chrome/Perfetto trace of all processes of a job (`-o trace=FILE`).
 *
 * Each process records its spans (base/trace.h); at the end of the run rank 0 gathers
 * them and writes the file. Processes of one machine share a clock. Across machines the
 * difference to rank 0's clock is measured by round trips, when the trace is opened and
 * again when it is written, and taken to grow evenly in between: it is known to half the
 * shortest of these round trips.
 */
#ifndef TRAIN_JOB_TRACE_H
#define TRAIN_JOB_TRACE_H

#include "base/trace.h"
#include "comm/grid.h"

struct job_trace {
    struct trace *trace; // NULL: none wanted
    const char *path;    // borrowed
    const struct grid *grid;
    struct trace_clock clock;
    int64_t *bounds; // (ranks + 1) of the texts in the file
};

/* Start recording, communication included; `path` "" means no trace. A trace without
 * spans is written at once, so that a path that cannot be written is refused before the
 * run. [collective] */
MUST_CHECK int job_trace_open(struct job_trace *jt, const char *path,
                              const struct grid *grid, struct error *err);
/* Stop recording; before the grid is closed. */
void job_trace_close(struct job_trace *jt);

/* Write the file; says in the log how much is in it and what had to be left out.
 * [collective] */
MUST_CHECK int job_trace_write(struct job_trace *jt, struct error *err);

#endif
