/*
 * One step, and one evaluation between steps: a batch from the loader, its losses and
 * gradients by the runner, the norm, the update, the line of metrics.
 *
 * All ranks talk to each other three times in a step, in small messages: whether all have
 * a batch and how many tokens count in it; the losses; whether the metrics could be
 * written, and what asked to stop.
 */
#include "train/step.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "optim/lr.h"
#include "train/checkpoints.h"
#include "train/events.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- losses and gradients of a global batch ------------------------------------------ */

/* Fill t->batch and t->n_counted from the loader. Ranks that share a model have the same
 * batch: one of them counts. [collective] */
static int next_batch(struct train *t, struct loader *loader, struct error *err)
{
    double start = trace_begin(t->job_trace.trace);
    struct share_span span = shares_begin(&t->shares);
    beat(BEAT_BATCH, 0);
    int rc = loader_next(loader, &t->batch, err);
    shares_end(&t->shares, span, SHARE_READER);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "loader"});
    bool counts = rc == 0 && t->grid.coord.mp == 0 && t->grid.coord.pp == 0;
    int64_t sums[] = {counts ? t->batch.n_counted : 0, rc != 0};
    struct error lost;
    span = shares_begin(&t->shares);
    if (comm_sum_i64(t->grid.world, sums, ARRAY_LEN(sums), &lost)) {
        *err = lost;
        return -1;
    }
    shares_end(&t->shares, span, SHARE_WAITING);
    t->n_counted = sums[0];
    return sums[1] ? comm_agree(t->grid.world, rc, err) : 0;
}

__attribute__((weak)) void train_grads_hook(struct train *t)
{
    (void)t;
}

/* Whether step number `step` is a logged one: the same on every rank. */
static bool is_logged(const struct train *t, int64_t step)
{
    return step % t->cfg.logging_freq == 0 || step == t->cfg.max_steps;
}

/* Add up the losses of a step or of an evaluation, and in the same message where the time
 * of a step goes. */
static int sum_losses(struct train *t, bool is_training, double *sum, struct error *err)
{
    int64_t G = t->cfg.batch_size.global_batch_size;
    double *figures = t->loss_sums + G;
    if (!is_training)
        return runner_sum_losses(&t->runner, t->loss_sums, G, 0, sum, err);
    shares_give(&t->shares, figures);
    struct share_span span = shares_begin(&t->shares);
    if (runner_sum_losses(&t->runner, t->loss_sums, G, SHARES_FIGURES, sum, err))
        return -1;
    shares_take(&t->shares, figures, is_logged(t, t->step + 1));
    shares_end(&t->shares, span, SHARE_WAITING);
    return 0;
}

/* The losses of t->batch on all data ranks, summed; with gradients, complete and summed
 * over data ranks, when is_training: its tokens weigh in them so that they are those of
 * the mean loss. [collective] */
static int batch_losses(struct train *t, bool is_training, double *sum, struct error *err)
{
    struct batch *batch = &t->batch;
    int64_t G = t->cfg.batch_size.global_batch_size;
    memset(t->loss_sums, 0, (size_t)G * sizeof *t->loss_sums);
    batch->loss_sums = t->loss_sums + batch->first_sample;
    batch->loss_weight =
        t->n_counted > 0 ? (float)t->scaler.scale / (float)t->n_counted : 0.0F;
    batch->step = t->step; // of the run, also in an evaluation
    struct share_span span = shares_begin(&t->shares);
    if (is_training) {
        if (runner_train(&t->runner, batch, err))
            return -1;
        train_grads_hook(t);
        if (runner_finish_grads(&t->runner, err))
            return -1;
    } else if (runner_forward(&t->runner, batch, err)) {
        return -1;
    }
    shares_end(&t->shares, span, SHARE_COMPUTE);
    return sum_losses(t, is_training, sum, err);
}

/* -- one step ------------------------------------------------------------------------ */

/* Where to go on after the weights of `step` gave no loss or no gradients. A checkpoint
 * is known to be good once the step after it was: that of `step` itself is not. */
static void advise_restart(const struct train *t, int64_t step, char *advice, size_t size)
{
    char path[PATH_MAX];
    if (checkpoints_before(t, step, path))
        snprintf(advice, size,
                 "resume from before it went wrong: -o save_load.ckpt_dir=%s", path);
    else
        snprintf(advice, size,
                 "start again: there is no checkpoint from before it went "
                 "wrong");
}

