/*
 * The files of Hugging Face: tokenizer.json says everything, the others the same for
 * programs that are older.
 */
#include "text/tokenizer_save.h"

#include "base/fs.h"
#include "text/tokenizer_build.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MERGES_FIRST_LINE "#version: 0.2\n"

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the files of a tokenizer");
}

/* A token as files spell it: a text token in symbols, others as they are. *spelled is
 * malloc'ed, with a NUL. */
static int spell_token(const struct tokenizer *t, int64_t id, char **spelled,
                       size_t *n_spelled, struct error *err)
{
    size_t n;
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    char *out = malloc(BYTE_LEVEL_SYMBOL_BYTES * n + 1);
    if (!out)
        return no_memory(err);
    if (vocab_flags(&t->vocab, id) & VOCAB_TEXT) {
        *n_spelled = byte_level_spell(bytes, n, out);
    } else {
        memcpy(out, bytes, n);
        *n_spelled = n;
    }
    out[*n_spelled] = 0;
    *spelled = out;
    return 0;
}

/* -- JSON ---------------------------------------------------------------------------- */

/* {"token": id, ...} in the order of ids. */
static json_t *render_vocab(const struct tokenizer *t, struct error *err)
{
    json_t *vocab = json_object();
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        char *spelled = NULL;
        size_t n;
        if (!vocab_flags(&t->vocab, id))
            continue;
        if (spell_token(t, id, &spelled, &n, err))
            goto failed;
        bool is_twice = json_object_get(vocab, spelled) != NULL;
        if (is_twice)
            error_set(err, ERROR_INPUT,
                      "the tokenizer '%s' cannot be written: two of its tokens are "
                      "spelled '%.60s'",
                      t->name, spelled);
        else if (json_object_set_new(vocab, spelled, json_integer(id)))
            no_memory(err);
        bool is_there = !is_twice && json_object_get(vocab, spelled) != NULL;
        free(spelled);
        if (!is_there)
            goto failed;
    }
    return vocab;
failed:
    json_decref(vocab);
    return NULL;
}

/* "left right" of one merge; malloc'ed. NULL with *err. */
static char *render_merge(const struct tokenizer *t, int64_t rank, struct error *err)
{
    const struct merge *m = &t->merges.list[rank];
    char *left = NULL, *right = NULL, *line = NULL;
    size_t n;
    if (spell_token(t, m->left, &left, &n, err) == 0 &&
        spell_token(t, m->right, &right, &n, err) == 0 &&
        asprintf(&line, "%s %s", left, right) < 0) { // symbols are never NUL
        line = NULL;
        no_memory(err);
    }
    free(left);
    free(right);
    return line;
}

static json_t *render_merges(const struct tokenizer *t, struct error *err)
{
    json_t *list = json_array();
    for (int64_t rank = 0; rank < t->merges.n; rank++) {
        char *line = render_merge(t, rank, err);
        int rc = line ? json_array_append_new(list, json_string(line)) : -1;
        if (line && rc)
            no_memory(err);
        free(line);
        if (rc) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *render_added(const struct tokenizer *t)
{
    json_t *list = json_array();
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        uint32_t flags = vocab_flags(&t->vocab, id);
        size_t n;
        if (!(flags & VOCAB_ADDED))
            continue;
        const char *content = vocab_bytes(&t->vocab, id, &n);
        json_array_append_new(list, json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}",
                                              "id", (json_int_t)id, "content", content, n,
                                              "single_word", 0, "lstrip", 0, "rstrip", 0,
                                              "normalized", 0, "special",
                                              (flags & VOCAB_SPECIAL) != 0));
    }
    return list;
}

/* An object of tokenizer.json that is ByteLevel. */
static json_t *render_byte_level(const struct tokenizer *t)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                     t->adds_prefix_space, "trim_offsets", 1, "use_regex",
                     t->is_cut_into_words);
}

static json_t *render_model(const struct tokenizer *t, struct error *err)
{
    json_t *vocab = render_vocab(t, err);
    json_t *merges = vocab ? render_merges(t, err) : NULL;
    if (!merges) {
        json_decref(vocab);
        return NULL;
    }
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}",
                              "type", "BPE", "dropout", "unk_token",
                              "continuing_subword_prefix", "end_of_word_suffix",
                              "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                              t->takes_whole_words, "vocab", vocab, "merges", merges);
    if (!model)
        no_memory(err);
    return model;
}

/* -- files --------------------------------------------------------------------------- */

/* Takes `root`; NULL is what a rendering without memory gave. */
static int write_json(const char *dir, const char *name, json_t *root, size_t flags,
                      struct error *err)
{
    char path[PATH_MAX];
    char *text = root ? json_dumps(root, flags) : NULL;
    int rc = -1;
    if (!text)
        no_memory(err);
    else if (fs_join(path, sizeof path, dir, name, err) == 0)
        rc = fs_write_atomic(path, text, strlen(text), err);
    free(text);
    json_decref(root);
    return rc;
}

static int write_tokenizer_json(const struct tokenizer *t, const char *dir,
                                struct error *err)
{
    json_t *model = render_model(t, err);
    if (!model)
        return -1;
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                  "truncation", "padding", "added_tokens", render_added(t), "normalizer",
                  "pre_tokenizer", render_byte_level(t), "post_processor",
                  render_byte_level(t), "decoder", render_byte_level(t), "model", model);
    return write_json(dir, "tokenizer.json", root, JSON_INDENT(2), err);
}

static int write_merges(const struct tokenizer *t, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    int rc = out ? 0 : no_memory(err);
    if (out)
        fputs(MERGES_FIRST_LINE, out);
    for (int64_t rank = 0; rank < t->merges.n && rc == 0; rank++) {
        char *line = render_merge(t, rank, err);
        rc = line ? 0 : -1;
        if (line)
            fprintf(out, "%s\n", line);
        free(line);
    }
    if (out && fclose(out) && rc == 0)
        rc = no_memory(err);
    if (rc == 0)
        rc = fs_join(path, sizeof path, dir, "merges.txt", err);
    if (rc == 0)
        rc = fs_write_atomic(path, text, n, err);
    free(text);
    return rc;
}

/* {"bos_token": ..., "eos_token": ..., "unk_token": ...}, GPT-2's one for all three. */
static json_t *render_roles(const struct tokenizer *t)
{
    if (t->eos < 0)
        return json_object();
    return json_pack("{s:s, s:s, s:s}", "bos_token", TOKENIZER_EOS_TEXT, "eos_token",
                     TOKENIZER_EOS_TEXT, "unk_token", TOKENIZER_EOS_TEXT);
}

static json_t *render_config(const struct tokenizer *t)
{
    json_t *config = render_roles(t);
    json_object_set_new(config, "add_prefix_space", json_boolean(t->adds_prefix_space));
    json_object_set_new(config, "tokenizer_class", json_string("GPT2Tokenizer"));
    return config;
}

int tokenizer_save(const struct tokenizer *t, const char *dir, struct error *err)
{
    json_t *vocab = render_vocab(t, err);
    if (!vocab || write_json(dir, "vocab.json", vocab, JSON_COMPACT, err) ||
        write_merges(t, dir, err) ||
        write_json(dir, "special_tokens_map.json", render_roles(t), JSON_INDENT(2),
                   err) ||
        write_json(dir, "tokenizer_config.json", render_config(t), JSON_INDENT(2), err))
        return -1;
    return write_tokenizer_json(t, dir, err); // the one that is looked for first
}
