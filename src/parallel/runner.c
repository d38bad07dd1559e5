#include "parallel/runner.h"

#include <string.h>

int runner_open(struct runner *r, const struct layout *l, const struct config *cfg,
                struct grid *grid, struct error *err)
{
    struct gpt_options model = l->model;
    struct zero_options zero = l->zero;
    model.model_group = grid->model;
    zero.data = grid->data;
    zero.sharding = grid->sharding;
    zero.dp = grid->dp;
    zero.tied = grid->tied;
    *r = (struct runner){.grid = grid};
    if (grid_use_device(grid, model.dev, err) || gpt_open(&r->gpt, cfg, &model, err) ||
        zero_open(&r->zero, &r->gpt.params, &zero, err))
        return -1;
    return pipeline_open(&r->pipeline, model.dev, grid->pipe, &l->schedule, l->n_message,
                         model.dtype, err);
}

void runner_close(struct runner *r)
{
    pipeline_close(&r->pipeline);
    zero_close(&r->zero);
    gpt_close(&r->gpt);
    *r = (struct runner){0};
}

/* -- micro-batches ------------------------------------------------------------------- */

static int64_t n_micro_batches(const struct runner *r, const struct batch *batch)
{
    return (batch->B + r->gpt.dims.B - 1) / r->gpt.dims.B;
}

static struct batch micro_batch(const struct runner *r, const struct batch *whole,
                                int micro)
{
    struct batch b = *whole;
    int64_t M = r->gpt.dims.B, first = micro * M, at = first * whole->S;
    b.B = i64_min(M, whole->B - first);
    b.tokens += at;
    b.targets += at;
    b.loss_mask += at;
    if (b.document_start)
        b.document_start += at;
    if (b.key_end)
        b.key_end += first;
    if (b.likeliest)
        b.likeliest += at;
    b.loss_sums += first;
    b.first_sample += first;
    b.accumulate = micro > 0;
    b.is_last = micro + 1 == n_micro_batches(r, whole);
    return b;
}

static void run_task(struct runner *r, const struct batch *whole,
                     const struct pipeline_task *task)
{
    double start = trace_begin(r->trace);
    struct batch batch = micro_batch(r, whole, task->micro);
    struct gpt_stash *stash = &r->gpt.stashes[task->stash];
    bool is_forward = task->op == OP_FORWARD;
    if (is_forward)
        gpt_chunk_forward(&r->gpt, task->chunk, &batch, stash, task->x_in, task->x_out);
    else
        gpt_chunk_backward(&r->gpt, task->chunk, &batch, stash, task->dx, GPT_BWD_BOTH);
    trace_end(
        r->trace, start,
        &(struct trace_span){.name = is_forward ? "forward" : "backward",
                             .args = {{"micro", task->micro}, {"chunk", task->chunk}}});
}

static int run_tasks(struct runner *r, const struct batch *batch, struct error *err)
{
    struct pipeline_task task;
    int rc;
    while ((rc = pipeline_next(&r->pipeline, &task, err)) > 0)
        run_task(r, batch, &task);
    return rc;
}

/* The losses are there, or the device has failed: the others would wait for this rank. */
static int finish_losses(struct runner *r, struct error *err)
{
    gpt_finish_losses(&r->gpt);
    if (device_check(r->gpt.dev, err) == 0)
        return 0;
    if (comm_size(r->grid->world) > 1)
        comm_abort_with(r->grid->world, err);
    return -1;
}

int64_t runner_full_pass(const struct runner *r)
{
    return r->gpt.dims.B * r->pipeline.schedule.shape.micro_batches;
}

int runner_forward(struct runner *r, const struct batch *batch, struct error *err)
{
    struct batch forward = *batch;
    forward.is_training = false;
    pipeline_start_forward(&r->pipeline, (int)n_micro_batches(r, batch));
    return run_tasks(r, &forward, err) ? -1 : finish_losses(r, err);
}

int runner_train(struct runner *r, const struct batch *batch, struct error *err)
{
    struct batch training = *batch;
    training.is_training = true;
    zero_start_step(&r->zero);
    gpt_start_step(&r->gpt);
    pipeline_start(&r->pipeline);
    if (run_tasks(r, &training, err))
        return -1;
    gpt_finish_grads(&r->gpt);
    return 0;
}

/* The order of additions to a gradient is the same on every layout: micro-batches in
 * order, then lookup and head of the embedding, then data ranks in order. */
int runner_finish_grads(struct runner *r, struct error *err)
{
    // last: by then all that leads to the gradients was enqueued
    return zero_finish_grads(&r->zero, err) ? -1 : finish_losses(r, err);
}

bool runner_knows_losses(const struct runner *r)
{
    return r->gpt.part.has_head && r->gpt.part.mp_rank == 0;
}

int runner_sum_losses(struct runner *r, double *loss_sums, int64_t n_samples,
                      int64_t n_figures, double *sum, struct error *err)
{
    if (!runner_knows_losses(r))
        memset(loss_sums, 0, (size_t)n_samples * sizeof *loss_sums);
    if (comm_sum_f64(r->grid->world, loss_sums, n_samples + n_figures, err))
        return -1;
    *sum = 0;
    for (int64_t i = 0; i < n_samples; i++)
        *sum += loss_sums[i];
    return 0;
}
