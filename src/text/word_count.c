#include "text/word_count.h"

#include "text/grow.h"
#include "text/hash_bytes.h"

#include <string.h>

void word_counts_release(struct word_counts *c)
{
    free(c->words);
    free(c->pool);
    free(c->slots);
    *c = (struct word_counts){0};
}

static int no_memory(const struct word_counts *c, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for %lld distinct words",
                     (long long)c->n_words + 1);
}

/* Where the word is, or the free slot where it would be. */
static int64_t slot_of(const struct word_counts *c, const char *word, size_t n)
{
    uint64_t mask = (uint64_t)c->n_slots - 1;
    for (uint64_t s = hash_bytes(word, n) & mask;; s = (s + 1) & mask) {
        const struct word_count *w = c->slots[s] < 0 ? NULL : &c->words[c->slots[s]];
        if (!w || (w->n_bytes == (int64_t)n && memcmp(c->pool + w->at, word, n) == 0))
            return (int64_t)s;
    }
}

static int grow_slots(struct word_counts *c, struct error *err)
{
    int64_t n = i64_max(1024, c->n_slots * 2);
    int64_t *slots = malloc((size_t)n * sizeof *slots);
    if (!slots)
        return no_memory(c, err);
    memset(slots, 0xFF, (size_t)n * sizeof *slots); // every one -1
    free(c->slots);
    c->slots = slots;
    c->n_slots = n;
    for (int64_t i = 0; i < c->n_words; i++) {
        const struct word_count *w = &c->words[i];
        slots[slot_of(c, c->pool + w->at, (size_t)w->n_bytes)] = i;
    }
    return 0;
}

static int append(struct word_counts *c, const char *word, size_t n, struct error *err)
{
    struct word_count *words =
        grow_array(c->words, &c->words_capacity, c->n_words + 1, sizeof *words);
    if (!words)
        return no_memory(c, err);
    c->words = words;
    char *pool = grow_array(c->pool, &c->pool_capacity, c->pool_used + (int64_t)n, 1);
    if (!pool)
        return no_memory(c, err);
    c->pool = pool;
    memcpy(pool + c->pool_used, word, n);
    words[c->n_words++] = (struct word_count){c->pool_used, (int64_t)n, 1};
    c->pool_used += (int64_t)n;
    return 0;
}

int word_counts_add(struct word_counts *c, const char *word, size_t n, struct error *err)
{
    if (2 * (c->n_words + 1) > c->n_slots && grow_slots(c, err))
        return -1;
    int64_t slot = slot_of(c, word, n);
    if (c->slots[slot] >= 0) {
        c->words[c->slots[slot]].count++;
        return 0;
    }
    if (append(c, word, n, err))
        return -1;
    c->slots[slot] = c->n_words - 1;
    return 0;
}
