#include "train/plan_data.h"

#include "data/samples/loader.h"

#include <math.h>

struct plan_data plan_data_of(const struct config *cfg, const struct input_set *set,
                              const struct sample_stream *train,
                              const struct sample_stream *valid)
{
    struct plan_data d = {.order = sample_stream_bytes(train)};
    double making = sample_stream_making_bytes(train);
    int64_t n_loaders = valid ? 2 : 1; // an evaluation has its own
    if (valid) {
        d.order += sample_stream_bytes(valid);
        making = fmax(making, sample_stream_making_bytes(valid));
    }
    d.order += making;
    d.lengths = (double)input_set_bytes(set);
    d.batches =
        (double)n_loaders * (double)loader_bytes(cfg->batch_size.local_batch_size, train);
    return d;
}

int plan_data_samples(int64_t *n_samples, const struct config *cfg,
                      const struct input_set *set, struct error *err)
{
    struct sample_stream probe;
    if (cfg->max_steps > 0) {
        if (__builtin_mul_overflow(cfg->batch_size.global_batch_size, cfg->max_steps,
                                   n_samples))
            *n_samples = INT64_MAX; // which the stream refuses
        return 0;
    }
    if (sample_stream_open(&probe, set, SPLIT_TRAIN, 1, err))
        return -1;
    *n_samples = sample_stream_epoch_start(&probe, cfg->num_train_epochs);
    sample_stream_close(&probe);
    return 0;
}

static int find_in(struct plan_data *d, const struct config *cfg,
                   const struct input_set *set, struct error *err)
{
    struct sample_stream train = {0}, valid = {0};
    int64_t n, n_valid = cfg->batch_size.global_batch_size * cfg->eval_iters;
    bool has_valid = config_evaluates(cfg);
    int rc = -1;
    if (plan_data_samples(&n, cfg, set, err) ||
        sample_stream_open(&train, set, SPLIT_TRAIN, i64_max(n, 1), err))
        return -1;
    if (has_valid && sample_stream_open(&valid, set, SPLIT_VALID, n_valid, err))
        goto done;
    *d = plan_data_of(cfg, set, &train, has_valid ? &valid : NULL);
    rc = 0;
done:
    sample_stream_close(&train);
    sample_stream_close(&valid);
    return rc;
}

int plan_data_find(struct plan_data *d, const struct config *cfg, struct error *err)
{
    struct input_set set;
    *d = (struct plan_data){0};
    int rc = input_set_open_unread(&set, cfg, err);
    if (rc == 0) {
        rc = find_in(d, cfg, &set, err);
        input_set_close(&set);
    }
    return rc;
}
