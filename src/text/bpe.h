/*
 * bpe - the merges of one word.
 *
 * As long as neighbours can merge, the pair of lowest rank does, the leftmost of equals.
 * A word of n symbols takes n log n steps.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/merge_table.h"

struct bpe_node { // a symbol of a long word, in a list of those that are left
    int32_t id;   // -1: merged into the one before
    int32_t before, after;
};

struct bpe_scratch { // memory for long words; zero-initialised is empty
    struct bpe_node *nodes;
    int64_t nodes_capacity;
    uint64_t *heap; // rank and place
    int64_t heap_capacity;
};

void bpe_scratch_release(struct bpe_scratch *scratch);

/* Merge the n ids of a word in place; *n_left := how many are left. Fails only without
 * memory. */
MUST_CHECK int bpe_merge(const struct merge_table *merges, struct bpe_scratch *scratch,
                         int32_t *ids, int64_t n, int64_t *n_left, struct error *err);

#endif
