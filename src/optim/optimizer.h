/*
 * optimizer - AdamW with global-norm clipping over the flat buffers of a model.
 *
 * The norm is summed in double over fixed chunks of each parameter, in the order of the
 * table; each parameter counts once.
 *
 * Layer: base, config, kernels, model (the table only) <- optim.
 */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "base/arena.h"
#include "config/config.h"
#include "kernels/kernels.h"
#include "model/param_table.h"

struct optimizer {
    const struct kernels *k;
    const struct param_table *table; // borrowed
    struct config_optim cfg;
    float *exp_avg, *exp_avg_sq; // flat, as the parameters
    double *squares;             // sums of squares of the chunks of one parameter
    struct arena arena;
};

size_t optimizer_bytes(const struct param_table *table);
MUST_CHECK int optimizer_open(struct optimizer *opt, const struct param_table *table,
                              const struct kernels *k, const struct config_optim *cfg,
                              struct error *err);
void optimizer_close(struct optimizer *opt);

/* The Euclidean norm of all gradients. */
double optimizer_grad_norm(struct optimizer *opt, const float *grads);

/* Update number `update` (from 1): clip by grad_norm, decay, move. */
void optimizer_step(struct optimizer *opt, float *params, const float *grads,
                    double grad_norm, double lr, int64_t update);

#endif
