/*
 * lr - the learning rate of an update: linear warm-up, cosine decay, then constant.
 *
 * With W = warmup_rate * decay_steps (not rounded), update k = 1, 2, ...:
 *   k <= W:            max_lr * k / W
 *   k > decay_steps:   min_lr
 *   else:              min_lr + (1 + cos(pi (k - W) / (decay_steps - W))) / 2
 *                               * (max_lr - min_lr)
 * Nothing assumes min_lr <= max_lr; swapped, the rate rises after the warm-up.
 */
#ifndef OPTIM_LR_H
#define OPTIM_LR_H

#include "config/config.h"

double lr_at(const struct config_lr *lr, int64_t update);
/* The highest of updates first to last. */
double lr_highest(const struct config_lr *lr, int64_t first, int64_t last);

#endif
