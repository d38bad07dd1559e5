/*
 * bpe - the merges of a byte-level BPE: which two tokens become which one, and a word
 * merged by them.
 *
 * A merge has a rank, its place in the list. As long as neighbours can merge, the pair of
 * lowest rank does, the leftmost of equals. A word of n symbols takes n log n steps.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/base.h"
#include "base/error.h"

/* -- the table ----------------------------------------------------------------------- */

struct merge { // its rank is its index
    int32_t left, right, merged;
};

struct merge_slot {
    uint64_t pair; // MERGE_FREE: none
    int32_t rank;
    int32_t merged;
};

struct merge_table { // zero-initialised is empty
    struct merge *list;
    int64_t n, capacity;
    struct merge_slot *slots; // hash table, at most half full
    uint64_t mask;            // the number of slots less 1; 0: no slots
};

#define MERGE_FREE UINT64_MAX // no pair of ids
#define MERGE_NONE INT32_MAX  // the rank of a pair that does not merge

void merge_table_release(struct merge_table *m);

/* The next merge of the list. A pair that is there already is refused. */
MUST_CHECK int merge_table_add(struct merge_table *m, int32_t left, int32_t right,
                               int32_t merged, struct error *err);

static inline uint64_t merge_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t merge_hash(uint64_t pair)
{
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

/* The rank of a pair and what it becomes; MERGE_NONE and -1. The table is not empty. */
static inline int32_t merge_table_rank(const struct merge_table *m, int32_t left,
                                       int32_t right, int32_t *merged)
{
    uint64_t pair = merge_pair(left, right);
    for (uint64_t s = merge_hash(pair) & m->mask;; s = (s + 1) & m->mask) {
        const struct merge_slot *slot = &m->slots[s];
        if (slot->pair == pair) {
            *merged = slot->merged;
            return slot->rank;
        }
        if (slot->pair == MERGE_FREE) {
            *merged = -1;
            return MERGE_NONE;
        }
    }
}

/* -- one word ------------------------------------------------------------------------ */

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
