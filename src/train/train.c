#include "train/train.h"

#include "base/beat.h"
#include "base/log.h"
#include "base/stop.h"
#include "parallel/layout.h"
#include "train/checkpoints.h"
#include "train/events.h"
#include "train/lr_warn.h"
#include "train/sinks.h"
#include "train/step.h"
#include "train/usage.h"

#include <stdio.h>
#include <stdlib.h>

int64_t train_epoch(const struct train *t, int64_t consumed)
{
    return sample_stream_epoch_of(&t->train_samples, consumed);
}

/* -- opening ------------------------------------------------------------------------- */

/* max_steps left empty: as many whole steps as num_train_epochs passes have. */
static int derive_steps(struct train *t, struct error *err)
{
    struct config *cfg = &t->cfg;
    int64_t G = cfg->batch_size.global_batch_size, n_samples;
    t->is_by_epochs = cfg->max_steps == 0;
    if (t->is_by_epochs) {
        if (plan_data_samples(&n_samples, cfg, &t->inputs, err))
            return -1;
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
    int64_t n, n_valid = cfg->batch_size.global_batch_size * cfg->eval_iters;
    if (input_set_open(&t->inputs, cfg, err))
        return -1;
    t->eos = t->inputs.eos;
    if (derive_steps(t, err) || plan_data_samples(&n, cfg, &t->inputs, err) ||
        sample_stream_open(&t->train_samples, &t->inputs, SPLIT_TRAIN, n, err))
        return -1;
    sample_stream_log(&t->train_samples, n);
    t->has_valid = config_evaluates(cfg);
    if (t->has_valid) {
        if (sample_stream_open(&t->valid_samples, &t->inputs, SPLIT_VALID, n_valid, err))
            return error_prefix(err,
                                "evaluation (eval_freq %lld, test_interval %lld) needs "
                                "validation data",
                                (long long)cfg->eval_freq, (long long)cfg->test_interval);
        sample_stream_log(&t->valid_samples, n_valid);
    }
    t->data = plan_data_of(cfg, &t->inputs, &t->train_samples,
                           t->has_valid ? &t->valid_samples : NULL);
    return 0;
}

/* Where vocab_size was left out, each process has read it from the data that it sees. */
static int check_vocabulary(struct train *t, struct error *err)
{
    int64_t V = t->cfg.model.vocab_size, most[] = {V, -V};
    if (comm_max_i64(t->grid.world, most, ARRAY_LEN(most), err))
        return -1;
    if (most[0] == -most[1])
        return 0;
    return error_set(err, ERROR_INPUT,
                     "Model.vocab_size is %lld on one rank and %lld on another, because "
                     "the data they see differs: copy its .meta.json to every machine, "
                     "or set Model.vocab_size",
                     (long long)-most[1], (long long)most[0]);
}

/* One process of a machine checks the token ids and leaves the result in the cache; then
 * the others. */
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
    return comm_agree(t->grid.world, rc, err) ? -1 : check_vocabulary(t, err);
}

static int open_plan(struct train *t, struct error *err)
{
    if (plan_init(&t->plan, &t->cfg, t->grid.coord, err))
        return -1;
    t->plan.optimizer.sharding = t->grid.sharding;
    t->plan.optimizer.model = t->grid.model;
    t->plan.optimizer.pipe = t->grid.pipe;
    return 0;
}

static int open_device(struct train *t, struct error *err)
{
    struct comm *world = t->grid.world;
    struct device_request request = {.local_rank = comm_local_rank(world),
                                     .n_local = comm_local_size(world),
                                     .allow_tf32 = t->cfg.mix_precision.allow_tf32};
    char words[DEVICE_WORDS_BYTES];
    t->dev = t->plan.layout.model.dev;
    if (device_open(t->dev, &request, err))
        return -1;
    device_words(t->dev, words);
    if (!device_is_host(t->dev))
        log_info("device: %s", words);
    return 0;
}

static int open_model(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    const struct config_precision *precision = &cfg->mix_precision;
    bool is_scaled = t->plan.layout.model.dtype == DTYPE_F16;
    if (runner_open(&t->runner, &t->plan.layout, cfg, &t->grid, err) ||
        optimizer_open(&t->optimizer, &t->plan.optimizer, err))
        return -1;
    t->runner.trace = t->job_trace.trace;
    t->scaler = (struct scaler){.scale = is_scaled ? precision->scale_loss : 1,
                                .is_dynamic = is_scaled && precision->dynamic_loss_scale};
    t->loss_sums = malloc((size_t)(cfg->batch_size.global_batch_size + SHARES_FIGURES) *
                          sizeof *t->loss_sums);
    if (!t->loss_sums)
        return error_set(err, ERROR_RUNTIME, "out of memory for a batch");
    return shares_open(&t->shares, t->grid.world, err);
}

