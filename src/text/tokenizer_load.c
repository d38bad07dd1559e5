/*
 * Three formats leave the same behind: a vocabulary, merges, and three switches. Whatever
 * a file asks for that would change an id and is not done here is refused by name.
 */
#include "text/tokenizer_load.h"

#include "base/grow.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
}

static int refuse_id(const char *spelled, struct error *err)
{
    return error_set(err, ERROR_INPUT, "token '%.60s' has an id that is no number",
                     spelled);
}

/* The line at *at, without its end, and *at moved past it; NULL: there are no more. */
static const char *next_line(const char **at, const char *end, size_t *n)
{
    const char *line = *at;
    if (line >= end)
        return NULL;
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    *at = newline ? newline + 1 : end;
    *n = (size_t)((newline ? newline : end) - line);
    if (*n > 0 && line[*n - 1] == '\r')
        --*n;
    return line;
}

/* -- tokenizer.json ------------------------------------------------------------------ */

/*
 * It describes many kinds of tokenizer. Supported is byte-level BPE, split as GPT-2 does
 * or not at all. Whatever else would change an id is refused by name; what says how a
 * model uses ids (truncation, padding, post_processor) is ignored.
 */

/* GPT-2's pattern, and tiktoken's ways to write it, which cut the same. */
#define PATTERN_OF_GPT2                                                                  \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PATTERN_OF_TIKTOKEN                                                              \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|"          \
    "\\s+(?!\\S)|\\s"
#define PATTERN_OF_TIKTOKEN_OLD                                                          \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : json_is_null(object) || !object ? "null" : "no type";
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

/* A switch; what is absent has its default. */
static bool is_on(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return is_absent(value) ? otherwise : json_is_true(value);
}

static bool is_gpt2_pattern(const char *pattern)
{
    static const char *const known[] = {PATTERN_OF_GPT2, PATTERN_OF_TIKTOKEN,
                                        PATTERN_OF_TIKTOKEN_OLD};
    for (size_t i = 0; pattern && i < ARRAY_LEN(known); i++)
        if (strcmp(pattern, known[i]) == 0)
            return true;
    return false;
}

// {"type": "Split", "pattern": {"Regex": ...}, "behavior": "Isolated", "invert": false}
static int read_split(const json_t *split, struct error *err)
{
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (!is_gpt2_pattern(regex))
        return error_set(err, ERROR_INPUT,
                         "its pre-tokenizer splits by '%.300s'; only the pattern of "
                         "GPT-2 is supported",
                         regex ? regex : "something that is no regular expression");
    if (!behavior || strcmp(behavior, "Isolated") != 0 || is_on(split, "invert", false))
        return error_set(err, ERROR_INPUT,
                         "its pre-tokenizer splits with behavior '%s'%s; only Isolated, "
                         "not inverted, is supported",
                         behavior ? behavior : "none",
                         is_on(split, "invert", false) ? ", inverted" : "");
    return 0;
}

/* A Split by GPT-2's pattern, then ByteLevel that splits no more. */
static int read_split_sequence(struct tokenizer *t, const json_t *split,
                               const json_t *byte_level, struct error *err)
{
    if (read_split(split, err))
        return -1;
    if (is_on(byte_level, "use_regex", true) ||
        is_on(byte_level, "add_prefix_space", true))
        return error_set(err, ERROR_INPUT,
                         "its pre-tokenizer is Split and then ByteLevel with use_regex "
                         "or add_prefix_space; only without both is it supported");
    t->is_cut_into_words = true;
    return 0;
}

static int read_byte_level(struct tokenizer *t, const json_t *byte_level,
                           struct error *err)
{
    if (strcmp(type_of(byte_level), "ByteLevel") != 0)
        return error_set(err, ERROR_INPUT,
                         "its pre-tokenizer is '%.100s'; only ByteLevel is supported",
                         type_of(byte_level));
    t->adds_prefix_space = is_on(byte_level, "add_prefix_space", true);
    t->is_cut_into_words = is_on(byte_level, "use_regex", true);
    return 0;
}