static int check_finite(const struct train *t, double loss, double norm,
                        struct error *err)
{
    char advice[PATH_MAX + 128];
    if (isfinite(loss) && isfinite(norm))
        return 0;
    advise_restart(t, t->step, advice, sizeof advice);
    return error_set(err, ERROR_DIVERGED,
                     "step %lld: the loss is %g and the gradient norm %g; the weights "
                     "were not updated and nothing was saved. Lower "
                     "Optimizer.lr.max_lr or set Optimizer.grad_clip, and %.1500s",
                     (long long)t->step + 1, loss, norm, advice);
}

/* The norm of the gradients of the whole model: the same number on every rank. */
static int grad_norm(struct train *t, double *norm, struct error *err)
{
    double start = trace_begin(t->job_trace.trace);
    struct share_span span = shares_begin(&t->shares);
    if (optimizer_norm(&t->optimizer, &t->runner.zero.grads, norm, err))
        return -1;
    shares_end(&t->shares, span, SHARE_OPTIMIZER);
    *norm /= t->scaler.scale;
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "gradient norm"});
    return 0;
}

/* The number in its epoch of the batch that begins after `consumed` samples. */
static int64_t batch_in_epoch(const struct train *t, int64_t consumed)
{
    int64_t first =
        sample_stream_epoch_start(&t->train_samples, train_epoch(t, consumed));
    return (consumed - first) / t->cfg.batch_size.global_batch_size;
}

/* Metrics, and in the same message to all ranks what asked one of them to stop. */
static int report_step(struct train *t, struct metrics_step *step, int64_t *signal,
                       struct error *err)
{
    int64_t before = t->consumed_samples - t->cfg.batch_size.global_batch_size;
    step->step = t->step;
    step->epoch = train_epoch(t, before);
    step->batch = batch_in_epoch(t, before);
    step->lr = lr_at(&t->cfg.optimizer.lr, t->step + 1);
    step->consumed_samples = t->consumed_samples;
    step->device_memory_bytes = (int64_t)device_memory_taken(t->dev);
    bool is_last = t->step == t->cfg.max_steps || stop_is_wanted();
    int rc = 0;
    if (comm_rank(t->grid.world) == 0)
        rc = metrics_step(&t->metrics, step, is_last, err);
    events_layers(t, step);
    bool tells_ranks = is_logged(t, t->step) && shares_ranks_due(&t->shares);
    int64_t most[] = {stop_signal(), rc != 0,
                      comm_rank(t->grid.world) == 0 && tells_ranks};
    struct error lost;
    if (comm_max_i64(t->grid.world, most, ARRAY_LEN(most), &lost)) {
        *err = lost;
        return -1;
    }
    *signal = most[0];
    if (most[1])
        return comm_agree(t->grid.world, rc, err);
    if (!most[2])
        return 0;
    if (shares_gather_ranks(&t->shares, err))
        return -1;
    events_ranks(t);
    return 0;
}

static int update_weights(struct train *t, double norm, struct error *err)
{
    ckpt_saver_await_copy(t->saver);
    double start = trace_begin(t->job_trace.trace);
    struct share_span span = shares_begin(&t->shares);
    struct optimizer_update u = {
        .params = &t->runner.zero.params,
        .grads = &t->runner.zero.grads,
        .lr = lr_at(&t->cfg.optimizer.lr, t->step + 1),
        .grad_norm = norm,
        .grad_scale = 1.0 / t->scaler.scale,
        .number = t->step + 1 - t->scaler.n_skipped,
        .before_layer = zero_before_update,
        .on_layer = zero_after_update,
        .context = &t->runner.zero,
    };
    // a rank that fails here has peers that wait for its parameters
    if (optimizer_step(&t->optimizer, &u, err))
        comm_abort_with(t->grid.world, err);
    if (zero_finish_update(&t->runner.zero, err))
        return -1;
    shares_end(&t->shares, span, SHARE_OPTIMIZER);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "optimizer"});
    return 0;
}

/* The gradients do not fit in float16 with this scale: on all ranks, since all have the
 * same norm. */
