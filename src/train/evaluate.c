#include "train/train.h"

#include "base/beat.h"
#include "base/clock.h"

/* Every evaluation sees the same batches, so that their losses can be compared. */
int train_evaluate(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    struct loader *loader = NULL;
    struct loader_options opt = {
        .global_batch = cfg->batch_size.global_batch_size,
        .local_batch = cfg->batch_size.local_batch_size,
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
        rc = train_next_batch(t, loader, err);
        if (rc == 0)
            rc = train_batch_losses(t, false, &batch_sum, err);
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
