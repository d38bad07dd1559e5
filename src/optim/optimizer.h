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
    double *row_squares;         // (rows of the whole model)
    struct arena arena;
};

size_t optimizer_bytes(const struct param_table *table);
MUST_CHECK int optimizer_open(struct optimizer *opt, const struct param_table *table,
                              const struct kernels *k, const struct config_optim *cfg,
                              struct error *err);
void optimizer_close(struct optimizer *opt);

/* The sum of the squares of each parameter's gradient, by its row in the whole model; 0
 * for what this process does not hold or another one counts. table->n_params_whole
 * values, the optimizer's own: their sums over the processes of a model are taken in
 * place before optimizer_norm(). */
double *optimizer_row_squares(struct optimizer *opt, const float *grads);
/* The Euclidean norm of all gradients, from those sums. */
double optimizer_norm(const struct optimizer *opt);

/* Update number `update` (from 1): clip by grad_norm, decay, move. */
void optimizer_step(struct optimizer *opt, float *params, const float *grads,
                    double grad_norm, double lr, int64_t update);

#endif