static int make_config_json(struct train *t, struct error *err)
{
    t->config_json = config_to_json(&t->cfg);
    return t->config_json
               ? 0
               : error_set(err, ERROR_RUNTIME, "out of memory for a configuration");
}

/* Each process reads the configuration, and for keys that were left out the data and the
 * checkpoint, by itself. Everything after this relies on equal sizes. [collective] */
static int check_same_config(struct train *t, struct error *err)
{
    if (comm_agree(t->grid.world, make_config_json(t, err), err))
        return -1;
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (const char *p = t->config_json; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
    int64_t mine = (int64_t)(hash >> 2), most[] = {mine, -mine};
    if (comm_max_i64(t->grid.world, most, ARRAY_LEN(most), err))
        return -1;
    if (most[0] == -most[1])
        return 0;
    return error_set(err, ERROR_INPUT,
                     "the configuration is not the same on all ranks: give every machine "
                     "the same configuration file, data with .meta.json, and "
                     "save_load.ckpt_dir");
}

static int open_loader(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    int64_t G = cfg->batch_size.global_batch_size;
    struct loader_options opt = {
        .global_batch = G,
        .local_batch = config_update_samples(cfg),
        .data_rank = t->grid.data_rank,
        .n_data_ranks = t->grid.data_size,
        .first_step = t->consumed_samples / G,
        .eod_mask_loss = cfg->dataset.eod_mask_loss,
        .eos = (int32_t)t->eos,
    };
    return loader_open(&t->loader, &t->train_samples, &opt, err);
}

static int open_metrics(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    t->metrics = (struct metrics){
        .logging_freq = cfg->logging_freq,
        .max_steps = cfg->max_steps,
        .tokens_per_step = cfg->batch_size.global_batch_size * cfg->dataset.max_seq_len,
        .samples_per_step = cfg->batch_size.global_batch_size,
        .has_bar = cfg->display_progress != PROGRESS_NEVER,
        .has_progress_lines = cfg->display_progress == PROGRESS_ALWAYS,
        .n_processes = comm_size(t->grid.world),
        .step_flops = rate_step_flops(cfg),
        .product_flops = t->rate.flops_all,
    };
    if (comm_rank(t->grid.world) > 0)
        return 0;
    t->sinks = calloc(1, sizeof *t->sinks);
    t->layer_norms = calloc((size_t)cfg->model.num_layers + 2, sizeof *t->layer_norms);
    if (!t->sinks || !t->layer_norms)
        return error_set(err, ERROR_RUNTIME, "out of memory for metrics");
    if (events_write_config(t, err) ||
        metrics_open(&t->metrics, cfg->save_load.output_dir, t->first_step, err))
        return -1;
    if (t->step < cfg->max_steps) { // else nothing will be told
        sinks_open(t->sinks, cfg, t->config_json, t->first_step);
        t->metrics.sinks = t->sinks;
    }
    return 0;
}

static int open_prompts(struct train *t, struct error *err)
{
    if (t->has_valid)
        return prompts_open(&t->prompts, &t->cfg, t->tokenizer_hash, &t->grid, err);
    if (t->cfg.eval_prompts.n_paths > 0 && comm_rank(t->grid.world) == 0)
        log_warning("eval_prompts: nothing is sampled, because nothing is evaluated "
                    "(eval_freq, eval_iters, dataset.split)");
    return 0;
}

/* Each phase is local, but for those about checkpoints and prompts; an agreement ends
 * it. */
static int train_open(struct train *t, const struct config *cfg, struct comm *world,
                      struct error *err)
{
    struct grid_shape shape = layout_grid(cfg);
    *t = (struct train){.cfg = *cfg};
    if (grid_open(&t->grid, world, &shape, err) ||
        job_trace_open(&t->job_trace, t->cfg.trace, &t->grid, err) ||
        open_data_in_turns(t, err) || check_same_config(t, err) ||
        comm_agree(world, open_plan(t, err), err) ||
        comm_agree(world, open_device(t, err), err))
        return -1;
    if (usage_preflight(t, err) || checkpoints_open(t, err) ||
        rate_measure(&t->rate, &t->cfg, t->plan.layout.model.dev, world, err) ||
        comm_agree(world, open_model(t, err), err) || checkpoints_restore(t, err) ||
        comm_agree(world, open_metrics(t, err), err))
        return -1;
    if (t->step >= t->cfg.max_steps)
        return 0;
    if (comm_rank(world) == 0)
        lr_warn(&t->cfg, t->step);
    t->runner.gpt.trace = t->job_trace.trace;
    return comm_agree(world, open_loader(t, err), err) || open_prompts(t, err) ? -1 : 0;
}

static void train_close(struct train *t)
{
    beat_enter(BEAT_END);
    ckpt_saver_close(t->saver);
    loader_close(t->loader);
    metrics_close(&t->metrics);
    if (t->sinks)
        sinks_close(t->sinks);
    free(t->sinks);
    free(t->layer_norms);
    prompts_close(&t->prompts);
    shares_close(&t->shares);
    optimizer_close(&t->optimizer);
    runner_close(&t->runner);
    plan_release(&t->plan);
    sample_stream_close(&t->train_samples);
    sample_stream_close(&t->valid_samples);
    input_set_close(&t->inputs);
    free(t->config_json);
    free(t->loss_sums);
    job_trace_close(&t->job_trace);
    grid_close(&t->grid);
    if (t->dev)
        device_close(t->dev);
}

/* -- the run ------------------------------------------------------------------------- */

struct epoch_end {
    bool is_end;   // the step that was just done is the last of `epoch`
    int64_t epoch; // from 0
    bool is_whole; // its mean covers all its steps: the run was not resumed within it
    bool is_test;  // test_interval asks for an evaluation
};

/* Epochs that are complete when `consumed` samples are. Passes over the data follow each
 * other without a break, so a step may hold the end of one and the beginning of the next:
 * it belongs to the one it begins in. Where num_train_epochs decides, the last step ends
 * the last epoch, though a rest smaller than a batch is left. */
static int64_t epochs_done(const struct train *t, int64_t consumed)
{
    int64_t epoch = consumed > 0 ? train_epoch(t, consumed - 1) : 0;
    if (sample_stream_epoch_start(&t->train_samples, epoch + 1) <= consumed)
        epoch++;
    return epoch;
}

/* About the step that was just done: the same on every rank. */
static struct epoch_end find_epoch_end(const struct train *t)
{
    const struct config *cfg = &t->cfg;
    int64_t G = cfg->batch_size.global_batch_size;
    int64_t before = epochs_done(t, t->consumed_samples - G);
    int64_t after = epochs_done(t, t->consumed_samples);
    if (t->is_by_epochs && t->step == cfg->max_steps)
        after = i64_max(after, cfg->num_train_epochs);
    struct epoch_end end = {.is_end = after > before, .epoch = after - 1};
    if (!end.is_end)
        return end;
    int64_t start = sample_stream_epoch_start(&t->train_samples, before);
    end.is_whole = start >= t->first_step * G;
    end.is_test = config_tests_epochs(cfg) &&
                  after / cfg->test_interval > before / cfg->test_interval;
    return end;
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* *signal := what asked some rank to stop, 0 if nothing did; the same on all ranks. */
static int agree_on_stop(struct train *t, int64_t *signal, struct error *err)
{
    *signal = stop_signal();
    return comm_max_i64(t->grid.world, signal, 1, err);
}

/* A signal came before anything was trained. */
static int stop_at_start(const struct train *t, int64_t signal, struct error *err)
{
    const char *name = stop_signal_name((int)signal);
    if (!t->resumed_from[0])
        return error_set(err, ERROR_UNSAVED,
                         "stopped by %s before the first step; nothing was saved", name);
    return error_set(err, ERROR_STOPPED,
                     "stopped by %s before step %lld; continue with "
                     "-o save_load.ckpt_dir=%.1800s",
                     name, (long long)t->step + 1, t->resumed_from);
}

/* What the model makes of eval_prompts now. [collective] */
static int sample_prompts(struct train *t, struct error *err)
{
    struct prompts *p = &t->prompts;
    enum beat_phase before = beat_enter(BEAT_EVALUATE);
    double start = trace_begin(t->job_trace.trace);
    int rc = prompts_draw(p, &t->runner, (uint64_t)t->cfg.seed, t->step, err);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "eval_prompts"});
    for (int64_t i = 0; i < p->n && rc == 0 && comm_rank(t->grid.world) == 0; i++)
        events_sample(t, i);
    beat_enter(before);
    return rc;
}

