/*
 * usage - what a run uses of the machine, reported before it starts and after it has
 * ended: memory by category and rank, and the bytes that a rank sends per step.
 */
#ifndef TRAIN_USAGE_H
#define TRAIN_USAGE_H

#include "train/train.h"

/* The memory of any layout, one row per rank, to standard output; nothing is allocated or
 * started. */
MUST_CHECK int usage_dry_run(const struct config *cfg, struct error *err);

/* At the end: t->memory of all ranks and the measured peaks as a table in the log, and
 * what was sent. [collective] */
MUST_CHECK int usage_report_measured(struct train *t, struct error *err);

/* Bytes this rank has sent so far to gather parameters. */
double usage_gathered_bytes(const struct train *t);

/* In each rank's own log: its place, its part of the model, its memory; before the first
 * step, and after the last. (local) */
void usage_log_begin(const struct train *t);
void usage_log_end(const struct train *t);

/* Everything that can be refused before memory is allocated and time is spent: space on
 * disk and in memory, a writable output_dir. Prints the memory report. [collective] */
MUST_CHECK int usage_preflight(struct train *t, struct error *err);

#endif
