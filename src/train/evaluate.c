#include "train/train.h"

#include "base/clock.h"

/* Every evaluation sees the same batches, so that their losses can be compared. */
int train_evaluate(struct train *t, struct error *err)
{
    const struct config *cfg = &t->cfg;
    struct loader *loader = NULL;
    struct loader_options opt = {
        .global_batch = cfg->batch_size.global_batch_size,
        .local_batch = cfg->batch_size.local_batch_size,
        .n_data_ranks = 1,
        .wraps = true,
        .eod_mask_loss = cfg->dataset.eod_mask_loss,
        .eos = (int32_t)t->eos,
    };
    double start = clock_seconds(), sum = 0;
    int64_t n_counted = 0;
    int rc = loader_open(&loader, &t->valid_index, &opt, err);
    for (int64_t i = 0; i < cfg->eval_iters && rc == 0; i++) {
        struct batch batch;
        rc = loader_next(loader, &batch, err);
        if (rc == 0) {
            sum += train_batch_losses(t, &batch, false);
            n_counted += batch.n_counted;
        }
    }
    loader_close(loader);
    if (rc)
        return rc;
    return metrics_eval(&t->metrics, t->step, train_epoch(t, t->consumed_samples),
                        cfg->eval_iters, n_counted > 0 ? sum / (double)n_counted : 0.0,
                        clock_seconds() - start, err);
}
