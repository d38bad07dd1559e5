#include "text/merge_table.h"

#include "text/grow.h"

#include <string.h>

void merge_table_release(struct merge_table *m)
{
    free(m->list);
    free(m->slots);
    *m = (struct merge_table){0};
}

static void place(struct merge_table *m, int64_t rank)
{
    const struct merge *merge = &m->list[rank];
    uint64_t pair = merge_pair(merge->left, merge->right);
    uint64_t s = merge_hash(pair) & m->mask;
    while (m->slots[s].pair != MERGE_FREE)
        s = (s + 1) & m->mask;
    m->slots[s] = (struct merge_slot){pair, (int32_t)rank, merge->merged};
}

static int grow_slots(struct merge_table *m, struct error *err)
{
    uint64_t n = m->mask ? 2 * (m->mask + 1) : 1024;
    struct merge_slot *slots = malloc((size_t)n * sizeof *slots);
    if (!slots)
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    memset(slots, 0xFF, (size_t)n * sizeof *slots); // every pair MERGE_FREE
    free(m->slots);
    m->slots = slots;
    m->mask = n - 1;
    for (int64_t rank = 0; rank < m->n; rank++)
        place(m, rank);
    return 0;
}

int merge_table_add(struct merge_table *m, int32_t left, int32_t right, int32_t merged,
                    struct error *err)
{
    int32_t other;
    if (m->n >= MERGE_NONE)
        return error_set(err, ERROR_INPUT, "there are more merges than there are ids");
    if (m->n > 0 && merge_table_rank(m, left, right, &other) != MERGE_NONE)
        return error_set(err, ERROR_INPUT, "merges %d and %lld join the same two tokens",
                         merge_table_rank(m, left, right, &other) + 1,
                         (long long)m->n + 1);
    struct merge *list = grow_array(m->list, &m->capacity, m->n + 1, sizeof *list);
    if (!list)
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    m->list = list;
    if (2 * ((uint64_t)m->n + 1) > (m->mask ? m->mask + 1 : 0) && grow_slots(m, err))
        return -1;
    list[m->n] = (struct merge){left, right, merged};
    place(m, m->n++);
    return 0;
}
