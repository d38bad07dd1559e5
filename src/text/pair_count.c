#include "text/pair_count.h"

#include "text/grow.h"
#include "text/merge_table.h"

#include <string.h>

void pair_counts_release(struct pair_counts *c)
{
    for (int64_t i = 0; i < c->n_pairs; i++)
        free(c->pairs[i].places);
    free(c->pairs);
    free(c->slots);
    free(c->queue);
    *c = (struct pair_counts){0};
}

static int no_memory(const struct pair_counts *c, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for %lld pairs of tokens",
                     (long long)c->n_pairs + 1);
}

/* -- pairs --------------------------------------------------------------------------- */

/* Where the pair is, or the free slot where it would be. */
static int64_t slot_of(const struct pair_counts *c, int32_t left, int32_t right)
{
    uint64_t mask = (uint64_t)c->n_slots - 1;
    for (uint64_t s = merge_hash(merge_pair(left, right)) & mask;; s = (s + 1) & mask) {
        const struct pair_count *p = c->slots[s] < 0 ? NULL : &c->pairs[c->slots[s]];
        if (!p || (p->left == left && p->right == right))
            return (int64_t)s;
    }
}

static int grow_slots(struct pair_counts *c, struct error *err)
{
    int64_t n = i64_max(1024, c->n_slots * 2);
    int64_t *slots = malloc((size_t)n * sizeof *slots);
    if (!slots)
        return no_memory(c, err);
    memset(slots, 0xFF, (size_t)n * sizeof *slots); // every one -1
    free(c->slots);
    c->slots = slots;
    c->n_slots = n;
    for (int64_t i = 0; i < c->n_pairs; i++)
        slots[slot_of(c, c->pairs[i].left, c->pairs[i].right)] = i;
    return 0;
}

/* The pair, new if it must be; NULL without memory. */
static struct pair_count *find_or_add(struct pair_counts *c, int32_t left, int32_t right,
                                      struct error *err)
{
    if (2 * (c->n_pairs + 1) > c->n_slots && grow_slots(c, err))
        return NULL;
    int64_t slot = slot_of(c, left, right);
    if (c->slots[slot] >= 0)
        return &c->pairs[c->slots[slot]];
    struct pair_count *pairs =
        grow_array(c->pairs, &c->pairs_capacity, c->n_pairs + 1, sizeof *pairs);
    if (!pairs) {
        no_memory(c, err);
        return NULL;
    }
    c->pairs = pairs;
    c->slots[slot] = c->n_pairs;
    pairs[c->n_pairs] = (struct pair_count){.left = left, .right = right};
    return &pairs[c->n_pairs++];
}

int pair_counts_add(struct pair_counts *c, int32_t left, int32_t right, int64_t count,
                    int32_t place, struct error *err)
{
    struct pair_count *p = find_or_add(c, left, right, err);
    if (!p)
        return -1;
    int32_t *places =
        grow_array(p->places, &p->places_capacity, p->n_places + 1, sizeof *places);
    if (!places)
        return no_memory(c, err);
    p->places = places;
    places[p->n_places++] = place;
    p->count += count;
    return 0;
}

void pair_counts_subtract(struct pair_counts *c, int32_t left, int32_t right,
                          int64_t count)
{
    int64_t slot = slot_of(c, left, right);
    CHECK(c->slots[slot] >= 0 && c->pairs[c->slots[slot]].count >= count,
          "pair %d %d, %lld fewer", left, right, (long long)count);
    c->pairs[c->slots[slot]].count -= count;
}

/* -- the queue ----------------------------------------------------------------------- */

/* More frequent, or as frequent with lower ids. */
static bool is_before(const struct pair_counts *c, const struct pair_entry *a,
                      const struct pair_entry *b)
{
    const struct pair_count *p = &c->pairs[a->pair], *q = &c->pairs[b->pair];
    if (a->count != b->count)
        return a->count > b->count;
    return merge_pair(p->left, p->right) < merge_pair(q->left, q->right);
}

static void push(struct pair_counts *c, struct pair_entry entry)
{
    int64_t i = c->n_queue++;
    while (i > 0 && is_before(c, &entry, &c->queue[(i - 1) / 2])) {
        c->queue[i] = c->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    c->queue[i] = entry;
}

static struct pair_entry pop(struct pair_counts *c)
{
    struct pair_entry top = c->queue[0], moved = c->queue[--c->n_queue];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= c->n_queue)
            break;
        if (child + 1 < c->n_queue &&
            is_before(c, &c->queue[child + 1], &c->queue[child]))
            child++;
        if (!is_before(c, &c->queue[child], &moved))
            break;
        c->queue[i] = c->queue[child];
        i = child;
    }
    if (c->n_queue > 0)
        c->queue[i] = moved;
    return top;
}

int pair_counts_queue(struct pair_counts *c, int64_t first, struct error *err)
{
    if (first == c->n_pairs)
        return 0;
    struct pair_entry *queue = grow_array(c->queue, &c->queue_capacity,
                                          c->n_queue + c->n_pairs - first, sizeof *queue);
    if (!queue)
        return no_memory(c, err);
    c->queue = queue;
    for (int64_t i = first; i < c->n_pairs; i++)
        push(c, (struct pair_entry){c->pairs[i].count, i});
    return 0;
}

int64_t pair_counts_pop(struct pair_counts *c, int64_t least)
{
    while (c->n_queue > 0) {
        struct pair_entry top = pop(c);
        int64_t count = c->pairs[top.pair].count;
        if (count == top.count)
            return count >= least ? top.pair : -1;
        if (count >= least)
            push(c, (struct pair_entry){count, top.pair});
    }
    return -1;
}
