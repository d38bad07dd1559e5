/* Numbers that follow from several keys of a configuration. */
#include "config/config.h"

int64_t config_n_processes(const struct config *cfg)
{
    const struct config_distributed *d = &cfg->distributed;
    const int64_t degrees[] = {d->dp_degree, d->pp_degree, d->sharding.sharding_degree,
                               d->mp_degree};
    int64_t product = 1;
    for (size_t i = 0; i < ARRAY_LEN(degrees); i++)
        if (__builtin_mul_overflow(product, degrees[i], &product))
            return INT64_MAX;
    return product;
}

int64_t config_update_samples(const struct config *cfg)
{
    const struct config_batch *b = &cfg->batch_size;
    return b->local_batch_size * i64_max(1, b->gradient_accumulation);
}

int64_t config_update_micro_batches(const struct config *cfg)
{
    const struct config_batch *b = &cfg->batch_size;
    return b->num_micro_batches * i64_max(1, b->gradient_accumulation);
}

bool config_has_fp32_grads(const struct config *cfg)
{
    if (cfg->mix_precision.fp32_grads != TRUTH_EMPTY)
        return cfg->mix_precision.fp32_grads == TRUTH_TRUE;
    return cfg->mix_precision.dtype == DTYPE_BF16 && config_update_micro_batches(cfg) > 1;
}
