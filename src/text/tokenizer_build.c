#include "text/tokenizer_build.h"

#include "text/word_split.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 60 // of a token or a line in an error

static int shown(size_t n)
{
    return (int)(n < SHOWN_BYTES ? n : SHOWN_BYTES);
}

int tokenizer_new(struct tokenizer **out, const char *name, struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    char *copy = strdup(name);
    if (!t || !copy) {
        free(t);
        free(copy);
        return error_set(err, ERROR_RUNTIME, "out of memory for a tokenizer");
    }
    t->name = copy;
    t->eos = -1;
    t->is_cut_into_words = true;
    *out = t;
    return 0;
}

/* -- merges -------------------------------------------------------------------------- */

/* The token that the symbols spell, and its bytes in `bytes`, which has n; -1: none. */
static int32_t find_spelled(const struct tokenizer *t, const char *symbols, size_t n,
                            char *bytes, size_t *n_bytes)
{
    if (!byte_level_read(symbols, n, bytes, n_bytes))
        return -1;
    return vocab_find(&t->vocab, bytes, *n_bytes);
}

static int refuse_joined(struct error *err, int64_t number, const char *token, size_t n)
{
    return error_set(err, ERROR_INPUT,
                     "merge %lld joins '%.*s', which is not in the vocabulary",
                     (long long)number, shown(n), token);
}

int tokenizer_add_merge(struct tokenizer *t, const char *left, size_t n_left,
                        const char *right, size_t n_right, struct error *err)
{
    int rc = -1;
    int64_t number = t->merges.n + 1;
    size_t n_l = 0, n_r = 0;
    char *bytes = malloc(n_left + n_right + 1); // a symbol has at least one byte
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    int32_t l = find_spelled(t, left, n_left, bytes, &n_l);
    int32_t r = l < 0 ? -1 : find_spelled(t, right, n_right, bytes + n_l, &n_r);
    int32_t merged = r < 0 ? -1 : vocab_find(&t->vocab, bytes, n_l + n_r);
    if (l < 0)
        refuse_joined(err, number, left, n_left);
    else if (r < 0)
        refuse_joined(err, number, right, n_right);
    else if (merged < 0)
        error_set(err, ERROR_INPUT,
                  "merge %lld makes '%.*s%.*s', which is not in the vocabulary",
                  (long long)number, shown(n_left), left, shown(n_right), right);
    else
        rc = merge_table_add(&t->merges, l, r, merged, err);
    free(bytes);
    return rc;
}

int tokenizer_add_merge_line(struct tokenizer *t, const char *line, size_t n,
                             struct error *err)
{
    const char *space = memchr(line, ' ', n);
    size_t n_left = space ? (size_t)(space - line) : n;
    if (!space || n_left == 0 || n_left + 1 == n ||
        memchr(space + 1, ' ', n - n_left - 1))
        return error_set(err, ERROR_INPUT,
                         "merge %lld, '%.*s', is not two tokens with a space between",
                         (long long)t->merges.n + 1, shown(n), line);
    return tokenizer_add_merge(t, line, n_left, space + 1, n - n_left - 1, err);
}

int tokenizer_add_eos(struct tokenizer *t, int64_t id, struct error *err)
{
    return vocab_add(&t->vocab, id, TOKENIZER_EOS_TEXT, strlen(TOKENIZER_EOS_TEXT),
                     VOCAB_ADDED | VOCAB_SPECIAL, err);
}

/* -- facts --------------------------------------------------------------------------- */

int tokenizer_check_words(const struct tokenizer *t, struct error *err)
{
    struct word_splitter *s = NULL;
    int rc = -1;
    if (word_splitter_open(&s, err))
        return -1;
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n;
        if (!(vocab_flags(&t->vocab, id) & VOCAB_TEXT))
            continue;
        const char *bytes = vocab_bytes(&t->vocab, id, &n);
        if (!word_split_is_inside(s, bytes, n)) {
            error_set(err, ERROR_INPUT,
                      "token %lld, '%.*s', goes over the end of a word as GPT-2 cuts "
                      "text: this vocabulary was learned with another cut, which the "
                      "file does not name; its tokenizer.json would",
                      (long long)id, shown(n), bytes);
            goto done;
        }
    }
    rc = 0;
done:
    word_splitter_close(s);
    return rc;
}

/* Put `id` where it belongs among the added tokens: after all that are as long. */
static void insert_added(struct tokenizer *t, int32_t id)
{
    int64_t at = t->n_added++;
    uint32_t n = t->vocab.tokens[id].n_bytes;
    for (; at > 0 && t->vocab.tokens[t->added[at - 1]].n_bytes < n; at--)
        t->added[at] = t->added[at - 1];
    t->added[at] = id;
}

static bool is_eos(const struct tokenizer *t, int64_t id)
{
    size_t n;
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    return n == strlen(TOKENIZER_EOS_TEXT) && memcmp(bytes, TOKENIZER_EOS_TEXT, n) == 0;
}

int tokenizer_finish(struct tokenizer *t, struct error *err)
{
    int64_t n_added = 0;
    if (t->vocab.n_tokens == 0)
        return error_set(err, ERROR_INPUT, "the vocabulary is empty");
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)(uint8_t)byte;
        t->byte_ids[byte] = vocab_find(&t->vocab, &c, 1);
    }
    for (int64_t id = 0; id < t->vocab.n_ids; id++)
        n_added += (vocab_flags(&t->vocab, id) & VOCAB_ADDED) != 0;
    t->added = calloc((size_t)n_added + 1, sizeof *t->added);
    if (!t->added)
        return error_set(err, ERROR_RUNTIME, "out of memory for a tokenizer");
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        uint32_t flags = vocab_flags(&t->vocab, id);
        if (flags & VOCAB_ADDED)
            insert_added(t, (int32_t)id);
        if ((flags & VOCAB_ADDED) && is_eos(t, id))
            t->eos = (int32_t)id;
    }
    return 0;
}
