/*
 * train - the run: calls everything, computes nothing.
 *
 * One step: a batch from the loader, forward and backward of its micro-batches in the
 * order of the pipeline's schedule, reductions over the data ranks, gradient norm, the
 * update, a log line; now and then an evaluation and a checkpoint. One process is the
 * smallest layout, not another program: every group has one member.
 *
 * The loss of a step is the sum of the losses of all counted tokens of the global batch
 * divided by their number, so it does not depend on how the batch was cut.
 *
 * A phase that can fail on one rank ends in an agreement, so that all stop together.
 */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "ckpt/ckpt_saver.h"
#include "comm/grid.h"
#include "config/config.h"
#include "data/samples/loader.h"
#include "data/samples/sample_stream.h"
#include "optim/optimizer.h"
#include "optim/scaler.h"
#include "parallel/runner.h"
#include "train/job_trace.h"
#include "train/metrics.h"
#include "train/plan.h"
#include "train/prompts.h"
#include "train/rate.h"
#include "train/shares.h"

#include <limits.h>

struct train {
    struct config cfg; // effective; max_steps and decay_steps known
    char *config_json; // of cfg, for checkpoints
    struct grid grid;
    struct input_set inputs;
    int64_t eos; // -1: unknown
    struct sample_stream train_samples, valid_samples;
    bool has_valid;    // an evaluation will happen
    bool is_by_epochs; // num_train_epochs decides how long it trains
    struct loader *loader;
    struct plan_data data; // what all that takes
    struct plan plan;
    struct device *dev;        // of the plan; open until the end
    struct plan_memory memory; // predicted
    double gathered_at_start;  // bytes sent to spread initial parameters, before step 1
    struct runner runner;      // of the model
    struct optimizer optimizer;
    struct scaler scaler;
    struct metrics metrics; // of rank 0
    struct sinks *sinks;    // of rank 0; NULL elsewhere
    double *layer_norms;    // (num_layers + 2), likewise
    struct rate rate;
    struct shares shares;
    struct prompts prompts;
    struct job_trace job_trace;
    struct ckpt_saver *saver;

    char run_id[CKPT_RUN_ID_BYTES]; // kept in its checkpoints
    char tokenizer_hash
        [TOKENIZER_HASH_BYTES];  // of the data, or of the checkpoint; "": unknown
    char resumed_from[PATH_MAX]; // the checkpoint; "": none
    int64_t step;                // updates done
    int64_t first_step;          // updates done before this process started
    int64_t consumed_samples;    // of the training part

    struct batch batch; // this data rank's share of the step's global batch
    int64_t n_counted;  // tokens that count in the whole global batch
    double *loss_sums;  // (global_batch), and what travels with them
};

/* Train as *cfg says in the job `world`, until max_steps, a failure, or a signal.
 * ERROR_STOPPED when a signal ended the run after its checkpoint was written,
 * ERROR_UNSAVED when it is one that saves nothing.
 * [collective] */
MUST_CHECK int train_run(const struct config *cfg, struct comm *world, struct error *err);

/* The epoch that holds the sample after `consumed`. */
int64_t train_epoch(const struct train *t, int64_t consumed);

#endif
