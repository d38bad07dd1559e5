#include "text/vocab.h"

#include "text/grow.h"
#include "text/hash_bytes.h"

#include <string.h>

#define SHOWN_BYTES 40 // of a token in an error

void vocab_release(struct vocab *v)
{
    free(v->tokens);
    free(v->pool);
    free(v->slots);
    *v = (struct vocab){0};
}

/* -- bytes to id --------------------------------------------------------------------- */

static bool is_text_of(const struct vocab *v, int32_t id, const char *bytes, size_t n)
{
    const struct vocab_token *t = &v->tokens[id];
    return (t->flags & VOCAB_TEXT) && t->n_bytes == n &&
           memcmp(v->pool + t->at, bytes, n) == 0;
}

int32_t vocab_find(const struct vocab *v, const char *bytes, size_t n)
{
    if (v->n_slots == 0)
        return -1;
    uint64_t mask = (uint64_t)v->n_slots - 1;
    for (uint64_t s = hash_bytes(bytes, n) & mask; v->slots[s] >= 0; s = (s + 1) & mask)
        if (is_text_of(v, v->slots[s], bytes, n))
            return v->slots[s];
    return -1;
}

static void place(struct vocab *v, int32_t id)
{
    const struct vocab_token *t = &v->tokens[id];
    uint64_t mask = (uint64_t)v->n_slots - 1;
    uint64_t s = hash_bytes(v->pool + t->at, t->n_bytes) & mask;
    while (v->slots[s] >= 0)
        s = (s + 1) & mask;
    v->slots[s] = id;
    v->n_slots_used++;
}

/* Twice the slots; of ids whose text was taken away, the new table knows nothing. */
static int grow_slots(struct vocab *v, struct error *err)
{
    int64_t n = i64_max(1024, v->n_slots * 2);
    int32_t *slots = malloc((size_t)n * sizeof *slots);
    if (!slots)
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    memset(slots, 0xFF, (size_t)n * sizeof *slots);
    free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    v->n_slots_used = 0;
    for (int64_t id = 0; id < v->n_ids; id++)
        if (v->tokens[id].flags & VOCAB_TEXT)
            place(v, (int32_t)id);
    return 0;
}

int vocab_make_text(struct vocab *v, int32_t id, struct error *err)
{
    // at most half full, counted before the id has its flag: a new table then lacks it
    if (2 * (v->n_slots_used + 1) > v->n_slots && grow_slots(v, err))
        return -1;
    v->tokens[id].flags |= VOCAB_TEXT;
    place(v, id);
    return 0;
}

/* -- id to bytes --------------------------------------------------------------------- */

static int store_bytes(struct vocab *v, struct vocab_token *t, const char *bytes,
                       size_t n, struct error *err)
{
    if (n == 0 || n > INT32_MAX)
        return error_set(err, ERROR_INPUT, "a token has %zu bytes", n);
    char *pool =
        grow_array(v->pool, &v->pool_capacity, v->pool_used + (int64_t)n, sizeof *pool);
    if (!pool)
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    v->pool = pool;
    memcpy(pool + v->pool_used, bytes, n);
    t->at = (size_t)v->pool_used;
    t->n_bytes = (uint32_t)n;
    v->pool_used += (int64_t)n;
    return 0;
}

static int make_room(struct vocab *v, int64_t id, struct error *err)
{
    if (id < v->n_ids)
        return 0;
    struct vocab_token *tokens =
        grow_array(v->tokens, &v->ids_capacity, id + 1, sizeof *tokens);
    if (!tokens)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)id + 1);
    memset(tokens + v->n_ids, 0, (size_t)(id + 1 - v->n_ids) * sizeof *tokens);
    v->tokens = tokens;
    v->n_ids = id + 1;
    return 0;
}

int vocab_add(struct vocab *v, int64_t id, const char *bytes, size_t n, uint32_t flags,
              struct error *err)
{
    int shown = (int)(n < SHOWN_BYTES ? n : SHOWN_BYTES);
    if (id < 0 || id > INT32_MAX - 1)
        return error_set(err, ERROR_INPUT, "token '%.*s' has the id %lld, which is %s",
                         shown, bytes, (long long)id,
                         id < 0 ? "negative" : "larger than ids can be");
    if (vocab_flags(v, id))
        return error_set(err, ERROR_INPUT, "two tokens have the id %lld, '%.*s' is one",
                         (long long)id, shown, bytes);
    if (id > v->n_tokens + VOCAB_MOST_HOLES)
        return error_set(err, ERROR_INPUT,
                         "token '%.*s' has the id %lld, far beyond the number of tokens",
                         shown, bytes, (long long)id);
    if ((flags & VOCAB_TEXT) && vocab_find(v, bytes, n) >= 0)
        return error_set(err, ERROR_INPUT, "token '%.*s' is there twice, as %d and %lld",
                         shown, bytes, vocab_find(v, bytes, n), (long long)id);
    if (make_room(v, id, err) || store_bytes(v, &v->tokens[id], bytes, n, err))
        return -1;
    v->n_tokens++;
    v->tokens[id].flags = flags & ~(uint32_t)VOCAB_TEXT;
    return flags & VOCAB_TEXT ? vocab_make_text(v, (int32_t)id, err) : 0;
}

int vocab_change(struct vocab *v, int32_t id, const char *bytes, size_t n, uint32_t flags,
                 struct error *err)
{
    CHECK(vocab_flags(v, id) && !(flags & VOCAB_TEXT), "id %d, flags %u", id, flags);
    if (store_bytes(v, &v->tokens[id], bytes, n, err))
        return -1;
    v->tokens[id].flags = flags;
    return 0;
}
