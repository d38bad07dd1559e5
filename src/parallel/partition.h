/*
 * partition - which layers a pipeline stage holds.
 *
 * The model is the list [embedding, block 0 .. L-1, final norm, head + loss]. A stage
 * holds one contiguous chunk of it, or several (virtual_pp_degree), when the
 * schedule is interleaved. Data passes the chunks in the order (chunk 0, stage 0), (chunk
 * 0, stage 1), ..., (chunk 1, stage 0), ...: cyclic placement.
 *
 * Blocks are dealt evenly: L / chunks to each round of stages, and within a round the
 * remainder goes to the last stages (12 blocks on 5 stages: 2, 2, 2, 3, 3), because the
 * first ones hold the most micro-batches in flight. The embedding is with the first
 * chunk, the final norm and the head with the last.
 *
 * The head costs as much as several blocks when the vocabulary is large, which makes the
 * last stage the slowest. partition_balance() counts it as so many blocks when it deals.
 *
 * Pure arithmetic; no memory to release.
 */
#ifndef PARALLEL_PARTITION_H
#define PARALLEL_PARTITION_H

#include "base/base.h"
#include "base/error.h"

struct partition {
    int64_t L;           // blocks
    int pp;              // stages, >= 1
    int chunks;          // per stage, >= 1
    int64_t head_blocks; // that the head is counted as; 0 unless balanced
};

/* Refuses what leaves a stage without a block, and L that chunks > 1 does not divide; the
 * sentence says which values would do. */
MUST_CHECK int partition_init(struct partition *p, int64_t L, int64_t pp, int64_t chunks,
                              struct error *err);

/* Deal as if the head were head_blocks more blocks of the last stage, which keeps one of
 * its own at least. Only for chunks == 1. */
void partition_balance(struct partition *p, int64_t head_blocks);

/* The blocks of a chunk: first <= block < end, at least one. */
void partition_range(const struct partition *p, int stage, int chunk,
                     int64_t *first_block, int64_t *end_block);

/* Whether the chunk holds the embedding; whether it holds the final norm and the head. */
bool partition_is_first(const struct partition *p, int stage, int chunk);
bool partition_is_last(const struct partition *p, int stage, int chunk);

/* Where the chunks are cut, counted in items of the list above, in the order in which
 * data passes them: 0, ..., L + 3. `boundaries` holds partition_n_boundaries() numbers.
 * 4 blocks on 2 stages give 0, 3, 7; 8 on 2 stages of 2 chunks give 0, 3, 5, 7, 11. */
int64_t partition_n_boundaries(const struct partition *p);
void partition_boundaries(const struct partition *p, int64_t *boundaries);

#endif
