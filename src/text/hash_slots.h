/*
 * hash_slots - from the hash of a key to its index in an array that the caller has.
 *
 * Open addressing, at most half full. A slot keeps the whole hash, so a table grows
 * without asking for keys, and keys are compared only where their hashes are equal.
 */
#ifndef TEXT_HASH_SLOTS_H
#define TEXT_HASH_SLOTS_H

#include "base/base.h"

#include <stdlib.h>

struct hash_slots { // zero-initialised is empty
    struct hash_slot {
        uint64_t hash;
        int64_t number; // the index plus 1; 0: free
    } * slots;
    uint64_t n_slots; // a power of two, or 0
    uint64_t n_used;
};

/* The next index with this hash, or -1. *probe is 0 for the first and moved on here. */
static inline int64_t hash_slots_next(const struct hash_slots *h, uint64_t hash,
                                      uint64_t *probe)
{
    while (h->n_slots > 0) {
        const struct hash_slot *s = &h->slots[(hash + (*probe)++) & (h->n_slots - 1)];
        if (s->number == 0)
            break;
        if (s->hash == hash)
            return s->number - 1;
    }
    return -1;
}

static inline void hash_slots_place(struct hash_slots *h, uint64_t hash, int64_t number)
{
    uint64_t at = hash & (h->n_slots - 1);
    while (h->slots[at].number != 0)
        at = (at + 1) & (h->n_slots - 1);
    h->slots[at] = (struct hash_slot){hash, number};
}

/* Add an index under its hash. -1: out of memory, and the table is as it was. */
MUST_CHECK static inline int hash_slots_add(struct hash_slots *h, uint64_t hash,
                                            int64_t index)
{
    if (2 * (h->n_used + 1) > h->n_slots) {
        uint64_t n = h->n_slots > 0 ? 2 * h->n_slots : 1024;
        struct hash_slots larger = {calloc(n, sizeof *h->slots), n, h->n_used};
        if (!larger.slots)
            return -1;
        for (uint64_t i = 0; i < h->n_slots; i++)
            if (h->slots[i].number != 0)
                hash_slots_place(&larger, h->slots[i].hash, h->slots[i].number);
        free(h->slots);
        *h = larger;
    }
    hash_slots_place(h, hash, index + 1);
    h->n_used++;
    return 0;
}

#endif
