/*
 * Losses and gradients of one global batch: the runner takes the micro-batches through
 * the pipeline, layers whose gradients are complete are summed over the data ranks while
 * earlier layers still run, and the tied embedding, which two stages share, comes last.
 *
 * The order of additions to a gradient is the same on every layout: micro-batches in
 * order, then lookup and head of the embedding, then data ranks in order.
 */
#include "train/train.h"

#include "base/beat.h"

#include <string.h>

int train_next_batch(struct train *t, struct loader *loader, struct error *err)
{
    double start = trace_begin(t->job_trace.trace);
    beat(BEAT_BATCH, 0);
    int rc = loader_next(loader, &t->batch, err);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "loader"});
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    t->n_counted = t->batch.n_counted;
    return comm_sum_i64(t->grid.data, &t->n_counted, 1, err);
}

__attribute__((weak)) void train_grads_hook(struct train *t)
{
    (void)t;
}

/* Of t->batch, whose tokens weigh in the gradient so that it is that of their mean loss.
 */
int train_batch_losses(struct train *t, bool is_training, double *sum, struct error *err)
{
    struct batch *batch = &t->batch;
    int64_t G = t->cfg.batch_size.global_batch_size;
    memset(t->loss_sums, 0, (size_t)G * sizeof *t->loss_sums);
    batch->loss_sums = t->loss_sums + batch->first_sample;
    batch->loss_weight =
        t->n_counted > 0 ? (float)t->scaler.scale / (float)t->n_counted : 0.0F;
    batch->step = t->step; // of the run, also in an evaluation
    if (is_training) {
        if (runner_train(&t->runner, batch, err))
            return -1;
        train_grads_hook(t);
        if (runner_finish_grads(&t->runner, err))
            return -1;
    } else if (runner_forward(&t->runner, batch, err)) {
        return -1;
    }
    return runner_sum_losses(&t->runner, t->loss_sums, G, sum, err);
}