/* After a step: the line of an epoch that it ended, and an evaluation when one is due and
 * nothing asked to stop; a signal may come meanwhile. */
static int evaluate_if_due(struct train *t, int64_t *signal, struct error *err)
{
    struct epoch_end end = find_epoch_end(t);
    bool is_reporter = comm_rank(t->grid.world) == 0;
    if (end.is_end && is_reporter)
        metrics_epoch(&t->metrics, end.epoch, end.is_whole);
    if (!t->has_valid || *signal || !(end.is_test || is_due(t->step, t->cfg.eval_freq)))
        return 0;
    stop_set_moment(STOP_IN_EVALUATION, t->step);
    if (train_evaluate(t, err) || sample_prompts(t, err) || agree_on_stop(t, signal, err))
        return -1;
    if (end.is_test && is_reporter)
        metrics_epoch_test(&t->metrics, end.epoch);
    return 0;
}

static int save_if_due(struct train *t, bool is_end, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    if (ckpt_saver_poll(t->saver, t->step, err))
        return -1;
    if (save->save_steps < 0 || !(is_end || is_due(t->step, save->save_steps)))
        return 0;
    // a save in passing is followed by a step before the run looks for signals again
    stop_set_moment(is_end ? STOP_IN_SAVE : STOP_IN_STEP, t->step + !is_end);
    return checkpoints_save(t, is_end, err);
}