static int read_pre_tokenizer(struct tokenizer *t, const json_t *pre, struct error *err)
{
    if (strcmp(type_of(pre), "Sequence") != 0)
        return read_byte_level(t, pre, err);
    const json_t *list = json_object_get(pre, "pretokenizers");
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    if (json_array_size(list) == 1)
        return read_byte_level(t, first, err);
    if (json_array_size(list) == 2 && strcmp(type_of(first), "Split") == 0 &&
        strcmp(type_of(second), "ByteLevel") == 0)
        return read_split_sequence(t, first, second, err);
    return error_set(err, ERROR_INPUT,
                     "its pre-tokenizer is a sequence of %zu, '%.100s' first; only Split "
                     "and then ByteLevel is supported",
                     json_array_size(list), type_of(first));
}

/* What would change ids and is not done here. */
static int check_model(const json_t *model, const json_t *normalizer, struct error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const char *type = type_of(model);
    // files of the first versions name no type
    if (strcmp(type, "BPE") != 0 && json_object_get(model, "type"))
        return error_set(err, ERROR_INPUT,
                         "its model is '%.100s'; only byte-level BPE is supported", type);
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
        const json_t *affix = json_object_get(model, affixes[i]);
        if (!is_absent(affix) && json_string_length(affix) > 0)
            return error_set(err, ERROR_INPUT,
                             "its model has %s '%.50s', which is not supported",
                             affixes[i], json_string_value(affix));
    }
    if (json_number_value(json_object_get(model, "dropout")) > 0)
        return error_set(err, ERROR_INPUT,
                         "its model has dropout, so ids are drawn at random; set it to "
                         "null");
    if (!is_absent(normalizer))
        return error_set(err, ERROR_INPUT,
                         "its normalizer is '%.100s', which changes the text; only null "
                         "is supported",
                         type_of(normalizer));
    return 0;
}

static int read_added_token(struct tokenizer *t, const json_t *token, struct error *err)
{
    static const char *const unsupported[] = {"single_word", "lstrip", "rstrip"};
    const json_t *content = json_object_get(token, "content");
    const json_t *id = json_object_get(token, "id");
    if (!json_is_string(content) || !json_is_integer(id))
        return error_set(err, ERROR_INPUT, "an added token has no content or no id");
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++)
        if (is_on(token, unsupported[i], false))
            return error_set(err, ERROR_INPUT,
                             "the added token '%.60s' has %s, which is not supported",
                             json_string_value(content), unsupported[i]);
    uint32_t flags = VOCAB_ADDED;
    if (is_on(token, "special", false))
        flags |= VOCAB_SPECIAL;
    return vocab_add(&t->vocab, json_integer_value(id), json_string_value(content),
                     json_string_length(content), flags, err);
}

/* An entry of the vocabulary with the id of an added token: the same, or a mistake. */
static int check_added_entry(struct tokenizer *t, int32_t id, const char *spelled,
                             const char *bytes, size_t n_bytes, struct error *err)
{
    size_t n;
    const char *content = vocab_bytes(&t->vocab, id, &n);
    if (n != strlen(spelled) || memcmp(content, spelled, n) != 0)
        return error_set(err, ERROR_INPUT, "two tokens have the id %d, '%.60s' is one",
                         id, spelled);
    bool is_same = n == n_bytes && memcmp(content, bytes, n) == 0;
    return is_same ? vocab_make_text(&t->vocab, id, err) : 0;
}

