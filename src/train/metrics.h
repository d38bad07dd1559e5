/*
 * metrics - what a run reports: the log line, output_dir/metrics.jsonl, a line per epoch,
 * and progress: a bar on a terminal, or lines for every tenth of the run.
 *
 * The log line is PaddleFleetX's, field for field. metrics.jsonl has one JSON object per
 * line, and each begins with its "step" (a line that something else wrote stays, with a
 * warning); its other members say what it is:
 *
 *     "loss"        a logged step, floats with 9 significant digits, so that two runs can
 *                   be compared bit by bit. Costs are averages since the last logged step
 *                   and leave out evaluation and saving
 *     "eval_loss"   an evaluation
 *     "ranks"       figures rank by rank (shares.h)
 *     "event"       something that happened (events.h)
 *
 * Lines that a full disk does not take are buffered and written later; more than a
 * megabyte of them is an error.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "base/base.h"
#include "base/error.h"
#include "train/record.h"
#include "train/shares.h"

struct sinks;

struct metrics {
    bool is_open;
    int fd;
    char path[1100];
    char *unwritten; // whole lines that the file still lacks
    size_t n_unwritten;
    int64_t logging_freq, max_steps, tokens_per_step, samples_per_step, n_processes;
    double step_flops, product_flops;    // of the model, and a second of this machine
    bool has_bar, has_progress_lines;    // on a terminal, and elsewhere
    double reader_seconds, step_seconds; // since the last logged step
    int64_t n_steps;                     // likewise
    double first_seconds;                // when the first step ended, for the time left
    int64_t first_step;
    struct {
        double loss_sum, seconds;
        int64_t n_steps;
        int64_t first_step; // its number, from 1
    } epoch;                // since the last one ended
    double eval_loss;       // of the last evaluation
    struct sinks *sinks;    // told of every line, too; borrowed; NULL: none
};

struct metrics_step {
    int64_t step; // from 1
    int64_t epoch, batch;
    double loss, grad_norm;
    double loss_scale;
    bool is_skipped; // the gradients overflowed, nothing was updated
    double lr;       // of the next update, as PaddleFleetX logs it
    int64_t consumed_samples;
    double reader_seconds, step_seconds; // of this step; step_seconds includes the reader
    double shares[N_SHARES];             // of all ranks' time, on average
    int64_t device_memory_bytes;         // of a GPU's memory, for rank 0; 0: it has none
    int64_t device_waits;                // of the host, in this step, for that GPU
};

/* Open output_dir/metrics.jsonl. A fresh run (first_step 0) sets an older file aside as
 * metrics.jsonl.previous; a resumed one keeps the lines up to first_step, and those that
 * say when processes of the run started and how they ended. */
MUST_CHECK int metrics_open(struct metrics *m, const char *output_dir, int64_t first_step,
                            struct error *err);
/* Lines that could still not be written are lost, with a warning. One of zeros, or that
 * failed to open, may be closed too. */
void metrics_close(struct metrics *m);

/* Account for one step; report it when it is its turn or `is_last`. */
MUST_CHECK int metrics_step(struct metrics *m, const struct metrics_step *s, bool is_last,
                            struct error *err);
/* The "[eval]" line, and an object with "eval_loss" in metrics.jsonl. */
MUST_CHECK int metrics_eval(struct metrics *m, int64_t step, int64_t epoch,
                            int64_t n_batches, double loss, double seconds,
                            struct error *err);
/* The epoch has ended: its line, with the mean loss and the samples per second of its
 * steps; where it is not whole, the line says since which step. */
void metrics_epoch(struct metrics *m, int64_t epoch, bool is_whole);
/* The line about the evaluation after it, the last one. */
void metrics_epoch_test(const struct metrics *m, int64_t epoch);
/* Append any other object: the one way into the file. */
MUST_CHECK int metrics_tell(struct metrics *m, const struct record *r, struct error *err);

#endif