static int skip_update(struct train *t, double loss, double norm, struct error *err)
{
    double scale = t->scaler.scale;
    scaler_update(&t->scaler, false);
    if (comm_rank(t->grid.world) == 0)
        log_warning("step %lld: the gradients overflow float16; the step is left out, "
                    "loss scale %g%s%g",
                    (long long)t->step + 1, scale,
                    scale == t->scaler.scale ? " stays " : " -> ", t->scaler.scale);
    events_skipped(t, t->step + 1, t->scaler.scale);
    if (!scaler_is_hopeless(&t->scaler))
        return 0;
    char advice[PATH_MAX + 128] = "";
    if (scale <= 1)
        advise_restart(t, t->step + 1 - t->scaler.bad_steps, advice, sizeof advice);
    return error_set(
        err, ERROR_DIVERGED,
        "step %lld: the loss is %g and the gradient norm %g; %lld steps in a "
        "row overflow float16 with a loss scale of %g. %s%.1300s",
        (long long)t->step + 1, loss, norm, (long long)t->scaler.bad_steps, scale,
        scale > 1 ? "Lower mix_precision.scale_loss, or set "
                    "mix_precision.dynamic_loss_scale to True"
                  : "Lower Optimizer.lr.max_lr, or train in bfloat16 "
                    "(mix_precision.dtype), and ",
        advice);
}

int train_step(struct train *t, int64_t *signal, struct error *err)
{
    double start = clock_seconds(), sum, norm;
    int64_t waits = device_counters(t->dev).synchronisations;
    shares_start_step(&t->shares);
    beat_step(t->step + 1);
    stop_set_moment(STOP_IN_STEP, t->step + 1);
    if (next_batch(t, t->loader, err))
        return error_prefix(err, "step %lld", (long long)t->step + 1);
    double reader_seconds = clock_seconds() - start;

    if (batch_losses(t, true, &sum, err) || grad_norm(t, &norm, err))
        return -1;
    double loss = runner_mean_loss(sum, t->n_counted);
    // a loss that is none is not the scale's fault: it is not scaled
    bool is_skipped =
        t->plan.layout.model.dtype == DTYPE_F16 && isfinite(loss) && !isfinite(norm);
    double scale = t->scaler.scale;
    if (is_skipped) {
        if (skip_update(t, loss, norm, err))
            return -1;
    } else {
        if (check_finite(t, loss, norm, err) || update_weights(t, norm, err))
            return -1;
        scaler_update(&t->scaler, true);
    }
    t->consumed_samples += t->cfg.batch_size.global_batch_size;
    t->step++;
    beat_step_is_through();
    trace_end(t->job_trace.trace, start,
              &(struct trace_span){.name = "step", .args = {{"step", t->step}}});
    struct metrics_step step = {.loss = loss,
                                .grad_norm = norm,
                                .loss_scale = scale,
                                .is_skipped = is_skipped,
                                .reader_seconds = reader_seconds,
                                .device_waits =
                                    device_counters(t->dev).synchronisations - waits,
                                .step_seconds = clock_seconds() - start};
    shares_end_step(&t->shares);
    memcpy(step.shares, t->shares.mean, sizeof step.shares);
    return report_step(t, &step, signal, err);
}

/* -- evaluation ---------------------------------------------------------------------- */

/* Every evaluation sees the same batches, so that their losses can be compared. */
int train_evaluate(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    struct loader *loader = NULL;
    struct loader_options opt = {
        .global_batch = cfg->batch_size.global_batch_size,
        .local_batch = config_update_samples(cfg),
        .data_rank = t->grid.data_rank,
        .n_data_ranks = t->grid.data_size,
        .wraps = true,
        .eod_mask_loss = cfg->dataset.eod_mask_loss,
        .eos = (int32_t)t->eos,
    };
    double start = clock_seconds(), sum = 0;
    int64_t n_counted = 0;
    enum beat_phase before = beat_enter(BEAT_EVALUATE);
    int rc = loader_open(&loader, &t->valid_samples, &opt, err);
    rc = comm_agree(t->grid.world, rc, err);
    for (int64_t i = 0; i < cfg->eval_iters && rc == 0; i++) {
        double batch_sum = 0;
        rc = next_batch(t, loader, err);
        if (rc == 0)
            rc = batch_losses(t, false, &batch_sum, err);
        sum += batch_sum;
        n_counted += t->n_counted;
    }
    loader_close(loader);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "evaluate"});
    beat_enter(before);
    if (rc)
        return rc;
    if (comm_rank(t->grid.world) > 0)
        return 0;
    return metrics_eval(&t->metrics, t->step, train_epoch(t, t->consumed_samples),
                        cfg->eval_iters, runner_mean_loss(sum, n_counted),
                        clock_seconds() - start, err);
}
