/*
 * vocab - tokens: the bytes of each id, and the id of bytes.
 *
 * Ids need not be dense, but a table of all of them is kept: an id far beyond the number
 * of tokens is refused before memory is allocated for it.
 */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/base.h"
#include "base/error.h"
#include "text/hash_slots.h"

#define VOCAB_MOST_HOLES (1 << 20)

enum {                 // flags of a token; an id without any is no token
    VOCAB_TEXT = 1,    // part of words, found by vocab_find()
    VOCAB_ADDED = 2,   // taken out of a text before it is cut into words
    VOCAB_SPECIAL = 4, // added, but only where special tokens are asked for
};

struct vocab_token {
    size_t at; // in the pool
    uint32_t n_bytes;
    uint32_t flags;
};

struct vocab {                  // zero-initialised is empty
    struct vocab_token *tokens; // of each id
    int64_t n_ids, ids_capacity;
    int64_t n_tokens;
    char *pool; // the bytes of all tokens
    int64_t pool_used, pool_capacity;
    struct hash_slots text_ids; // ids of text tokens by the hash of their bytes
};

void vocab_release(struct vocab *v);

/* Add a token of n > 0 bytes. Refused, with a sentence that does not name the file: an id
 * that is taken or out of range, no bytes, bytes of another text token. */
MUST_CHECK int vocab_add(struct vocab *v, int64_t id, const char *bytes, size_t n,
                         uint32_t flags, struct error *err);
/* Give a token that is there other bytes and flags, VOCAB_TEXT not among them. */
MUST_CHECK int vocab_change(struct vocab *v, int32_t id, const char *bytes, size_t n,
                            uint32_t flags, struct error *err);
/* Make an added token a text token too. */
MUST_CHECK int vocab_make_text(struct vocab *v, int32_t id, struct error *err);

/* The text token with these bytes; -1: none. */
int32_t vocab_find(const struct vocab *v, const char *bytes, size_t n);

static inline uint32_t vocab_flags(const struct vocab *v, int64_t id)
{
    return id >= 0 && id < v->n_ids ? v->tokens[id].flags : 0;
}

/* The bytes of an id that is a token. */
static inline const char *vocab_bytes(const struct vocab *v, int64_t id, size_t *n)
{
    *n = v->tokens[id].n_bytes;
    return v->pool + v->tokens[id].at;
}

/* -- bytes as printable text --------------------------------------------------------- */

/*
 * GPT-2's way: vocabulary files hold text, tokens are bytes, so each byte has a symbol.
 * 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points), the other 68
 * in ascending order for U+0100, U+0101, ...: a space is U+0120.
 */
#define BYTE_LEVEL_SYMBOL_BYTES 2 // the most that a symbol takes in UTF-8

/* The code point that stands for a byte. */
uint32_t byte_level_symbol(uint8_t byte);

/* The place of a byte among all, ordered by their symbols: its id in GPT-2. */
int32_t byte_level_place(uint8_t byte);

/* Write n bytes as symbols; `out` has 2 n. Returns the number written. */
size_t byte_level_spell(const char *bytes, size_t n, char *out);

/* The way back: `out` has n. False when the text has a character that stands for
 * no byte. `out` may be `text`. */
bool byte_level_read(const char *text, size_t n, char *out, size_t *n_out);

#endif
