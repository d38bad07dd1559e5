#include "train/epoch.h"

/* Epochs that are complete when `consumed` samples are. */
static int64_t epochs_done(const struct train *t, int64_t consumed)
{
    int64_t epoch = consumed > 0 ? train_epoch(t, consumed - 1) : 0;
    if (sample_stream_epoch_start(&t->train_samples, epoch + 1) <= consumed)
        epoch++;
    return epoch;
}

struct epoch_end epoch_end(const struct train *t)
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

void epoch_log_train(struct train *t, const struct epoch_end *end)
{
    metrics_epoch(&t->metrics, end->epoch, end->is_whole);
}

void epoch_log_test(const struct train *t, const struct epoch_end *end)
{
    metrics_epoch_test(&t->metrics, end->epoch);
}
