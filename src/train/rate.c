#include "train/rate.h"

#include "base/control_group.h"
#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int n_processors(const unsigned char *set)
{
    int n = 0;
    for (int i = 0; i < RATE_SET_BYTES; i++)
        n += __builtin_popcount(set[i]);
    return n;
}

/* FLOP/s of the host of ranks[first], none of whose processes come before that. */
static double flops_of_host(const struct rate_rank *ranks, int first, int n)
{
    unsigned char all[RATE_SET_BYTES] = {0};
    double on_processors = 0, on_gpus = 0, busy = 0, quota = (double)INFINITY;
    for (int r = first; r < n; r++) {
        const struct rate_rank *one = &ranks[r];
        if (strcmp(one->host, ranks[first].host) != 0)
            continue;
        if (one->n_threads == 0) {
            on_gpus += one->flops;
            continue;
        }
        on_processors += one->flops;
        busy += fmin(one->n_threads, n_processors(one->processors));
        quota = fmin(quota, one->quota);
        for (int i = 0; i < RATE_SET_BYTES; i++)
            all[i] |= one->processors[i];
    }
    double allowed = fmin(n_processors(all), quota);
    return on_gpus + on_processors * (busy > allowed ? allowed / busy : 1);
}

static bool is_first_of_host(const struct rate_rank *ranks, int r)
{
    for (int i = 0; i < r; i++)
        if (strcmp(ranks[i].host, ranks[r].host) == 0)
            return false;
    return true;
}

double rate_together(const struct rate_rank *ranks, int n)
{
    double flops = 0;
    for (int r = 0; r < n; r++)
        if (is_first_of_host(ranks, r))
            flops += flops_of_host(ranks, r, n);
    return flops;
}

static struct rate_rank describe_rank(const struct gpt_rate *product,
                                      const struct device *dev, const struct comm *world)
{
    struct rate_rank me = {.flops = product->flops,
                           .quota = control_group_processors("")};
    cpu_set_t set = thread_processor_set();
    if (dev->kind != DEVICE_GPU)
        me.n_threads = kernels_threads();
    for (int i = 0; i < 8 * RATE_SET_BYTES && i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set))
            me.processors[i / 8] |= (unsigned char)(1 << i % 8);
    snprintf(me.host, sizeof me.host, "%s", comm_host(world));
    return me;
}

/* r->flops_all on every rank, from what rank 0 gathers. */
static int measure_together(struct rate *r, const struct rate_rank *me,
                            struct comm *world, struct error *err)
{
    int n = comm_size(world);
    struct rate_rank *all = calloc((size_t)n, sizeof *all);
    int64_t *bounds = calloc((size_t)n + 1, sizeof *bounds);
    int rc = all && bounds ? 0
                           : error_set(err, ERROR_RUNTIME,
                                       "out of memory for the rates of %d ranks", n);
    rc = comm_agree(world, rc, err);
    for (int i = 0; i <= n && rc == 0 && bounds; i++)
        bounds[i] = i * (int64_t)sizeof *all;
    if (rc == 0)
        rc = comm_gather_bytes(world, me, all, bounds, 0, err);
    if (rc == 0 && all && comm_rank(world) == 0)
        r->flops_all = rate_together(all, n);
    if (rc == 0)
        rc = comm_bcast_bytes(world, &r->flops_all, sizeof r->flops_all, 0, err);
    free(all);
    free(bounds);
    return rc;
}

int rate_measure(struct rate *r, const struct config *cfg, struct device *dev,
                 struct comm *world, struct error *err)
{
    int64_t rows = cfg->batch_size.micro_batch_size * cfg->dataset.max_seq_len;
    int64_t columns = i64_max(1, cfg->model.ffn_hidden_size / cfg->distributed.mp_degree);
    int rc =
        gpt_rate_measure(&r->product, rows, cfg->model.hidden_size, columns, dev, err);
    if (comm_agree(world, rc, err))
        return -1;
    struct rate_rank me = describe_rank(&r->product, dev, world);
    return measure_together(r, &me, world, err);
}

/* -- the time of a step -------------------------------------------------------------- */

double rate_step_seconds(const struct rate *r, const struct config *cfg)
{
    const struct config_distributed *d = &cfg->distributed;
    bool is_again = cfg->use_recompute && cfg->recompute_granularity == GRANULARITY_FULL;
    double idle = (double)(d->pp_degree - 1) / (double)(config_update_micro_batches(cfg) *
                                                        i64_max(1, d->virtual_pp_degree));
    double products = rate_step_flops(cfg) / r->flops_all;
    return products * (is_again ? 4.0 / 3.0 : 1.0) * (1 + idle) / PRODUCT_SHARE;
}
