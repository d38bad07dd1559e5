/*
 * runner - a model that is spread over a grid: batches in, losses out.
 *
 * The one way to open a model, for training, `trefoil eval` and `trefoil generate`, and
 * the one place where micro-batches go through the pipeline: in a step of training, in
 * the evaluations between steps, and in `trefoil eval`. Knows neither where batches come
 * from nor what gradients are for.
 *
 * All data ranks compute a global batch together: each has some of its samples, and the
 * last stage of each learns the losses of these, summed over the tokens of a sample in
 * double. All ranks then get all of them and add them in the order of the samples, so the
 * sum depends neither on the layout nor on how the batch was cut.
 */
#ifndef PARALLEL_RUNNER_H
#define PARALLEL_RUNNER_H

#include "comm/grid.h"
#include "model/gpt.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"
#include "parallel/zero.h"

struct runner {
    struct grid *grid; // borrowed
    struct gpt gpt;
    struct zero zero;
    struct pipeline pipeline;
    struct trace *trace; // NULL: none
};

/* The model of the layout, its parameters zero. *l and *grid are borrowed.
 * runner_close() also takes a half-opened one, and one of zeros. */
MUST_CHECK int runner_open(struct runner *r, const struct layout *l,
                           const struct config *cfg, struct grid *grid,
                           struct error *err);
void runner_close(struct runner *r);

/* Samples of a pass that keeps all stages busy: the micro-batches of the pipeline's
 * schedule, filled. */
int64_t runner_full_pass(const struct runner *r);

/* All samples of the batch forward, in micro-batches as large as the model's, the last
 * one of what is left. All ranks that share a model give the same batch; other data ranks
 * have batches of their own. [collective: the ranks that share a model] */
MUST_CHECK int runner_forward(struct runner *r, const struct batch *batch,
                              struct error *err);
/* One step: forward and backward by the pipeline's schedule, which has as many
 * micro-batches. The gradients of this rank's part are there, some of them on their way
 * to other data ranks: runner_finish_grads() makes all that this rank owns their sum over
 * the data ranks, and the losses are there. [collective: the ranks that share a model;
 * all] */
MUST_CHECK int runner_train(struct runner *r, const struct batch *batch,
                            struct error *err);
MUST_CHECK int runner_finish_grads(struct runner *r, struct error *err);

/* Whether it is this rank that reports to the others what it learned of its data rank's
 * samples: one of those that do. */
bool runner_knows_losses(const struct runner *r);

/* Spread loss_sums[0, n_samples) of all data ranks and add them up: the same bits on
 * every rank. What was not filled must be 0. The n_figures numbers after them, of every
 * rank, travel with them and become their sums over ranks. [collective] */
MUST_CHECK int runner_sum_losses(struct runner *r, double *loss_sums, int64_t n_samples,
                                 int64_t n_figures, double *sum, struct error *err);

/* The mean of the tokens that count; 0 when none does. */
static inline double runner_mean_loss(double sum, int64_t n_counted)
{
    return n_counted > 0 ? sum / (double)n_counted : 0.0;
}

#endif
