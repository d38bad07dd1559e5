/*
 * Losses and gradients of one global batch: the pipeline runs the micro-batches, layers
 * whose gradients are complete are summed over the data ranks while earlier layers still
 * run, and the tied embedding, which two stages share, comes last.
 *
 * The order of additions to a gradient is the same on every layout: micro-batches in
 * order, then lookup and head of the embedding, then data ranks in order.
 */
#include "train/train.h"

#include <string.h>

int train_next_batch(struct train *t, struct loader *loader, struct error *err)
{
    double start = trace_begin(t->job_trace.trace);
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

static struct gpt_batch micro_batch(struct train *t, int micro)
{
    int64_t M = t->cfg.batch_size.micro_batch_size, S = t->batch.S, at = micro * M * S;
    float each = t->n_counted > 0 ? (float)t->scaler.scale / (float)t->n_counted : 0.0F;
    for (int64_t n = 0; n < M * S; n++)
        t->weights[n] = t->batch.loss_mask[at + n] * each;
    return (struct gpt_batch){
        .B = M,
        .S = S,
        .tokens = t->batch.tokens + at,
        .targets = t->batch.targets + at,
        .weights = t->weights,
        .document_start = t->batch.document_start ? t->batch.document_start + at : NULL,
        .step = t->step,
        .first_sample = t->batch.first_sample + micro * M,
        .is_training = t->is_training,
        .accumulate = micro > 0,
        .is_last = micro + 1 == t->cfg.batch_size.num_micro_batches};
}

static void trace_piece(struct train *t, double start, const char *name, int micro,
                        int chunk)
{
    trace_end(
        t->job_trace.trace, start,
        &(struct trace_span){.name = name, .args = {{"micro", micro}, {"chunk", chunk}}});
}

static void forward(void *context, int chunk, int micro, int stash, const void *x_in,
                    void *x_out)
{
    struct train *t = context;
    double start = trace_begin(t->job_trace.trace);
    struct gpt_batch batch = micro_batch(t, micro);
    gpt_chunk_forward(&t->gpt, chunk, &batch, &t->gpt.stashes[stash], x_in, x_out,
                      t->loss_sums + batch.first_sample);
    trace_piece(t, start, "forward", micro, chunk);
}

static void backward(void *context, int chunk, int micro, int stash, float *dx)
{
    struct train *t = context;
    double start = trace_begin(t->job_trace.trace);
    struct gpt_batch batch = micro_batch(t, micro);
    gpt_chunk_backward(&t->gpt, chunk, &batch, &t->gpt.stashes[stash], dx);
    trace_piece(t, start, "backward", micro, chunk);
}

/* The embedding's gradients: lookup and head, then the data ranks, with all that is still
 * on its way. */
static int finish_grads(struct train *t, struct error *err)
{
    gpt_finish_grads(&t->gpt);
    if (t->gpt.d[0].wte && comm_allreduce_f32(t->grid.tied, t->gpt.d[0].wte,
                                              t->gpt.dims.V * t->gpt.dims.H, err))
        return -1;
    train_grads_hook(t);
    return zero_finish_grads(&t->zero, err);
}

/* The last stage of each data rank knows the losses of its samples; all learn them and
 * add them in the order of the global batch. */
static int sum_losses(struct train *t, double *sum, struct error *err)
{
    int64_t G = t->cfg.batch_size.global_batch_size;
    bool counts = t->gpt.part.has_head && t->gpt.part.mp_rank == 0;
    if (!counts)
        memset(t->loss_sums, 0, (size_t)G * sizeof *t->loss_sums);
    if (comm_sum_f64(t->grid.world, t->loss_sums, G, err))
        return -1;
    *sum = 0;
    for (int64_t b = 0; b < G; b++)
        *sum += t->loss_sums[b];
    return 0;
}

int train_batch_losses(struct train *t, bool is_training, double *sum, struct error *err)
{
    struct pipeline_work work = {.context = t, .forward = forward, .backward = backward};
    int64_t G = t->cfg.batch_size.global_batch_size;
    t->is_training = is_training;
    memset(t->loss_sums, 0, (size_t)G * sizeof *t->loss_sums);
    if (is_training) {
        zero_start_step(&t->zero);
        gpt_start_step(&t->gpt);
        if (pipeline_run(&t->pipeline, &work, err) || finish_grads(t, err))
            return -1;
    } else if (pipeline_run_forward(
                   &t->pipeline, (int)t->cfg.batch_size.num_micro_batches, &work, err)) {
        return -1;
    }
    return sum_losses(t, sum, err);
}
