/*
 * A text is split three times: at added tokens, into words, and each word into tokens.
 * Most words repeat, so an encoder caches the tokens of short words in a table of fixed
 * size, two-way set-associative with LRU replacement.
 */
#include "text/encoder.h"

#include "base/grow.h"
#include "text/tokenizer_build.h"
#include "text/word_split.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_PAIRS 32768u // a power of two
#define CACHE_WORD_BYTES 16
#define CACHE_IDS 11

struct cached_word {    // fills a cache line
    uint64_t low, high; // the bytes, as word_key() packs them
    int32_t ids[CACHE_IDS];
    uint8_t n_bytes; // 0: the slot is free
    uint8_t n_ids;
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct word_splitter *splitter;
    struct cached_word *cache;
    struct bpe_scratch scratch;
    char *prefixed; // a text with a space before it
    int64_t prefixed_capacity;
};

void token_list_release(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* Grow the list for n more ids. */
static inline int reserve_tokens(struct token_list *list, size_t n, struct error *err)
{
    if (n <= (size_t)(list->capacity - list->n))
        return 0;
    if (n > INT64_MAX / 8 ||
        grow_array(&list->ids, &list->capacity, list->n + (int64_t)n, sizeof *list->ids))
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu tokens",
                         (size_t)list->n + n);
    return 0;
}

int token_list_append(struct token_list *list, const int32_t *ids, int64_t n,
                      struct error *err)
{
    if (reserve_tokens(list, (size_t)n, err))
        return -1;
    if (n > 0)
        memcpy(list->ids + list->n, ids, (size_t)n * sizeof *ids);
    list->n += n;
    return 0;
}

int encoder_open(struct encoder **out, const struct tokenizer *t, struct error *err)
{
    int rc = -1;
    struct encoder *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return error_set(err, ERROR_RUNTIME, "out of memory for an encoder");
    e->tokenizer = t;
    e->cache = calloc((size_t)2 * CACHE_PAIRS, sizeof *e->cache);
    if (!e->cache) {
        error_set(err, ERROR_RUNTIME, "out of memory for an encoder");
        goto done;
    }
    if (word_splitter_open(&e->splitter, err))
        goto done;
    *out = e;
    rc = 0;
done:
    if (rc)
        encoder_close(e);
    return rc;
}

void encoder_close(struct encoder *e)
{
    if (!e)
        return;
    word_splitter_close(e->splitter);
    bpe_scratch_release(&e->scratch);
    free(e->cache);
    free(e->prefixed);
    free(e);
}

static int32_t *byte_ids(const struct tokenizer *t, const char *text, size_t n,
                         int32_t *ids, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = t->byte_ids[(uint8_t)text[i]];
        if (ids[i] < 0) {
            error_set(err, ERROR_INPUT,
                      "the text has the byte 0x%02X, for which the tokenizer '%s' has no "
                      "token",
                      (uint8_t)text[i], t->name);
            return NULL;
        }
    }
    return ids;
}

/* -- words --------------------------------------------------------------------------- */

static inline uint64_t load_bytes(const char *at, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, at, n);
    return x;
}

/* Two numbers that, with n <= CACHE_WORD_BYTES, say what the n > 0 bytes are: their
 * beginning and their end, which may overlap. */
static inline void word_key(const char *word, size_t n, uint64_t *low, uint64_t *high)
{
    if (n >= 8) {
        *low = load_bytes(word, 8);
        *high = load_bytes(word + n - 8, 8);
    } else if (n >= 4) {
        *low = load_bytes(word, 4);
        *high = load_bytes(word + n - 4, 4);
    } else {
        *low = load_bytes(word, 1) | load_bytes(word + n / 2, 1) << 8;
        *high = load_bytes(word + n - 1, 1);
    }
}

/* The two slots where the word may be. */
static inline struct cached_word *slots_of(struct encoder *e, uint64_t low, uint64_t high,
                                           size_t n)
{
    uint64_t h = (low ^ n) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ high) * 0xD6E8FEB86659FD93u;
    return &e->cache[2 * ((h >> 40) & (CACHE_PAIRS - 1))];
}

static inline bool is_word(const struct cached_word *slot, uint64_t low, uint64_t high,
                           size_t n)
{
    return slot->low == low && slot->high == high && slot->n_bytes == n;
}

/* Without looking at the cache. */
static int merge_word(struct encoder *e, const char *word, size_t n,
                      struct token_list *list, struct error *err)
{
    const struct tokenizer *t = e->tokenizer;
    int64_t n_left;
    if (reserve_tokens(list, n, err))
        return -1;
    int32_t *ids = list->ids + list->n;
    int32_t whole = t->takes_whole_words ? vocab_find(&t->vocab, word, n) : -1;
    if (whole >= 0 && !(vocab_flags(&t->vocab, whole) & VOCAB_SPECIAL)) {
        ids[0] = whole;
        list->n++;
        return 0;
    }
    if (!byte_ids(t, word, n, ids, err) ||
        bpe_merge(&t->merges, &e->scratch, ids, (int64_t)n, &n_left, err))
        return -1;
    list->n += n_left;
    return 0;
}

/* Merge a word and cache its tokens, if they fit, in the slot. */
static int learn_word(struct encoder *e, const char *word, size_t n,
                      struct cached_word *slot, struct token_list *list,
                      struct error *err)
{
    int64_t before = list->n;
    if (merge_word(e, word, n, list, err))
        return -1;
    if (list->n - before > CACHE_IDS)
        return 0;
    word_key(word, n, &slot->low, &slot->high);
    slot->n_bytes = (uint8_t)n;
    slot->n_ids = (uint8_t)(list->n - before);
    memcpy(slot->ids, list->ids + before, slot->n_ids * sizeof *slot->ids);
    return 0;
}

