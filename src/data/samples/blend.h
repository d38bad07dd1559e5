/*
 * blend - whose turn it is: positions dealt to D datasets in proportion to weights.
 *
 * Megatron's greedy rule: position i goes to the dataset whose share w[d] * max(i, 1) is
 * furthest ahead of what it has had, the first of equals; the weights are divided by
 * their sum first. What position i gets depends on the weights and the positions before
 * it alone, and positions have no end.
 *
 * They are dealt a block at a time, on demand. The counts of all datasets are saved now
 * and then, in memory and in a file of the index cache, so that a resumed run need not
 * deal from the beginning.
 *
 * Memory: 16 bytes per position of a block, and 8 * D per saved set of counts. Time: D
 * operations per position, and 2^26 (a tenth of a second) to reach one from the saved
 * counts before it. Threads: one at a time.
 */
#ifndef DATA_SAMPLES_BLEND_H
#define DATA_SAMPLES_BLEND_H

#include "base/base.h"
#include "base/error.h"

#define BLEND_BLOCK 4096          // positions dealt at once
#define BLEND_MOST_DATASETS 32767 // more cannot be meant

struct blend_turn {
    int64_t dataset;
    int64_t sample; // how many that dataset had before
};

struct blend {          // read-only for everybody but blend.c
    int64_t n_datasets; // D
    double *shares;     // (D)
    int64_t *had;       // (D) before position n_dealt
    int64_t n_dealt;
    struct blend_turn *turns; // (BLEND_BLOCK) of the positions from `first` to n_dealt
    int64_t first;
    int64_t keep_every; // positions between kept counts, a multiple of BLEND_BLOCK
    int64_t *kept;      // (n_kept, D) had before position i * keep_every
    int64_t n_kept;
    char *cache_dir; // NULL: counts are kept in memory only
};

/* Weights are finite and above 0. Counts are kept in `cache_dir`, if it is not NULL. */
MUST_CHECK int blend_init(struct blend *b, const double *weights, int64_t n_datasets,
                          const char *cache_dir, struct error *err);
void blend_release(struct blend *b);

/* pos >= 0. */
struct blend_turn blend_at(struct blend *b, int64_t pos);

/* At most so many of the first n positions go to dataset d, and at least one less than
 * its share of them. */
int64_t blend_most(const struct blend *b, int64_t d, int64_t n);

#endif
