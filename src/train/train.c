#include "train/train.h"

#include "base/clock.h"
#include "base/log.h"
#include "optim/lr.h"
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

static int open_model(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    int64_t M = cfg->batch_size.micro_batch_size;
    if (gpt_open(&t->gpt, cfg, M, true, err) ||
        optimizer_open(&t->optimizer, &t->gpt.table, t->gpt.k, &cfg->optimizer, err))
        return -1;
    t->config_json = config_to_json(cfg);
    t->weights = malloc((size_t)(M * cfg->dataset.max_seq_len) * sizeof *t->weights);
    t->loss_sums =
        malloc((size_t)cfg->batch_size.local_batch_size * sizeof *t->loss_sums);
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
        .n_data_ranks = 1,
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
        .n_processes = 1,
    };
    return metrics_open(&t->metrics, cfg->save_load.output_dir, t->first_step, err);
}

static int train_open(struct train *t, const struct config *cfg, struct error *err)
{
    *t = (struct train){.cfg = *cfg};
    if (cfg->num_threads > 0)
        kernels_set_threads((int)cfg->num_threads);
    if (open_data(t, err) || train_preflight(t, err) || open_model(t, err) ||
        train_restore(t, err) || open_metrics(t, err))
        return -1;
    return t->step < t->cfg.max_steps ? open_loader(t, err) : 0;
}

static void train_close(struct train *t)
{
    loader_close(t->loader);
    metrics_close(&t->metrics);
    optimizer_close(&t->optimizer);
    gpt_close(&t->gpt);
    sample_index_close(&t->train_index);
    sample_index_close(&t->valid_index);
    corpus_close(t->corpus);
    free(t->config_json);
    free(t->weights);
    free(t->loss_sums);
}

/* -- one step ------------------------------------------------------------------------ */

double train_batch_losses(struct train *t, const struct batch *batch, bool is_training)
{
    int64_t M = t->cfg.batch_size.micro_batch_size, S = batch->S;
    float each = batch->n_counted > 0 ? 1.0F / (float)batch->n_counted : 0.0F;
    for (int64_t b = 0; b < batch->n_samples; b += M) {
        for (int64_t n = 0; n < M * S; n++)
            t->weights[n] = batch->loss_mask[b * S + n] * each;
        struct gpt_batch micro = {.B = M,
                                  .S = S,
                                  .tokens = batch->tokens + b * S,
                                  .targets = batch->targets + b * S,
                                  .weights = t->weights,
                                  .step = t->step,
                                  .first_sample = batch->first_sample + b,
                                  .is_training = is_training,
                                  .accumulate = b > 0};
        gpt_forward(&t->gpt, &micro, t->loss_sums + b);
        if (is_training)
            gpt_backward(&t->gpt, &micro);
    }
    double sum = 0;
    for (int64_t b = 0; b < batch->n_samples; b++)
        sum += t->loss_sums[b];
    return sum;
}

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

static int train_step(struct train *t, struct error *err)
{
    struct batch batch;
    double start = clock_seconds();
    if (loader_next(t->loader, &batch, err))
        return error_prefix(err, "step %lld", (long long)t->step + 1);
    double reader_seconds = clock_seconds() - start;

    double sum = train_batch_losses(t, &batch, true);
    double loss = batch.n_counted > 0 ? sum / (double)batch.n_counted : 0.0;
    gpt_finish_grads(&t->gpt);
    double norm = optimizer_grad_norm(&t->optimizer, t->gpt.grads);
    if (check_finite(t, loss, norm, err))
        return -1;
    const struct config_lr *lr = &t->cfg.optimizer.lr;
    optimizer_step(&t->optimizer, t->gpt.params, t->gpt.grads, norm,
                   lr_at(lr, t->step + 1), t->step + 1);

    int64_t before = t->consumed_samples;
    t->consumed_samples += t->cfg.batch_size.global_batch_size;
    t->step++;
    struct metrics_step report = {.step = t->step,
                                  .epoch = train_epoch(t, before),
                                  .batch = train_batch_in_epoch(t, before),
                                  .loss = loss,
                                  .grad_norm = norm,
                                  .lr = lr_at(lr, t->step + 1),
                                  .consumed_samples = t->consumed_samples,
                                  .reader_seconds = reader_seconds,
                                  .step_seconds = clock_seconds() - start};
    bool is_last = t->step == t->cfg.max_steps || stop_is_wanted();
    return metrics_step(&t->metrics, &report, is_last, err);
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
        bool is_stopped = stop_is_wanted() && t->step < cfg->max_steps;
        bool is_end = is_stopped || t->step == cfg->max_steps;
        if (t->has_valid && is_due(t->step, cfg->eval_freq) && !is_stopped &&
            train_evaluate(t, err))
            return -1;
        if ((is_end || is_due(t->step, cfg->save_load.save_steps)) && train_save(t, err))
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

int train_run(const struct config *cfg, struct error *err)
{
    struct train t;
    int rc = -1;
    stop_watch();
    if (train_open(&t, cfg, err))
        goto done;
    if (t.step >= t.cfg.max_steps)
        log_info("nothing to do: the checkpoint is at step %lld and max_steps is %lld",
                 (long long)t.step, (long long)t.cfg.max_steps);
    rc = train_loop(&t, err);
done:
    train_close(&t);
    return rc;
}
