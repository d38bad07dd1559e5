/*
 * Short words, which are almost all, keep the rank of each pair in an array and look for
 * the least again after each merge. Long ones keep pairs in a heap, ordered by rank and
 * place, and symbols in a linked list; an entry of the heap whose pair has changed since
 * is recognised by its rank when it comes up, for a pair has one rank and a rank one
 * pair.
 */
#include "text/bpe.h"

#include "base/grow.h"

#include <string.h>

#define SHORT_WORD 64 // symbols; where the two ways take the same time

/* -- the table ----------------------------------------------------------------------- */

void merge_table_release(struct merge_table *m)
{
    free(m->list);
    free(m->slots);
    *m = (struct merge_table){0};
}

static void place_merge(struct merge_table *m, int64_t rank)
{
    const struct merge *merge = &m->list[rank];
    uint64_t pair = merge_pair(merge->left, merge->right);
    uint64_t s = merge_hash(pair) & m->mask;
    while (m->slots[s].pair != MERGE_FREE)
        s = (s + 1) & m->mask;
    m->slots[s] = (struct merge_slot){pair, (int32_t)rank, merge->merged};
}

static int grow_merge_slots(struct merge_table *m, struct error *err)
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
        place_merge(m, rank);
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
    if (grow_array(&m->list, &m->capacity, m->n + 1, sizeof *m->list))
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    if (2 * ((uint64_t)m->n + 1) > (m->mask ? m->mask + 1 : 0) &&
        grow_merge_slots(m, err))
        return -1;
    m->list[m->n] = (struct merge){left, right, merged};
    place_merge(m, m->n++);
    return 0;
}

/* -- short words --------------------------------------------------------------------- */

void bpe_scratch_release(struct bpe_scratch *scratch)
{
    free(scratch->nodes);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

static int64_t merge_short(const struct merge_table *merges, int32_t *ids, int64_t n)
{
    int32_t ranks[SHORT_WORD], products[SHORT_WORD]; // [i]: of ids[i] and ids[i + 1]
    for (int64_t i = 0; i + 1 < n; i++)
        ranks[i] = merge_table_rank(merges, ids[i], ids[i + 1], &products[i]);
    while (n > 1) {
        int64_t best = 0;
        for (int64_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == MERGE_NONE)
            break;
        ids[best] = products[best];
        for (int64_t i = best + 1; i + 1 < n; i++)
            ids[i] = ids[i + 1];
        for (int64_t i = best + 1; i + 2 < n; i++) { // pairs are one fewer
            ranks[i] = ranks[i + 1];
            products[i] = products[i + 1];
        }
        n--;
        if (best > 0)
            ranks[best - 1] =
                merge_table_rank(merges, ids[best - 1], ids[best], &products[best - 1]);
        if (best + 1 < n)
            ranks[best] =
                merge_table_rank(merges, ids[best], ids[best + 1], &products[best]);
    }
    return n;
}

/* -- long words ---------------------------------------------------------------------- */

struct long_word {
    const struct merge_table *merges;
    struct bpe_node *nodes;
    uint64_t *heap;
    int64_t n_heap;
};

/* A heap of eight children: its 64-bit entries of a family lie in a cache line or two. */
#define CHILDREN 8

static void sift_down(uint64_t *heap, int64_t n, int64_t i)
{
    uint64_t moved = heap[i];
    for (;;) {
        int64_t first = CHILDREN * i + 1, end = i64_min(first + CHILDREN, n);
        if (first >= n)
            break;
        int64_t least = first;
        for (int64_t child = first + 1; child < end; child++)
            least = heap[child] < heap[least] ? child : least;
        if (heap[least] >= moved)
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = moved;
}

static void push_entry(struct long_word *w, uint64_t entry)
{
    int64_t i = w->n_heap++;
    while (i > 0 && w->heap[(i - 1) / CHILDREN] > entry) {
        w->heap[i] = w->heap[(i - 1) / CHILDREN];
        i = (i - 1) / CHILDREN;
    }
    w->heap[i] = entry;
}

static uint64_t pop_entry(struct long_word *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap > 0)
        sift_down(w->heap, w->n_heap, 0);
    return top;
}

/* The rank of the symbol at `at` and the one after it. */
static int32_t rank_at(const struct long_word *w, int32_t at, int32_t *merged)
{
    const struct bpe_node *node = &w->nodes[at];
    if (node->id < 0 || node->after < 0)
        return MERGE_NONE;
    return merge_table_rank(w->merges, node->id, w->nodes[node->after].id, merged);
}

static void push_pair(struct long_word *w, int32_t at)
{
    int32_t merged;
    int32_t rank = rank_at(w, at, &merged);
    if (rank != MERGE_NONE)
        push_entry(w, (uint64_t)(uint32_t)rank << 32 | (uint32_t)at);
}

static void list_pairs(struct long_word *w, const int32_t *ids, int32_t n)
{
    int32_t merged;
    for (int32_t i = 0; i < n; i++)
        w->nodes[i] = (struct bpe_node){ids[i], i - 1, i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < n; i++) {
        int32_t rank = rank_at(w, i, &merged);
        if (rank != MERGE_NONE)
            w->heap[w->n_heap++] = (uint64_t)(uint32_t)rank << 32 | (uint32_t)i;
    }
    for (int64_t i = (w->n_heap - 2) / CHILDREN; i >= 0 && w->n_heap > 1; i--)
        sift_down(w->heap, w->n_heap, i);
}

static void merge_at(struct long_word *w, int32_t at, int32_t merged)
{
    struct bpe_node *node = &w->nodes[at];
    struct bpe_node *gone = &w->nodes[node->after];
    node->id = merged;
    node->after = gone->after;
    gone->id = -1;
    if (node->after >= 0) {
        w->nodes[node->after].before = at;
        push_pair(w, at);
    }
    if (node->before >= 0)
        push_pair(w, node->before);
}

int bpe_merge(const struct merge_table *merges, struct bpe_scratch *scratch, int32_t *ids,
              int64_t n, int64_t *n_left, struct error *err)
{
    *n_left = n;
    if (merges->n == 0)
        return 0;
    if (n <= SHORT_WORD) {
        *n_left = merge_short(merges, ids, n);
        return 0;
    }
    if (n > INT32_MAX)
        return error_set(err, ERROR_INPUT,
                         "a word of %lld bytes is too long to be encoded", (long long)n);
    // Each merge takes a pair out of the heap and puts at most two in.
    if (grow_array(&scratch->nodes, &scratch->nodes_capacity, n,
                   sizeof *scratch->nodes) ||
        grow_array(&scratch->heap, &scratch->heap_capacity, 2 * n, sizeof *scratch->heap))
        return error_set(err, ERROR_RUNTIME, "out of memory for a word of %lld bytes",
                         (long long)n);
    struct long_word w = {merges, scratch->nodes, scratch->heap, 0};
    list_pairs(&w, ids, (int32_t)n);
    while (w.n_heap > 0) {
        int32_t merged = -1;
        uint64_t entry = pop_entry(&w);
        if (rank_at(&w, (int32_t)(uint32_t)entry, &merged) == (int32_t)(entry >> 32))
            merge_at(&w, (int32_t)(uint32_t)entry, merged);
    }
    *n_left = 0;
    for (int32_t at = 0; at >= 0; at = w.nodes[at].after)
        ids[(*n_left)++] = w.nodes[at].id;
    return 0;
}
