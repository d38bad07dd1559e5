#include "train/train.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/worker.h"
#include "optim/lr.h"
#include "train/layout.h"
#include "train/stop.h"

#include <math.h>
#include <stdlib.h>

int64_t train_epoch(const struct train *t, int64_t consumed)
{
    return sample_index_epoch_of(&t->train_index, consumed);
}

int64_t train_batch_in_epoch(const struct train *t, int64_t consumed)
{
    int64_t first = sample_index_epoch_start(&t->train_index, train_epoch(t, consumed));
    return (consumed - first) / t->cfg.batch_size.global_batch_size;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_index(struct train *t, enum split_part part, int64_t n_samples,
                      struct sample_index *index, struct error *err)
{
    const struct config_dataset *d = &t->cfg.dataset;
    struct sample_index_options opt = {.split = {d->split[0], d->split[1], d->split[2]},
                                       .part = part,
                                       .seq_len = d->max_seq_len,
                                       .n_samples = n_samples,
                                       .seed = t->cfg.seed,
                                       .cache_dir = d->cache_dir};
    return sample_index_open(index, t->corpus, &opt, err);
}

/* max_steps left empty: as many whole steps as num_train_epochs passes have. */
static int derive_steps(struct train *t, struct error *err)
{
    struct config *cfg = &t->cfg;
    struct sample_index probe;
    int64_t G = cfg->batch_size.global_batch_size;
    if (cfg->max_steps == 0) {
        if (open_index(t, SPLIT_TRAIN, 1, &probe, err))
            return -1;
        int64_t n_samples = sample_index_epoch_start(&probe, cfg->num_train_epochs);
        sample_index_close(&probe);
        cfg->max_steps = n_samples / G;
        if (cfg->max_steps == 0)
            return error_set(err, ERROR_INPUT,
                             "num_train_epochs %lld over the training part gives %lld "
                             "samples, fewer than one global batch of %lld; lower "
                             "batch_size.global_batch_size or set max_steps",
                             (long long)cfg->num_train_epochs, (long long)n_samples,
                             (long long)G);
    }
    if (cfg->optimizer.lr.decay_steps == 0)
        cfg->optimizer.lr.decay_steps = cfg->max_steps;
    return 0;
}

static int open_data(struct train *t, struct error *err)
{
    struct config *cfg = &t->cfg;
    const struct config_dataset *d = &cfg->dataset;
    int64_t G = cfg->batch_size.global_batch_size;
    if (corpus_open(&t->corpus, d->input_dir, err) ||
        corpus_check_tokens(t->corpus, cfg->model.vocab_size, d->cache_dir, err) ||
        corpus_resolve_eos(t->corpus, d->eos_token_id, &t->eos, err))
        return -1;
    if (d->eod_mask_loss && t->eos < 0)
        return error_set(err, ERROR_INPUT,
                         "dataset.eod_mask_loss needs to know the end-of-document token: "
                         "set dataset.eos_token_id (GPT-2: 50256)");
    if (derive_steps(t, err) ||
        open_index(t, SPLIT_TRAIN, G * cfg->max_steps, &t->train_index, err))
        return -1;
    t->has_valid = config_evaluates(cfg);
    if (t->has_valid &&
        open_index(t, SPLIT_VALID, G * cfg->eval_iters, &t->valid_index, err))
        return error_prefix(err, "evaluation (eval_freq %lld) needs validation data",
                            (long long)cfg->eval_freq);
    return 0;
}

/* One process a machine builds the index and leaves it in the cache; then the others. */
static int open_data_in_turns(struct train *t, struct error *err)
{
    int rc = 0;
    bool is_first = comm_local_rank(t->grid.world) == 0;
    if (is_first)
        rc = open_data(t, err);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    if (!is_first)
        rc = open_data(t, err);
    return comm_agree(t->grid.world, rc, err);
}

/* Stashes that the schedule of this stage has in flight at most. */
static int count_stashes(const struct train *t, int *n_stashes, struct error *err)
{
    struct schedule schedule;
    struct schedule_shape shape = layout_schedule(&t->cfg);
    if (schedule_init(&schedule, &shape, t->grid.coord.pp, err))
        return -1;
    *n_stashes = schedule_max_in_flight(&schedule, SCHEDULE_ALL_CHUNKS);
    schedule_release(&schedule);
    return 0;
}

int train_model_options(const struct train *t, struct gpt_options *opt, struct error *err)
{
    *opt =
        (struct gpt_options){.B = t->cfg.batch_size.micro_batch_size,
                             .has_grads = true,
                             .model_group = t->grid.model,
                             .sequence_parallel = t->cfg.distributed.sequence_parallel};
    if (layout_part(&opt->part, &t->cfg, t->grid.coord, err))
        return -1;
    return count_stashes(t, &opt->n_stashes, err);
}

static int open_parallel(struct train *t, struct error *err)
{
    enum { FUSED_ELEMENTS = 16 << 20 };
    const struct config *cfg = &t->cfg;
    struct schedule_shape shape = layout_schedule(cfg);
    int64_t n = cfg->batch_size.micro_batch_size *
                (cfg->dataset.max_seq_len / t->gpt.sp) * t->gpt.dims.H;
    if (pipeline_open(&t->pipeline, t->grid.pipe, &shape, n, err))
        return -1;
    return reducer_init(&t->reducer, t->grid.data, t->gpt.grads,
                        cfg->tensor_fusion ? FUSED_ELEMENTS : 0,
                        (int)cfg->model.num_layers + 2, err);
}

static int open_model(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    struct gpt_options opt;
    int64_t M = cfg->batch_size.micro_batch_size;
    if (train_model_options(t, &opt, err) || gpt_open_part(&t->gpt, cfg, &opt, err) ||
        optimizer_open(&t->optimizer, &t->gpt.table, t->gpt.k, &cfg->optimizer, err) ||
        open_parallel(t, err))
        return -1;
    t->config_json = config_to_json(cfg);
    t->weights = malloc((size_t)(M * cfg->dataset.max_seq_len) * sizeof *t->weights);
    t->loss_sums =
        malloc((size_t)cfg->batch_size.global_batch_size * sizeof *t->loss_sums);
    if (!t->config_json || !t->weights || !t->loss_sums)
        return error_set(err, ERROR_RUNTIME, "out of memory for a batch");
    return 0;
}

static int open_loader(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    int64_t G = cfg->batch_size.global_batch_size;
    struct loader_options opt = {
        .global_batch = G,
        .local_batch = cfg->batch_size.local_batch_size,
        .data_rank = t->grid.data_rank,
        .n_data_ranks = t->grid.data_size,
        .first_step = t->consumed_samples / G,
        .eod_mask_loss = cfg->dataset.eod_mask_loss,
        .eos = (int32_t)t->eos,
    };
    return loader_open(&t->loader, &t->train_index, &opt, err);
}

static int open_metrics(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    t->metrics = (struct metrics){
        .logging_freq = cfg->logging_freq,
        .max_steps = cfg->max_steps,
        .tokens_per_step = cfg->batch_size.global_batch_size * cfg->dataset.max_seq_len,
        .n_processes = comm_size(t->grid.world),
    };
    if (comm_rank(t->grid.world) > 0)
        return 0;
    return metrics_open(&t->metrics, cfg->save_load.output_dir, t->first_step, err);
}

/* Each phase is local, but for train_restore(); an agreement ends it. */
static int train_open(struct train *t, const struct config *cfg, struct comm *world,
                      struct error *err)
{
    struct grid_shape shape = layout_grid(cfg);
    *t = (struct train){.cfg = *cfg};
    if (grid_open(&t->grid, world, &shape, err) ||
        job_trace_open(&t->job_trace, t->cfg.trace, &t->grid, err) ||
        open_data_in_turns(t, err) || comm_agree(world, train_preflight(t, err), err) ||
        comm_agree(world, open_model(t, err), err) || train_restore(t, err) ||
        comm_agree(world, open_metrics(t, err), err))
        return -1;
    if (t->step >= t->cfg.max_steps)
        return 0;
    t->gpt.trace = t->job_trace.trace;
    return comm_agree(world, open_loader(t, err), err);
}

static void train_close(struct train *t)
{
    loader_close(t->loader);
    metrics_close(&t->metrics);
    reducer_release(&t->reducer);
    pipeline_close(&t->pipeline);
    optimizer_close(&t->optimizer);
    gpt_close(&t->gpt);
    sample_index_close(&t->train_index);
    sample_index_close(&t->valid_index);
    corpus_close(t->corpus);
    free(t->config_json);
    free(t->weights);
    free(t->loss_sums);
    job_trace_close(&t->job_trace);
    grid_close(&t->grid);
}

/* -- one step ------------------------------------------------------------------------ */

static int check_finite(const struct train *t, double loss, double norm,
                        struct error *err)
{
    if (isfinite(loss) && isfinite(norm))
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "step %lld: the loss is %g and the gradient norm %g; the weights "
                     "were not updated and nothing was saved. Lower "
                     "Optimizer.lr.max_lr, set Optimizer.grad_clip, and resume from the "
                     "last checkpoint in '%s'",
                     (long long)t->step + 1, loss, norm, t->cfg.save_load.output_dir);
}

