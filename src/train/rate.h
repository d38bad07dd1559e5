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

#define RATE_SET_BYTES 128 // of a set of processors, as of sched_getaffinity()

/* What bounds the products of one process. */
struct rate_rank {
    double flops;     // per second, measured
    double n_threads; // that take processors of its host; 0: a GPU
    double quota;     // processors that its control groups allow
    unsigned char processors[RATE_SET_BYTES]; // a bit for each that it may run on
    char host[64];
};

/* FLOP/s of n processes together. Each has measured as if alone on its processors, so a
 * host whose processes have more threads than it has processors for them, by their sets
 * and by its quota, has that share of their sum. */
double rate_together(const struct rate_rank *ranks, int n);

struct rate {
    struct gpt_rate product; // of this process
    double flops_all;        // per second: of all, by rate_together()
};

/* Run products as the model's MLP has them, (rows, hidden_size) by (hidden_size,
 * ffn_hidden_size / mp), on all threads of all processes. [collective] */
MUST_CHECK int rate_measure(struct rate *r, const struct config *cfg, struct device *dev,
                            struct comm *world, struct error *err);

/* Seconds of a step at that rate: what is recomputed and the idle time of a pipeline
 * included, and what a step takes besides its products, by experience. */
double rate_step_seconds(const struct rate *r, const struct config *cfg);

#endif