static inline int encode_word(struct encoder *e, const char *word, size_t n,
                              struct token_list *list, struct error *err)
{
    uint64_t low, high;
    if (n > CACHE_WORD_BYTES)
        return merge_word(e, word, n, list, err);
    word_key(word, n, &low, &high);
    struct cached_word *slots = slots_of(e, low, high, n);
    if (!is_word(&slots[0], low, high, n)) {
        struct cached_word other = slots[1];
        slots[1] = slots[0];
        slots[0] = other;
        if (!is_word(&other, low, high, n))
            return learn_word(e, word, n, &slots[0], list, err);
    }
    if (reserve_tokens(list, CACHE_IDS, err))
        return -1;
    // all of them: the length is then known to the compiler
    memcpy(list->ids + list->n, slots[0].ids, sizeof slots[0].ids);
    list->n += slots[0].n_ids;
    return 0;
}

/* -- texts --------------------------------------------------------------------------- */

/* A text without added tokens, its prefix already added. */
static int encode_words(struct encoder *e, const char *text, size_t n,
                        struct token_list *list, struct error *err)
{
    if (!e->tokenizer->is_cut_into_words)
        return encode_word(e, text, n, list, err);
    for (size_t at = 0; at < n;) {
        size_t n_word = word_split_next(e->splitter, text + at, n - at);
        if (encode_word(e, text + at, n_word, list, err))
            return -1;
        at += n_word;
    }
    return 0;
}

/* A text without added tokens. */
static int encode_plain(struct encoder *e, const char *text, size_t n,
                        struct token_list *list, struct error *err)
{
    const struct tokenizer *t = e->tokenizer;
    if (n == 0)
        return 0;
    if (!t->adds_prefix_space || text[0] == ' ')
        return encode_words(e, text, n, list, err);
    if (n >= INT64_MAX ||
        grow_array(&e->prefixed, &e->prefixed_capacity, (int64_t)n + 1, 1))
        return error_set(err, ERROR_RUNTIME, "out of memory for a text of %zu bytes", n);
    e->prefixed[0] = ' ';
    memcpy(e->prefixed + 1, text, n);
    return encode_words(e, e->prefixed, n + 1, list, err);
}

static bool is_taken_out(const struct tokenizer *t, int32_t id, bool with_special)
{
    return with_special || !(vocab_flags(&t->vocab, id) & VOCAB_SPECIAL);
}

/* The longest added token that the text starts with; -1: none. */
static int32_t added_at(const struct tokenizer *t, const char *text, size_t n,
                        bool with_special)
{
    for (int64_t i = 0; i < t->n_added; i++) {
        size_t n_token;
        const char *bytes = vocab_bytes(&t->vocab, t->added[i], &n_token);
        if (n_token <= n && bytes[0] == text[0] && memcmp(bytes, text, n_token) == 0 &&
            is_taken_out(t, t->added[i], with_special))
            return t->added[i];
    }
    return -1;
}

/* is_first[b] := some added token that counts starts with the byte b. Are there any? */
static bool find_first_bytes(const struct tokenizer *t, bool with_special,
                             bool is_first[256])
{
    bool is_any = false;
    memset(is_first, 0, 256 * sizeof *is_first);
    for (int64_t i = 0; i < t->n_added; i++) {
        size_t n;
        const char *bytes = vocab_bytes(&t->vocab, t->added[i], &n);
        if (!is_taken_out(t, t->added[i], with_special))
            continue;
        is_first[(uint8_t)bytes[0]] = true;
        is_any = true;
    }
    return is_any;
}

int encoder_encode(struct encoder *e, const char *text, size_t n, bool with_special,
                   struct token_list *list, struct error *err)
{
    const struct tokenizer *t = e->tokenizer;
    bool is_first[256];
    size_t start = 0;
    if (!find_first_bytes(t, with_special, is_first))
        return encode_plain(e, text, n, list, err);
    for (size_t at = 0; at < n; at++) {
        int32_t id = is_first[(uint8_t)text[at]]
                         ? added_at(t, text + at, n - at, with_special)
                         : -1;
        if (id < 0)
            continue;
        if (encode_plain(e, text + start, at - start, list, err) ||
            reserve_tokens(list, 1, err))
            return -1;
        list->ids[list->n++] = id;
        at += t->vocab.tokens[id].n_bytes - 1;
        start = at + 1;
    }
    return encode_plain(e, text + start, n - start, list, err);
}

/* Does an added token that counts have white space in it, where texts are cut? */
static bool has_white_added(const struct tokenizer *t, bool with_special)
{
    static const char white[] = " \t\n\v\f\r";
    for (int64_t i = 0; i < t->n_added; i++) {
        size_t n;
        const char *bytes = vocab_bytes(&t->vocab, t->added[i], &n);
        for (size_t k = 0; k < n && is_taken_out(t, t->added[i], with_special); k++)
            if (memchr(white, bytes[k], sizeof white - 1))
                return true;
    }
    return false;
}

size_t encoder_last_cut(const struct encoder *e, const char *text, size_t n,
                        bool with_special)
{
    const struct tokenizer *t = e->tokenizer;
    bool is_first[256];
    bool is_merged = t->merges.n > 0 || t->takes_whole_words;
    if (t->adds_prefix_space || (is_merged && !t->is_cut_into_words))
        return 0;
    if (!is_merged && !find_first_bytes(t, with_special, is_first))
        return n;
    return has_white_added(t, with_special) ? 0 : word_split_last_cut(text, n);
}
