#include "train/rate.h"

/* The share of a step that is products at the measured rate; the rest is attention's
 * softmax, norms, the update. */
#define PRODUCT_SHARE 0.75

/* -- FLOPs --------------------------------------------------------------------------- */

double rate_step_flops(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    double L = (double)m->num_layers, H = (double)m->hidden_size;
    double F = (double)m->ffn_hidden_size, V = (double)m->vocab_size;
    double S = (double)cfg->dataset.max_seq_len;
    double tokens = (double)cfg->batch_size.global_batch_size * S;
    double matrices = L * (4 * H * H + 2 * H * F) + V * H;
    return tokens * (6 * matrices + 6 * L * H * (S + 1));
}

/* -- the rate ------------------------------------------------------------------------ */

int rate_measure(struct rate *r, const struct config *cfg, struct device *dev,
                 struct comm *world, struct error *err)
{
    int64_t rows = cfg->batch_size.micro_batch_size * cfg->dataset.max_seq_len;
    int64_t columns = i64_max(1, cfg->model.ffn_hidden_size / cfg->distributed.mp_degree);
    int rc =
        gpt_rate_measure(&r->product, rows, cfg->model.hidden_size, columns, dev, err);
    if (comm_agree(world, rc, err))
        return -1;
    r->flops_all = r->product.flops;
    return comm_sum_f64(world, &r->flops_all, 1, err);
}

/* -- the time of a step -------------------------------------------------------------- */

double rate_step_seconds(const struct rate *r, const struct config *cfg)
{
    const struct config_distributed *d = &cfg->distributed;
    bool is_again = cfg->use_recompute && cfg->recompute_granularity == GRANULARITY_FULL;
    double idle =
        (double)(d->pp_degree - 1) /
        (double)(cfg->batch_size.num_micro_batches * i64_max(1, d->virtual_pp_degree));
    double products = rate_step_flops(cfg) / r->flops_all;
    return products * (is_again ? 4.0 / 3.0 : 1.0) * (1 + idle) / PRODUCT_SHARE;
}
