/* word_count - distinct words and how often each was met. */
#ifndef TEXT_WORD_COUNT_H
#define TEXT_WORD_COUNT_H

#include "base/base.h"
#include "base/error.h"

struct word_count {
    int64_t at; // in the pool
    int64_t n_bytes;
    int64_t count;
};

struct word_counts {          // zero-initialised is empty
    struct word_count *words; // in the order they were first met
    int64_t n_words, words_capacity;
    char *pool;
    int64_t pool_used, pool_capacity;
    int64_t *slots; // hash table of indices of words; -1: free; at most half full
    int64_t n_slots;
};

void word_counts_release(struct word_counts *c);

/* One more of the word of n > 0 bytes. */
MUST_CHECK int word_counts_add(struct word_counts *c, const char *word, size_t n,
                               struct error *err);

#endif