static int read_entry(struct tokenizer *t, const char *spelled, const json_t *id,
                      char *bytes, struct error *err)
{
    size_t n = 0;
    bool is_spelled = byte_level_read(spelled, strlen(spelled), bytes, &n);
    if (!json_is_integer(id))
        return refuse_id(spelled, err);
    uint32_t flags = vocab_flags(&t->vocab, json_integer_value(id));
    if (flags & VOCAB_ADDED && !(flags & VOCAB_TEXT))
        return check_added_entry(t, (int32_t)json_integer_value(id), spelled, bytes, n,
                                 err);
    if (!is_spelled)
        return error_set(err, ERROR_INPUT,
                         "token '%.60s' has a character that stands for no byte, and is "
                         "no added token: this is no byte-level BPE",
                         spelled);
    return vocab_add(&t->vocab, json_integer_value(id), bytes, n, VOCAB_TEXT, err);
}

static int read_json_vocab(struct tokenizer *t, json_t *vocab, struct error *err)
{
    if (!json_is_object(vocab))
        return error_set(err, ERROR_INPUT, "its model has no vocab");
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        const char *spelled = json_object_iter_key(at);
        char *bytes = malloc(strlen(spelled) + 1);
        int rc = bytes ? read_entry(t, spelled, json_object_iter_value(at), bytes, err)
                       : no_memory(err);
        free(bytes);
        if (rc)
            return -1;
    }
    return 0;
}

/* Merges come as "left right", or as ["left", "right"] from newer versions. */
static int read_json_merge(struct tokenizer *t, const json_t *merge, struct error *err)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge))
        return tokenizer_add_merge_line(t, json_string_value(merge),
                                        json_string_length(merge), err);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return error_set(err, ERROR_INPUT, "merge %lld is no pair of tokens",
                         (long long)t->merges.n + 1);
    return tokenizer_add_merge(t, json_string_value(left), json_string_length(left),
                               json_string_value(right), json_string_length(right), err);
}

static int read_json_merges(struct tokenizer *t, const json_t *merges, struct error *err)
{
    if (!json_is_array(merges))
        return error_set(err, ERROR_INPUT, "its model has no list of merges");
    for (size_t i = 0; i < json_array_size(merges); i++)
        if (read_json_merge(t, json_array_get(merges, i), err))
            return -1;
    return 0;
}

int tokenizer_load_json(struct tokenizer *t, const char *text, size_t n,
                        struct error *err)
{
    json_error_t at;
    int rc = -1;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return error_set(err, ERROR_INPUT, "line %d, column %d: %s", at.line, at.column,
                         at.text);
    json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    if (!json_is_object(model)) {
        error_set(err, ERROR_INPUT,
                  "there is no \"model\" in it: it is no "
                  "tokenizer.json");
        goto done;
    }
    t->takes_whole_words = is_on(model, "ignore_merges", false);
    if (check_model(model, json_object_get(root, "normalizer"), err) ||
        read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err))
        goto done;
    for (size_t i = 0; i < json_array_size(added); i++)
        if (read_added_token(t, json_array_get(added, i), err))
            goto done;
    if (read_json_vocab(t, json_object_get(model, "vocab"), err) ||
        read_json_merges(t, json_object_get(model, "merges"), err))
        goto done;
    rc = tokenizer_finish(t, err);
done:
    json_decref(root);
    return rc;
}

/* -- vocab.json and merges.txt ------------------------------------------------------- */

/*
 * vocab.json holds all tokens, merges.txt says how text reaches them. Nothing marks the
 * special ones, but nothing needs to: a token that is no byte and that no merge makes can
 * come from no text.
 */
static int add_spelled(struct tokenizer *t, const char *spelled, const json_t *id,
                       struct error *err)
{
    size_t n = strlen(spelled), n_bytes = 0;
    char *bytes = malloc(n + 1);
    if (!bytes)
        return no_memory(err);
    int rc;
    if (!json_is_integer(id))
        rc = refuse_id(spelled, err);
    else if (byte_level_read(spelled, n, bytes, &n_bytes))
        rc =
            vocab_add(&t->vocab, json_integer_value(id), bytes, n_bytes, VOCAB_TEXT, err);
    else
        rc = vocab_add(&t->vocab, json_integer_value(id), spelled, n,
                       VOCAB_ADDED | VOCAB_SPECIAL, err);
    free(bytes);
    return rc;
}

