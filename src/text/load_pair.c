/*
 * vocab.json holds all tokens, merges.txt says how text reaches them. Nothing marks the
 * special ones, but nothing needs to: a token that is no byte and that no merge makes can
 * come from no text.
 */
#include "text/byte_level.h"
#include "text/tokenizer_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int add_token(struct tokenizer *t, const char *spelled, const json_t *id,
                     struct error *err)
{
    size_t n = strlen(spelled), n_bytes = 0;
    char *bytes = malloc(n + 1);
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    int rc;
    if (!json_is_integer(id))
        rc = error_set(err, ERROR_INPUT, "token '%.60s' has an id that is no number",
                       spelled);
    else if (byte_level_read(spelled, n, bytes, &n_bytes))
        rc =
            vocab_add(&t->vocab, json_integer_value(id), bytes, n_bytes, VOCAB_TEXT, err);
    else
        rc = vocab_add(&t->vocab, json_integer_value(id), spelled, n,
                       VOCAB_ADDED | VOCAB_SPECIAL, err);
    free(bytes);
    return rc;
}

static int read_vocab(struct tokenizer *t, json_t *root, struct error *err)
{
    if (!json_is_object(root))
        return error_set(err, ERROR_INPUT, "the vocabulary is no JSON object");
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at))
        if (add_token(t, json_object_iter_key(at), json_object_iter_value(at), err))
            return -1;
    return 0;
}

/* Lines "left right", after a first line that may say a version. */
static int read_merges(struct tokenizer *t, const char *text, size_t n, struct error *err)
{
    static const char version[] = "#version";
    const char *end = text + n;
    for (const char *line = text; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline ? newline + 1 : end;
        size_t n_line = (size_t)((newline ? newline : end) - line);
        if (n_line > 0 && line[n_line - 1] == '\r')
            n_line--;
        bool is_version = line == text && n_line >= strlen(version) &&
                          memcmp(line, version, strlen(version)) == 0;
        bool is_last_and_empty = n_line == 0 && next == end;
        if (!is_version && !is_last_and_empty &&
            tokenizer_add_merge_line(t, line, n_line, err))
            return -1;
        line = next;
    }
    return 0;
}

/* is_made[id] := a byte, or what a merge makes. */
static void find_made(const struct tokenizer *t, bool *is_made)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)(uint8_t)byte;
        int32_t id = vocab_find(&t->vocab, &c, 1);
        if (id >= 0)
            is_made[id] = true;
    }
    for (int64_t rank = 0; rank < t->merges.n; rank++)
        is_made[t->merges.list[rank].merged] = true;
}

static int check_parts(const struct tokenizer *t, const bool *is_made, struct error *err)
{
    for (int64_t rank = 0; rank < t->merges.n; rank++) {
        const struct merge *m = &t->merges.list[rank];
        int32_t part = is_made[m->left] ? m->right : m->left;
        size_t n;
        if (is_made[part])
            continue;
        const char *bytes = vocab_bytes(&t->vocab, part, &n);
        return error_set(err, ERROR_INPUT,
                         "merge %lld joins '%.*s', which is neither a byte nor made by "
                         "a merge: this is no byte-level BPE",
                         (long long)rank + 1, (int)(n < 60 ? n : 60), bytes);
    }
    return 0;
}

static int mark_special(struct tokenizer *t, json_t *root, const bool *is_made,
                        struct error *err)
{
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *spelled = json_object_iter_key(at);
        int32_t id = (int32_t)json_integer_value(json_object_iter_value(at));
        if (!is_made[id] && vocab_change(&t->vocab, id, spelled, strlen(spelled),
                                         VOCAB_ADDED | VOCAB_SPECIAL, err))
            return -1;
    }
    return 0;
}

int tokenizer_load_pair(struct tokenizer *t, const char *vocab, size_t n_vocab,
                        const char *merges, size_t n_merges, struct error *err)
{
    json_error_t at;
    int rc = -1;
    bool *is_made = NULL;
    json_t *root = json_loadb(vocab, n_vocab, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return error_set(err, ERROR_INPUT, "the vocabulary, line %d, column %d: %s",
                         at.line, at.column, at.text);
    if (read_vocab(t, root, err) || read_merges(t, merges, n_merges, err))
        goto done;
    is_made = calloc((size_t)t->vocab.n_ids + 1, sizeof *is_made);
    if (!is_made) {
        error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
        goto done;
    }
    find_made(t, is_made);
    if (check_parts(t, is_made, err) || mark_special(t, root, is_made, err) ||
        tokenizer_check_words(t, err))
        goto done;
    rc = tokenizer_finish(t, err);
done:
    free(is_made);
    json_decref(root);
    return rc;
}
