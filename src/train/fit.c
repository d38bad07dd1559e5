#include "train/fit.h"

#include "parallel/layout.h"

#include <stdio.h>

#define GB 1e9

double fit_needed(const struct plan_memory *mem, int n_local)
{
    return mem->total - mem->saving - mem->shared + mem->shared / (double)n_local;
}

/* Processes of a stage differ by a rounding of their shares: one stands for all. */
int fit_fullest(struct plan_memory *mem, int *rank, const struct config *cfg,
                const struct plan_data *data, struct error *err)
{
    struct grid_shape shape = layout_grid(cfg);
    for (int stage = 0; stage < shape.pp; stage++) {
        struct plan plan;
        struct grid_coord at = {.pp = stage};
        if (plan_init(&plan, cfg, at, err))
            return -1;
        struct plan_memory one = plan_memory(&plan, cfg, data);
        plan_release(&plan);
        if (stage == 0 || fit_needed(&one, 1) > fit_needed(mem, 1)) {
            *mem = one;
            *rank = grid_rank_of(&shape, at);
        }
    }
    return 0;
}

int fit_refuse(const struct plan_memory *mem, int rank, double needed, double available,
               const struct config *cfg, const struct plan_data *data, int n_local,
               struct error *err)
{
    char changes[FIT_CHANGES_BYTES], whose[64] = "";
    fit_changes(changes, cfg, data, n_local,
                available + fit_needed(mem, n_local) - needed);
    if (n_local > 1)
        snprintf(whose, sizeof whose, "for each of the %d processes here", n_local);
    return error_set(
        err, ERROR_RUNTIME,
        "not enough memory: rank %d needs %.2f GB and %.2f GB are available%s%s; "
        "parameters with gradients and optimizer take %.2f GB, activations %.2f GB with "
        "batch_size.micro_batch_size %lld, data %.2f GB. %s%s",
        rank, needed / GB, available / GB, n_local > 1 ? " " : "", whose,
        (mem->params + mem->grads + mem->optimizer) / GB, mem->activations / GB,
        (long long)cfg->batch_size.micro_batch_size, mem->data / GB,
        changes[0] ? "The cheapest changes that fit: "
                   : "No setting of this model fits here",
        changes);
}
