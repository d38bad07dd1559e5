/*
 * pair_count - the pairs of neighbours in all words: how frequent each is, where it can
 * be found, and which is the most frequent.
 *
 * The queue of pairs is right as long as a pair, once queued, only becomes rarer: then an
 * entry that claims too much is found out when it comes up, and queued again.
 */
#ifndef TEXT_PAIR_COUNT_H
#define TEXT_PAIR_COUNT_H

#include "base/base.h"
#include "base/error.h"

struct pair_count {
    int32_t left, right;
    int64_t count;   // of all words, each as often as it was met
    int32_t *places; // where its left symbol was seen, ascending; some may be outdated
    int64_t n_places, places_capacity;
};

struct pair_entry { // of the queue: a claim
    int64_t count;
    int64_t pair;
};

struct pair_counts { // zero-initialised is empty
    struct pair_count *pairs;
    int64_t n_pairs, pairs_capacity;
    int64_t *slots; // hash table of indices of pairs; -1: free; at most half full
    int64_t n_slots;
    struct pair_entry *queue; // a heap, the most frequent first
    int64_t n_queue, queue_capacity;
};

void pair_counts_release(struct pair_counts *c);

/* `count` more of a pair, at a place after all those it has. */
MUST_CHECK int pair_counts_add(struct pair_counts *c, int32_t left, int32_t right,
                               int64_t count, int32_t place, struct error *err);
/* `count` fewer of a pair that is there. */
void pair_counts_subtract(struct pair_counts *c, int32_t left, int32_t right,
                          int64_t count);

/* Queue the pairs from index `first` on. */
MUST_CHECK int pair_counts_queue(struct pair_counts *c, int64_t first, struct error *err);
/* The index of the most frequent queued pair, which leaves the queue; -1 when none has
 * `least`. */
int64_t pair_counts_pop(struct pair_counts *c, int64_t least);

#endif