/* The norm of the gradients of the whole model: the same number on every rank. */
static int grad_norm(struct train *t, double *norm, struct error *err)
{
    double start = trace_begin(t->job_trace.trace);
    double *squares = optimizer_row_squares(&t->optimizer, t->gpt.grads);
    if (comm_sum_f64(t->grid.model, squares, t->gpt.table.n_params_whole, err) ||
        comm_sum_f64(t->grid.pipe, squares, t->gpt.table.n_params_whole, err))
        return -1;
    *norm = optimizer_norm(&t->optimizer);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "gradient norm"});
    return 0;
}

static int report(struct train *t, double loss, double norm, double start,
                  double reader_seconds, struct error *err)
{
    int64_t before = t->consumed_samples - t->cfg.batch_size.global_batch_size;
    struct metrics_step step = {.step = t->step,
                                .epoch = train_epoch(t, before),
                                .batch = train_batch_in_epoch(t, before),
                                .loss = loss,
                                .grad_norm = norm,
                                .lr = lr_at(&t->cfg.optimizer.lr, t->step + 1),
                                .consumed_samples = t->consumed_samples,
                                .reader_seconds = reader_seconds,
                                .step_seconds = clock_seconds() - start};
    bool is_last = t->step == t->cfg.max_steps || stop_is_wanted();
    int rc = 0;
    if (comm_rank(t->grid.world) == 0)
        rc = metrics_step(&t->metrics, &step, is_last, err);
    return comm_agree(t->grid.world, rc, err);
}

