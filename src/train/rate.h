/*
 * rate - how fast the products of a model run on this machine, and what that makes of a
 * step: the measure that `mfu` is against, and the estimate of a run's time.
 *
 * Model FLOPs are those that forward and backward cannot do without, whatever the layout
 * and what is recomputed: for each token 6 for every element of a matrix (the embedding's
 * counts as the head's), and for attention 6 (S + 1) H in each layer, since a token sees
 * (S + 1) / 2 on average.
 */
#ifndef TRAIN_RATE_H
#define TRAIN_RATE_H

#include "comm/comm.h"
#include "config/config.h"
#include "model/gpt_rate.h"

/* Model FLOPs of one step of the whole job. */
double rate_step_flops(const struct config *cfg);

struct rate {
    struct gpt_rate product; // of this process
    double flops_all;        // per second: of all, which measured at the same time
};

/* Run products as the model's MLP has them, (rows, hidden_size) by (hidden_size,
 * ffn_hidden_size / mp), on all threads of all processes. [collective] */
MUST_CHECK int rate_measure(struct rate *r, const struct config *cfg, struct device *dev,
                            struct comm *world, struct error *err);

/* Seconds of a step at that rate: what is recomputed and the idle time of a pipeline
 * included, and what a step takes besides its products, by experience. */
double rate_step_seconds(const struct rate *r, const struct config *cfg);

#endif
