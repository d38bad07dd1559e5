/*
 * runner - a model that is spread over a grid: windows of tokens in, losses out.
 *
 * The one place where micro-batches go through the pipeline: in a step of training, in
 * the evaluations between steps, and in `trefoil eval`. Knows neither where windows come
 * from nor what gradients are for.
 *
 * A batch is what all data ranks compute together: each has some of its samples, and the
 * last stage of each learns the losses of these, summed over the tokens of a sample in
 * double. All ranks then get all of them and add them in the order of the samples, so the
 * sum depends neither on the layout nor on how the batch was cut.
 */
#ifndef TRAIN_RUNNER_H
#define TRAIN_RUNNER_H

#include "comm/grid.h"
#include "model/gpt.h"
#include "parallel/pipeline.h"

/* This data rank's samples of a batch, in micro-batches of M, the last one of what is
 * left. All ranks that share a model give the same. Arrays are (n, S) and borrowed. */
struct runner_windows {
    int64_t n, S, M;
    const int32_t *tokens, *targets;
    const float *loss_mask;        // 0: the token's loss does not count
    const int32_t *document_start; // as in struct gpt_batch; NULL: each window is one
    float loss_weight;             // in the gradient, of what counts; 0: nothing does
    int64_t first_sample;          // where window 0 is in the batch
    int64_t step;                  // for dropout
    double *loss_sums;  // (samples of the batch) of these windows are filled where known
    int32_t *likeliest; // as in struct gpt_batch; filled where losses are known; or NULL
};

struct runner {
    struct grid *grid; // these are borrowed
    struct gpt *gpt;
    struct pipeline *pipeline;
    struct trace *trace; // NULL: none

    float *weights;                       // (M, S) of a micro-batch
    const struct runner_windows *windows; // of the pass that runs now
    bool is_training;
};

/* For micro-batches as large as the model's. runner_close() takes one of zeros too. */
MUST_CHECK int runner_open(struct runner *r, struct grid *grid, struct gpt *gpt,
                           struct pipeline *pipeline, struct error *err);
void runner_close(struct runner *r);

/* Windows of a pass that keeps all stages busy: the micro-batches of the pipeline's
 * schedule, filled. */
int64_t runner_full_pass(const struct runner *r);

/* All windows forward; those of other data ranks are their own affair. [collective: the
 * ranks that share a model] */
MUST_CHECK int runner_forward(struct runner *r, const struct runner_windows *windows,
                              struct error *err);
/* Forward and backward by the pipeline's schedule, which has as many micro-batches: the
 * gradients of this rank's part. [collective: the ranks that share a model] */
MUST_CHECK int runner_train(struct runner *r, const struct runner_windows *windows,
                            struct error *err);

/* Whether it is this rank that tells the others what it learned of its data rank's
 * samples: one of those that do. */
bool runner_knows_losses(const struct runner *r);

/* Spread loss_sums[0, n_samples) of all data ranks and add them up: the same bits on
 * every rank. What was not filled must be 0. [collective] */
MUST_CHECK int runner_sum_losses(struct runner *r, double *loss_sums, int64_t n_samples,
                                 double *sum, struct error *err);

/* The mean of the tokens that count; 0 when none does. */
static inline double runner_mean_loss(double sum, int64_t n_counted)
{
    return n_counted > 0 ? sum / (double)n_counted : 0.0;
}

#endif