static int read_pair_vocab(struct tokenizer *t, json_t *root, struct error *err)
{
    if (!json_is_object(root))
        return error_set(err, ERROR_INPUT, "the vocabulary is no JSON object");
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at))
        if (add_spelled(t, json_object_iter_key(at), json_object_iter_value(at), err))
            return -1;
    return 0;
}

/* Lines "left right", after a first line that may say a version. */
static int read_merge_lines(struct tokenizer *t, const char *text, size_t n,
                            struct error *err)
{
    static const char version[] = "#version";
    const char *at = text, *line;
    size_t n_line;
    while ((line = next_line(&at, text + n, &n_line)) != NULL) {
        bool is_version = line == text && n_line >= strlen(version) &&
                          memcmp(line, version, strlen(version)) == 0;
        bool is_last_and_empty = n_line == 0 && at == text + n;
        if (!is_version && !is_last_and_empty &&
            tokenizer_add_merge_line(t, line, n_line, err))
            return -1;
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

static int check_joined(const struct tokenizer *t, const bool *is_made, struct error *err)
{
    for (int64_t rank = 0; rank < t->merges.n; rank++) {
        const struct merge *m = &t->merges.list[rank];
        int32_t id = is_made[m->left] ? m->right : m->left;
        size_t n;
        if (is_made[id])
            continue;
        const char *bytes = vocab_bytes(&t->vocab, id, &n);
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
    if (read_pair_vocab(t, root, err) || read_merge_lines(t, merges, n_merges, err))
        goto done;
    is_made = calloc((size_t)t->vocab.n_ids + 1, sizeof *is_made);
    if (!is_made) {
        no_memory(err);
        goto done;
    }
    find_made(t, is_made);
    if (check_joined(t, is_made, err) || mark_special(t, root, is_made, err) ||
        tokenizer_check_words(t, err))
        goto done;
    rc = tokenizer_finish(t, err);
done:
    free(is_made);
    json_decref(root);
    return rc;
}

/* -- tiktoken's ranks ---------------------------------------------------------------- */

/*
 * tiktoken's files hold lines of "base64 rank" and no merges: there, any two neighbours
 * merge that make a token, the token of lowest rank first. The same ids come from a list
 * of merges, one per token, when each token is what its own bytes become: the merges of
 * lower ranks leave two parts of them, and these two make it. (A token can only form in a
 * text where no merge has crossed its ends, so there the same happened as in its bytes
 * alone.) A file where some token is not like that is refused.
 *
 * The files do not hold the end of a document either; it has the first id that is free,
 * as in GPT-2's (50256 after 0 to 50255) and its successor's.
 */
static int base64_digit(char c)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* `out` has n bytes. False when this is no base64. */
static bool base64_read(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t n_digits = n, used = 0;
    uint32_t bits = 0;
    if (n == 0 || n % 4 != 0)
        return false;
    while (n - n_digits < 2 && text[n_digits - 1] == '=')
        n_digits--;
    for (size_t i = 0; i < n_digits; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            out[used++] = (char)(uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *n_out = used;
    return true;
}

/* A number of at most 10 digits and nothing else; -1. */
static int64_t read_rank(const char *text, size_t n)
{
    int64_t rank = 0;
    if (n == 0 || n > 10)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        rank = rank * 10 + (text[i] - '0');
    }
    return rank;
}

/* `bytes` has n. */
static int read_rank_line(struct tokenizer *t, const char *line, size_t n, int64_t number,
                          char *bytes, struct error *err)
{
    const char *space = memchr(line, ' ', n);
    size_t n_text = space ? (size_t)(space - line) : n, n_bytes = 0;
    int64_t rank = space ? read_rank(space + 1, n - n_text - 1) : -1;
    if (rank < 0 || !base64_read(line, n_text, bytes, &n_bytes))
        return error_set(err, ERROR_INPUT,
                         "line %lld, '%.*s', is not a token in base64 and its rank",
                         (long long)number, (int)(n < 60 ? n : 60), line);
    if (vocab_add(&t->vocab, rank, bytes, n_bytes, VOCAB_TEXT, err))
        return error_prefix(err, "line %lld", (long long)number);
    return 0;
}

static int read_rank_lines(struct tokenizer *t, const char *text, size_t n,
                           struct error *err)
{
    const char *at = text, *line;
    size_t n_line;
    int rc = 0;
    char *bytes = malloc(n + 1); // enough for any line
    if (!bytes)
        return no_memory(err);
    for (int64_t number = 1;
         rc == 0 && (line = next_line(&at, text + n, &n_line)) != NULL; number++)
        if (n_line > 0 || at < text + n)
            rc = read_rank_line(t, line, n_line, number, bytes, err);
    free(bytes);
    return rc;
}

struct rank_scratch { // for the symbols of a token while they merge
    int32_t *ids;
    int64_t capacity;
    struct bpe_scratch scratch;
};

/* The merge that makes a token, given those of all lower ranks. */
static int recover_merge(struct tokenizer *t, int32_t id, struct rank_scratch *p,
                         struct error *err)
{
    size_t n;
    int64_t n_left;
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    if (n == 1)
        return 0;
    if (grow_array(&p->ids, &p->capacity, (int64_t)n, sizeof *p->ids))
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    int32_t *ids = p->ids;
    CHECK(ids, "token %d of %zu bytes", id, n);
    for (size_t i = 0; i < n; i++) {
        ids[i] = vocab_find(&t->vocab, bytes + i, 1);
        if (ids[i] < 0)
            return error_set(err, ERROR_INPUT,
                             "the byte 0x%02X of token %d is no token itself",
                             (uint8_t)bytes[i], id);
    }
    if (bpe_merge(&t->merges, &p->scratch, ids, (int64_t)n, &n_left, err))
        return -1;
    if (n_left != 2)
        return error_set(
            err, ERROR_INPUT,
            "the tokens of lower ranks leave %lld parts of token %d, '%.*s', "
            "not two: these are not the ranks of a BPE",
            (long long)n_left, id, (int)(n < 60 ? n : 60), bytes);
    return merge_table_add(&t->merges, ids[0], ids[1], id, err);
}

static int recover_merges(struct tokenizer *t, struct error *err)
{
    struct rank_scratch p = {0};
    int rc = 0;
    for (int64_t id = 0; id < t->vocab.n_ids && rc == 0; id++)
        if (vocab_flags(&t->vocab, id))
            rc = recover_merge(t, (int32_t)id, &p, err);
    free(p.ids);
    bpe_scratch_release(&p.scratch);
    return rc;
}

int tokenizer_load_ranks(struct tokenizer *t, const char *text, size_t n,
                         struct error *err)
{
    if (read_rank_lines(t, text, n, err) || recover_merges(t, err) ||
        tokenizer_check_words(t, err))
        return -1;
    int64_t eos = 0;
    while (vocab_flags(&t->vocab, eos))
        eos++;
    if (t->vocab.n_tokens > 0 && tokenizer_add_eos(t, eos, err))
        return -1;
    return tokenizer_finish(t, err);
}

/* -- no file ------------------------------------------------------------------------- */

int tokenizer_load_bytes(struct tokenizer *t, struct error *err)
{
    t->is_cut_into_words = false;
    for (int64_t byte = 0; byte < 256; byte++) {
        char c = (char)(uint8_t)byte;
        if (vocab_add(&t->vocab, byte, &c, 1, VOCAB_TEXT, err))
            return -1;
    }
    return tokenizer_add_eos(t, 256, err) || tokenizer_finish(t, err) ? -1 : 0;
}
