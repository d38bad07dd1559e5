#include "train/runner.h"

#include <stdlib.h>
#include <string.h>

int runner_open(struct runner *r, struct grid *grid, struct gpt *gpt,
                struct pipeline *pipeline, struct error *err)
{
    *r = (struct runner){.grid = grid, .gpt = gpt, .pipeline = pipeline};
    r->weights = malloc((size_t)(gpt->dims.B * gpt->dims.S) * sizeof *r->weights);
    if (!r->weights)
        return error_set(err, ERROR_RUNTIME, "out of memory for a batch");
    return 0;
}

void runner_close(struct runner *r)
{
    free(r->weights);
    *r = (struct runner){0};
}

/* -- one micro-batch ----------------------------------------------------------------- */

static int64_t n_micro_batches(const struct runner_windows *w)
{
    return (w->n + w->M - 1) / w->M;
}

static struct gpt_batch micro_batch(struct runner *r, int micro)
{
    const struct runner_windows *w = r->windows;
    int64_t first = micro * w->M, at = first * w->S, B = i64_min(w->M, w->n - first);
    for (int64_t n = 0; n < B * w->S; n++)
        r->weights[n] = w->loss_mask[at + n] * w->loss_weight;
    return (struct gpt_batch){.B = B,
                              .S = w->S,
                              .tokens = w->tokens + at,
                              .targets = w->targets + at,
                              .weights = r->weights,
                              .document_start =
                                  w->document_start ? w->document_start + at : NULL,
                              .likeliest = w->likeliest ? w->likeliest + at : NULL,
                              .step = w->step,
                              .first_sample = w->first_sample + first,
                              .is_training = r->is_training,
                              .accumulate = micro > 0,
                              .is_last = micro + 1 == n_micro_batches(w)};
}

static void trace_piece(struct runner *r, double start, const char *name, int micro,
                        int chunk)
{
    trace_end(
        r->trace, start,
        &(struct trace_span){.name = name, .args = {{"micro", micro}, {"chunk", chunk}}});
}

static void forward(void *context, int chunk, int micro, int stash, const void *x_in,
                    void *x_out)
{
    struct runner *r = context;
    double start = trace_begin(r->trace);
    struct gpt_batch batch = micro_batch(r, micro);
    gpt_chunk_forward(r->gpt, chunk, &batch, &r->gpt->stashes[stash], x_in, x_out,
                      r->windows->loss_sums + batch.first_sample);
    trace_piece(r, start, "forward", micro, chunk);
}

static void backward(void *context, int chunk, int micro, int stash, float *dx)
{
    struct runner *r = context;
    double start = trace_begin(r->trace);
    struct gpt_batch batch = micro_batch(r, micro);
    gpt_chunk_backward(r->gpt, chunk, &batch, &r->gpt->stashes[stash], dx);
    trace_piece(r, start, "backward", micro, chunk);
}

/* -- all of them --------------------------------------------------------------------- */

int64_t runner_full_pass(const struct runner *r)
{
    return r->gpt->dims.B * r->pipeline->schedule.shape.micro_batches;
}

int runner_forward(struct runner *r, const struct runner_windows *windows,
                   struct error *err)
{
    struct pipeline_work work = {.context = r, .forward = forward};
    r->windows = windows;
    r->is_training = false;
    return pipeline_run_forward(r->pipeline, (int)n_micro_batches(windows), &work, err);
}

int runner_train(struct runner *r, const struct runner_windows *windows,
                 struct error *err)
{
    struct pipeline_work work = {.context = r, .forward = forward, .backward = backward};
    r->windows = windows;
    r->is_training = true;
    return pipeline_run(r->pipeline, &work, err);
}

bool runner_knows_losses(const struct runner *r)
{
    return r->gpt->part.has_head && r->gpt->part.mp_rank == 0;
}

int runner_sum_losses(struct runner *r, double *loss_sums, int64_t n_samples, double *sum,
                      struct error *err)
{
    if (!runner_knows_losses(r))
        memset(loss_sums, 0, (size_t)n_samples * sizeof *loss_sums);
    if (comm_sum_f64(r->grid->world, loss_sums, n_samples, err))
        return -1;
    *sum = 0;
    for (int64_t i = 0; i < n_samples; i++)
        *sum += loss_sums[i];
    return 0;
}
