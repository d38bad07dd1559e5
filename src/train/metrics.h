/*
 * metrics - what a run reports: the log line, output_dir/metrics.jsonl, a progress line.
 *
 * The log line is the seeds', field for field. metrics.jsonl has one JSON object a logged
 * step, floats with 9 significant digits, so that two runs can be compared bit by bit.
 * Costs are averages since the last logged step and leave out evaluation and saving.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>

struct metrics {
    FILE *file;
    char path[1100];
    int64_t logging_freq, max_steps, tokens_per_step, n_processes;
    double reader_seconds, step_seconds; // since the last logged step
    int64_t n_steps;                     // likewise
    double first_seconds;                // when the first step ended, for the time left
    int64_t first_step;
};

struct metrics_step {
    int64_t step; // from 1
    int64_t epoch, batch;
    double loss, grad_norm;
    double loss_scale;
    bool is_skipped; // the gradients overflowed, nothing was updated
    double lr;       // of the next update, as the seeds log it
    int64_t consumed_samples;
    double reader_seconds, step_seconds; // of this step; step_seconds includes the reader
};

/* Open output_dir/metrics.jsonl. A fresh run (first_step 0) sets an older file aside as
 * metrics.jsonl.previous; a resumed one keeps the lines up to first_step. */
MUST_CHECK int metrics_open(struct metrics *m, const char *output_dir, int64_t first_step,
                            struct error *err);
void metrics_close(struct metrics *m);

/* Account for one step; report it when it is its turn or `is_last`. */
MUST_CHECK int metrics_step(struct metrics *m, const struct metrics_step *s, bool is_last,
                            struct error *err);
/* The "[eval]" line, and an object with "eval_loss" in metrics.jsonl. */
MUST_CHECK int metrics_eval(struct metrics *m, int64_t step, int64_t epoch,
                            int64_t n_batches, double loss, double seconds,
                            struct error *err);

/* The largest resident memory of this process so far, in bytes. */
int64_t metrics_peak_bytes(void);

#endif
