#include "text/vocab.h"

#include "base/grow.h"
#include "base/utf8.h"

#include <string.h>
#include <xxhash.h>

#define SHOWN_BYTES 40        // of a token in an error
#define FIRST_STAND_IN 0x100u // the symbol of byte 0

void vocab_release(struct vocab *v)
{
    free(v->tokens);
    free(v->pool);
    free(v->text_ids.slots);
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
    uint64_t hash = XXH3_64bits(bytes, n), probe = 0;
    int64_t id;
    while ((id = hash_slots_next(&v->text_ids, hash, &probe)) >= 0)
        if (is_text_of(v, (int32_t)id, bytes, n))
            break;
    return (int32_t)id;
}

int vocab_make_text(struct vocab *v, int32_t id, struct error *err)
{
    struct vocab_token *t = &v->tokens[id];
    if (hash_slots_add(&v->text_ids, XXH3_64bits(v->pool + t->at, t->n_bytes), id))
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    t->flags |= VOCAB_TEXT;
    return 0;
}

/* -- id to bytes --------------------------------------------------------------------- */

static int store_bytes(struct vocab *v, struct vocab_token *t, const char *bytes,
                       size_t n, struct error *err)
{
    if (n == 0 || n > INT32_MAX)
        return error_set(err, ERROR_INPUT, "a token has %zu bytes", n);
    if (grow_array(&v->pool, &v->pool_capacity, v->pool_used + (int64_t)n, 1))
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    memcpy(v->pool + v->pool_used, bytes, n);
    t->at = (size_t)v->pool_used;
    t->n_bytes = (uint32_t)n;
    v->pool_used += (int64_t)n;
    return 0;
}

static int reserve_ids(struct vocab *v, int64_t id, struct error *err)
{
    if (id < v->n_ids)
        return 0;
    if (grow_array(&v->tokens, &v->ids_capacity, id + 1, sizeof *v->tokens))
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)id + 1);
    memset(v->tokens + v->n_ids, 0, (size_t)(id + 1 - v->n_ids) * sizeof *v->tokens);
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
    if (reserve_ids(v, id, err) || store_bytes(v, &v->tokens[id], bytes, n, err))
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

/* -- bytes as printable text --------------------------------------------------------- */

static bool stands_for_itself(uint32_t code)
{
    return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) ||
           (code >= 0xAE && code <= 0xFF);
}

uint32_t byte_level_symbol(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return FIRST_STAND_IN + byte;
    return byte == 0xAD ? FIRST_STAND_IN + 67 : FIRST_STAND_IN + 33 + (byte - 0x7Fu);
}

/* The byte of a symbol; -1: none. */
static int byte_of(uint32_t code)
{
    if (stands_for_itself(code))
        return (int)code;
    if (code < FIRST_STAND_IN || code > FIRST_STAND_IN + 67)
        return -1;
    int k = (int)(code - FIRST_STAND_IN);
    if (k <= 0x20)
        return k;
    return k == 67 ? 0xAD : 0x7F + (k - 33);
}

int32_t byte_level_place(uint8_t byte)
{
    uint32_t symbol = byte_level_symbol(byte);
    if (symbol <= 0x7E)
        return (int32_t)(symbol - 0x21);
    if (symbol <= 0xAC)
        return (int32_t)(symbol - 0xA1 + 94);
    if (symbol <= 0xFF)
        return (int32_t)(symbol - 0xAE + 106);
    return (int32_t)(symbol - FIRST_STAND_IN + 188);
}

size_t byte_level_spell(const char *bytes, size_t n, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char symbol[UTF8_MOST_BYTES];
        size_t k = utf8_encode(byte_level_symbol((uint8_t)bytes[i]), symbol);
        for (size_t j = 0; j < k; j++)
            out[used++] = symbol[j];
    }
    return used;
}

bool byte_level_read(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        size_t k = utf8_decode(text + at, n - at, &code);
        int byte = k ? byte_of(code) : -1;
        if (byte < 0)
            return false;
        out[used++] = (char)(uint8_t)byte;
        at += k;
    }
    *n_out = used;
    return true;
}
