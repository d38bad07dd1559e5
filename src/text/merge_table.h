/*
 * merge_table - which two tokens become which one, and in what order.
 *
 * A merge has a rank, its place in the list: of all pairs in a word, the one of lowest
 * rank merges first.
 */
#ifndef TEXT_MERGE_TABLE_H
#define TEXT_MERGE_TABLE_H

#include "base/base.h"
#include "base/error.h"

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

#endif
