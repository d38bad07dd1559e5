/*
 * blend - whose turn it is: positions dealt to D datasets in proportion to weights.
 *
 * Megatron's greedy rule: position i goes to the dataset whose share w[d] * max(i, 1) is
 * furthest ahead of what it has had, the first of equals; the weights are divided by
 * their sum first. What position i gets depends on the weights and the positions before
 * it alone: a longer blend begins with the shorter one.
 *
 * Memory: 2 + D / 32 bytes a position. Time: D operations a position to deal, and at most
 * BLEND_BLOCK to look one up. Threads: any number after blend_init().
 */
#ifndef DATA_BLEND_H
#define DATA_BLEND_H

#include "base/base.h"
#include "base/error.h"

#define BLEND_BLOCK 256           // positions between two counts
#define BLEND_MOST_DATASETS 32767 // what 16 bits can tell apart

struct blend {
    int64_t n_datasets; // D
    int64_t n_positions;
    uint16_t *choices; // (n_positions) dataset of each
    int64_t *counts;   // (n_positions / BLEND_BLOCK + 1, D) had before each block
    int64_t *totals;   // (D) had in all
};

struct blend_turn {
    int64_t dataset;
    int64_t sample; // how many that dataset had before
};

/* Weights are finite and above 0, n_positions >= 0. */
MUST_CHECK int blend_init(struct blend *b, const double *weights, int64_t n_datasets,
                          int64_t n_positions, struct error *err);
void blend_release(struct blend *b);

/* 0 <= pos < n_positions. */
struct blend_turn blend_at(const struct blend *b, int64_t pos);

#endif
