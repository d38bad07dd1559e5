/*
 * train - the run: knows everything and does nothing itself.
 *
 * One step: a batch from the loader, forward and backward of its micro-batches, gradient
 * norm, AdamW, a line of log; now and then an evaluation and a checkpoint.
 *
 * The loss of a step is the sum of the losses of all counted tokens of the global batch
 * divided by their number, so it does not depend on how the batch was cut.
 *
 * Layer: everything above <- train.
 */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "config/config.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/sample_index.h"
#include "model/gpt.h"
#include "optim/optimizer.h"
#include "train/metrics.h"

struct train {
    struct config cfg; // effective; max_steps and decay_steps known
    char *config_json; // of cfg, for checkpoints
    struct corpus *corpus;
    int64_t eos; // -1: unknown
    struct sample_index train_index, valid_index;
    bool has_valid; // an evaluation will happen
    struct loader *loader;
    struct gpt gpt;
    struct optimizer optimizer;
    struct metrics metrics;

    int64_t step;             // updates done
    int64_t first_step;       // updates done before this process started
    int64_t consumed_samples; // of the training part
    float *weights;           // (micro_batch, S)
    double *loss_sums;        // (local_batch)
};

/* Train as *cfg says, until max_steps, a failure, or a signal. ERROR_STOPPED when a
 * signal ended the run after its checkpoint was written. */
MUST_CHECK int train_run(const struct config *cfg, struct error *err);

/* -- phases, for train.c ------------------------------------------------------------- */

/* Everything that can be refused before memory is taken and time is spent: room on disk
 * and in memory, a writable output_dir. */
MUST_CHECK int train_preflight(const struct train *t, struct error *err);

/* Load the checkpoint that ckpt_dir means, if any, and say what changed since; or draw
 * initial weights. */
MUST_CHECK int train_restore(struct train *t, struct error *err);
MUST_CHECK int train_save(struct train *t, struct error *err);

/* The mean loss over eval_iters global batches of the validation part, logged. */
MUST_CHECK int train_evaluate(struct train *t, struct error *err);

/* The losses of one local batch; with gradients when is_training. Returns their sum. */
double train_batch_losses(struct train *t, const struct batch *batch, bool is_training);

/* The epoch that holds the sample after `consumed`, and the number of the batch in it. */
int64_t train_epoch(const struct train *t, int64_t consumed);
int64_t train_batch_in_epoch(const struct train *t, int64_t consumed);

#endif
