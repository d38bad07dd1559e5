/*
 * tokenizer.json describes many kinds of tokenizer. This one is read: byte-level BPE, cut
 * as GPT-2 does or not at all. Whatever else would change an id is refused by name; what
 * says how a model uses ids (truncation, padding, post_processor) is none of ours.
 */
#include "text/byte_level.h"
#include "text/tokenizer_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* tiktoken's way to write GPT-2's pattern, which cuts the same. */
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

/* -- how a text is cut --------------------------------------------------------------- */

static bool is_gpt2_pattern(const char *pattern)
{
    static const char *const known[] = {TOKENIZER_GPT2_PATTERN, PATTERN_OF_TIKTOKEN,
                                        PATTERN_OF_TIKTOKEN_OLD};
    for (size_t i = 0; pattern && i < ARRAY_LEN(known); i++)
        if (strcmp(pattern, known[i]) == 0)
            return true;
    return false;
}

/* {"type": "Split", "pattern": {"Regex": ...}, "behavior": "Isolated", "invert": false}
 */
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

/* -- what would change ids ----------------------------------------------------------- */

static int check_model(const json_t *model, struct error *err)
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
    return 0;
}

static int check_normalizer(const json_t *normalizer, struct error *err)
{
    if (is_absent(normalizer))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "its normalizer is '%.100s', which changes the text; only null is "
                     "supported",
                     type_of(normalizer));
}

/* -- tokens and merges --------------------------------------------------------------- */

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

static int read_added_tokens(struct tokenizer *t, const json_t *list, struct error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_added_token(t, json_array_get(list, i), err))
            return -1;
    return 0;
}

/* An entry of the vocabulary whose id an added token has: the same token, or a mistake.
 */
static int meet_added(struct tokenizer *t, int32_t id, const char *spelled,
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
        return error_set(err, ERROR_INPUT, "token '%.60s' has an id that is no number",
                         spelled);
    uint32_t flags = vocab_flags(&t->vocab, json_integer_value(id));
    if (flags & VOCAB_ADDED && !(flags & VOCAB_TEXT))
        return meet_added(t, (int32_t)json_integer_value(id), spelled, bytes, n, err);
    if (!is_spelled)
        return error_set(err, ERROR_INPUT,
                         "token '%.60s' has a character that stands for no byte, and is "
                         "no added token: this is no byte-level BPE",
                         spelled);
    return vocab_add(&t->vocab, json_integer_value(id), bytes, n, VOCAB_TEXT, err);
}

static int read_vocab(struct tokenizer *t, json_t *vocab, struct error *err)
{
    if (!json_is_object(vocab))
        return error_set(err, ERROR_INPUT, "its model has no vocab");
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        const char *spelled = json_object_iter_key(at);
        char *bytes = malloc(strlen(spelled) + 1);
        int rc = bytes ? read_entry(t, spelled, json_object_iter_value(at), bytes, err)
                       : error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
        free(bytes);
        if (rc)
            return -1;
    }
    return 0;
}

/* Merges come as "left right", or as ["left", "right"] from newer versions. */
static int read_merge(struct tokenizer *t, const json_t *merge, struct error *err)
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

static int read_merges(struct tokenizer *t, const json_t *merges, struct error *err)
{
    if (!json_is_array(merges))
        return error_set(err, ERROR_INPUT, "its model has no list of merges");
    for (size_t i = 0; i < json_array_size(merges); i++)
        if (read_merge(t, json_array_get(merges, i), err))
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
    if (!json_is_object(model)) {
        error_set(err, ERROR_INPUT,
                  "there is no \"model\" in it: it is no "
                  "tokenizer.json");
        goto done;
    }
    t->takes_whole_words = is_on(model, "ignore_merges", false);
    if (check_model(model, err) ||
        check_normalizer(json_object_get(root, "normalizer"), err) ||
        read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err) ||
        read_added_tokens(t, json_object_get(root, "added_tokens"), err) ||
        read_vocab(t, json_object_get(model, "vocab"), err) ||
        read_merges(t, json_object_get(model, "merges"), err))
        goto done;
    rc = tokenizer_finish(t, err);
done:
    json_decref(root);
    return rc;
}
