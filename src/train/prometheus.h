/*
 * prometheus - runs as Prometheus reads them: text of gauges and counters, each with what
 * it means, the samples of all runs together and told apart by a label `run`.
 *
 * The board serves it, and a run keeps a file of itself for node_exporter's collector of
 * text files (key prometheus_file), where nobody can reach into a node.
 */
#ifndef TRAIN_PROMETHEUS_H
#define TRAIN_PROMETHEUS_H

#include "base/base.h"
#include "base/error.h"
#include "train/record.h"

#include <limits.h>

#define PROMETHEUS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* -- the text ------------------------------------------------------------------------ */

struct prometheus_run {  // numbers that are not known are NaN
    const char *name;    // what its samples are labelled with: no other run has it
    const char *version; // of the program; NULL: not known
    const char *layout;  // "dp2 x mp2"; NULL: not known
    double running;      // 1; 0: it has ended
    double step, steps_total, tokens, flops;
    double loss, eval_loss, grad_norm, learning_rate, loss_scale;
    double step_seconds, tokens_per_second, mfu;
    double share_compute, share_waiting, share_reader, share_optimizer;
    double last_update, last_checkpoint; // Unix seconds
    double restarts;
    int64_t n_ranks;                                        // entries of these, by rank;
    const double *rank_seconds, *rank_wait, *rank_resident; // NULL: not known
};

/* Nothing is known but the name. */
struct prometheus_run prometheus_run_of(const char *name);

/* The text of n_runs runs, with a NUL; its length, as snprintf(): what is not below size
 * did not fit. */
size_t prometheus_text(const struct prometheus_run *runs, int n_runs, char *out,
                       size_t size);

/* -- the file ------------------------------------------------------------------------ */

#define PROMETHEUS_RANKS_MOST 256 // of the ranks in a file

struct prometheus_file {
    char path[PATH_MAX], aside[PATH_MAX];
    char name[PATH_MAX], version[64], layout[128];
    struct prometheus_run run;
    double rank_values[3][PROMETHEUS_RANKS_MOST];
    char *text;
    double written; // clock_seconds(); 0: never
    bool is_failing;
};

/* Of the run in output_dir. Nothing is written yet. */
MUST_CHECK int prometheus_open(struct prometheus_file *f, const char *path,
                               const char *output_dir, struct error *err);
void prometheus_close(struct prometheus_file *f); // one of zeros, too
/* Take note, and every few seconds and at events replace the file: it is written aside and
 * renamed, so that no half of it is read. That it cannot be written is told once. */
void prometheus_take(struct prometheus_file *f, const struct record *r);

#endif