static void update(struct train *t, double norm)
{
    double start = trace_begin(t->job_trace.trace);
    optimizer_step(&t->optimizer, t->gpt.params, t->gpt.grads, norm,
                   lr_at(&t->cfg.optimizer.lr, t->step + 1), t->step + 1);
    t->consumed_samples += t->cfg.batch_size.global_batch_size;
    t->step++;
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "optimizer"});
}

static int train_step(struct train *t, struct error *err)
{
    double start = clock_seconds(), sum, norm;
    worker_set_step(t->step + 1);
    if (train_next_batch(t, t->loader, err))
        return error_prefix(err, "step %lld", (long long)t->step + 1);
    double reader_seconds = clock_seconds() - start;

    if (train_batch_losses(t, true, &sum, err) || grad_norm(t, &norm, err))
        return -1;
    double loss = t->n_counted > 0 ? sum / (double)t->n_counted : 0.0;
    if (check_finite(t, loss, norm, err))
        return -1;
    update(t, norm);
    trace_end(t->job_trace.trace, start,
              &(struct trace_span){.name = "step", .args = {{"step", t->step}}});
    return report(t, loss, norm, start, reader_seconds, err);
}

/* -- the run ------------------------------------------------------------------------- */

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static int train_loop(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    while (t->step < cfg->max_steps) {
        if (train_step(t, err))
            return -1;
        int64_t wants_stop = stop_is_wanted();
        if (comm_max_i64(t->grid.world, &wants_stop, 1, err))
            return -1;
        bool is_stopped = wants_stop && t->step < cfg->max_steps;
        bool is_end = is_stopped || t->step == cfg->max_steps;
        if (t->has_valid && is_due(t->step, cfg->eval_freq) && !is_stopped &&
            train_evaluate(t, err))
            return -1;
        bool saves = cfg->save_load.save_steps >= 0;
        if (saves && (is_end || is_due(t->step, cfg->save_load.save_steps)) &&
            train_save(t, err))
            return -1;
        if (is_stopped)
            return error_set(err, ERROR_STOPPED,
                             "stopped by %s after step %lld; continue with "
                             "-o save_load.ckpt_dir=%s",
                             stop_signal_name(), (long long)t->step,
                             cfg->save_load.output_dir);
    }
    return 0;
}

/* The run has ended with rc and *err, which a trace that cannot be written makes worse
 * only when they were good. */
static int write_trace(struct train *t, int rc, struct error *err)
{
    struct error trace_err;
    if (job_trace_write(&t->job_trace, &trace_err) == 0)
        return rc;
    error_prefix(&trace_err, "trace");
    if (rc == 0)
        *err = trace_err;
    else
        log_warning("%s", trace_err.text);
    return -1;
}

int train_run(const struct config *cfg, struct comm *world, struct error *err)
{
    struct train t;
    int rc = -1;
    stop_watch();
    layout_log(cfg);
    if (train_open(&t, cfg, world, err))
        goto done;
    if (t.step >= t.cfg.max_steps)
        log_info("nothing to do: the checkpoint is at step %lld and max_steps is %lld",
                 (long long)t.step, (long long)t.cfg.max_steps);
    rc = train_loop(&t, err);
    if (rc == 0 || err->kind == ERROR_STOPPED) // else ranks may be out of step
        rc = write_trace(&t, rc, err);
done:
    train_close(&t);
    return rc;
}