/* A signal has ended the run after this step. */
static int report_stop(const struct train *t, int64_t signal, struct error *err)
{
    const char *name = stop_signal_name((int)signal);
    char path[PATH_MAX];
    if (t->cfg.save_load.save_steps < 0)
        return error_set(err, ERROR_UNSAVED,
                         "stopped by %s after step %lld; nothing was saved, since "
                         "save_load.save_steps is %lld",
                         name, (long long)t->step,
                         (long long)t->cfg.save_load.save_steps);
    if (checkpoints_path(t, path, err))
        return -1;
    return error_set(err, ERROR_STOPPED,
                     "stopped by %s after step %lld; continue with "
                     "-o save_load.ckpt_dir=%.1800s",
                     name, (long long)t->step, path);
}

/* *signal := what ended it, 0: nothing did. */
static int train_loop(struct train *t, int64_t *signal, struct error *err)
{
    const struct config *cfg = &t->cfg;
    if (t->step < cfg->max_steps) {
        if (agree_on_stop(t, signal, err))
            return -1;
        if (*signal)
            return stop_at_start(t, *signal, err);
    }
    while (t->step < cfg->max_steps) {
        if (train_step(t, signal, err))
            return -1;
        if (evaluate_if_due(t, signal, err))
            return -1;
        bool is_stopped = *signal && t->step < cfg->max_steps;
        if (save_if_due(t, is_stopped || t->step == cfg->max_steps, err))
            return -1;
        if (is_stopped)
            return report_stop(t, *signal, err);
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

static void watch_signals(void)
{
    struct comm_launch launch = comm_launch_info();
    enum stop_role role = STOP_RANK;
    if (!launch.is_ours)
        role =
            launch.size > 1 ? launch.rank == 0 ? STOP_FIRST_RANK : STOP_RANK : STOP_ALONE;
    stop_set_moment(STOP_AT_START, 0);
    stop_watch(role);
}

/* What rank 0 says when everything is ready. */
static void log_start(const struct train *t)
{
    const struct config *cfg = &t->cfg;
    if (comm_rank(t->grid.world) > 0)
        return;
    log_info("Init done, global batch size = %lld",
             (long long)cfg->batch_size.global_batch_size);
    if (t->is_by_epochs)
        log_info("num_train_epochs %lld: %lld steps", (long long)cfg->num_train_epochs,
                 (long long)cfg->max_steps);
    if (cfg->test_interval > 0 && !config_tests_epochs(cfg))
        log_info("test_interval %lld: nothing is evaluated after epochs, because %s",
                 (long long)cfg->test_interval,
                 cfg->eval_iters > 0 ? "dataset.split has no validation part"
                                     : "eval_iters is 0");
}

int train_run(const struct config *cfg, struct comm *world, struct error *err)
{
    struct train t;
    int rc = -1;
    watch_signals();
    log_info("kernels: %s", kernels_best(cfg->mix_precision.dtype)->name);
    layout_log(cfg);
    if (train_open(&t, cfg, world, err))
        goto done;
    if (t.step >= t.cfg.max_steps)
        log_info("nothing to do: the checkpoint is at step %lld and max_steps is %lld",
                 (long long)t.step, (long long)t.cfg.max_steps);
    log_start(&t);
    t.gathered_at_start = usage_gathered_bytes(&t);
    usage_log_begin(&t);
    int64_t signal = 0;
    rc = events_start(&t, err);
    if (rc == 0)
        rc = train_loop(&t, &signal, err);
    usage_log_end(&t);
    if (rc)
        ckpt_saver_rescue(t.saver, t.step, err);
    events_end(&t, rc, (int)signal, err);
    if (rc == 0 && t.step > t.first_step)
        rc = usage_report_measured(&t, err);
    bool is_stopped = rc && (err->kind == ERROR_STOPPED || err->kind == ERROR_UNSAVED);
    if (rc == 0 || is_stopped) // else ranks may be out of step
        rc = write_trace(&t, rc, err);
done:
    train_close(&t);
    return rc;
}
