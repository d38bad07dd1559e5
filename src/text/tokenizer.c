/*
 * Which files a name stands for, and what is known of a tokenizer once it is open.
 */
#include "text/tokenizer.h"

#include "base/fs.h"
#include "text/tokenizer_load.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FILE_MOST_BYTES ((size_t)1 << 30)

/* -- opening ------------------------------------------------------------------------- */

/* A vocabulary and its merges lie beside each other. */
static const struct pair_names {
    const char *vocab, *merges;
} pairs[] = {
    {"vocab.json", "merges.txt"},
    {"encoder.json", "vocab.bpe"},
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static int open_one(struct tokenizer *t, const char *path,
                    int (*load)(struct tokenizer *, const char *, size_t, struct error *),
                    struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    if (fs_read_regular(path, FILE_MOST_BYTES, &text, &n, err))
        return -1;
    int rc = load(t, text, n, err);
    if (rc)
        error_prefix(err, "the tokenizer '%s' cannot be used", path);
    free(text);
    return rc;
}

/* Vocabularies that are no byte-level BPE, by what only they have in them. */
static const struct foreign_mark {
    const char *mark, *what;
} foreign_marks[] = {
    {"\"[CLS]\"", "WordPiece, as BERT's"},
    {"\"##", "WordPiece, as BERT's"},
    {"\"\xe2\x96\x81", "SentencePiece, as Llama's or T5's"},
};

/* A vocabulary without its merges: say so, and what it seems to be of. */
static int refuse_half_pair(const char *vocab_path, const char *vocab,
                            const struct pair_names *pair, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(foreign_marks); i++)
        if (strstr(vocab, foreign_marks[i].mark))
            return error_set(err, ERROR_INPUT,
                             "'%s' is the vocabulary of another kind of tokenizer (%s); "
                             "only byte-level BPE, as GPT-2's, can be used",
                             vocab_path, foreign_marks[i].what);
    return error_set(err, ERROR_INPUT,
                     "'%s' has no '%s' beside it, which says how text becomes its "
                     "tokens; copy both",
                     vocab_path, pair->merges);
}

static int open_pair(struct tokenizer *t, const char *dir, const struct pair_names *pair,
                     struct error *err)
{
    char vocab_path[PATH_MAX], merges_path[PATH_MAX];
    char *vocab = NULL, *merges = NULL;
    size_t n_vocab = 0, n_merges = 0;
    int rc = -1;
    if (fs_join(vocab_path, sizeof vocab_path, dir, pair->vocab, err) ||
        fs_join(merges_path, sizeof merges_path, dir, pair->merges, err) ||
        fs_read_regular(vocab_path, FILE_MOST_BYTES, &vocab, &n_vocab, err))
        goto done;
    if (!fs_exists(merges_path)) {
        refuse_half_pair(vocab_path, vocab, pair, err);
        goto done;
    }
    if (fs_read_regular(merges_path, FILE_MOST_BYTES, &merges, &n_merges, err))
        goto done;
    rc = tokenizer_load_pair(t, vocab, n_vocab, merges, n_merges, err);
    if (rc)
        error_prefix(err, "the tokenizer '%s' with '%s' cannot be used", vocab_path,
                     pair->merges);
done:
    free(vocab);
    free(merges);
    return rc;
}

static int open_file(struct tokenizer *t, const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    char dir[PATH_MAX];
    size_t n_dir = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    if (n_dir >= sizeof dir)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", path);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)n_dir : 1, slash ? path : ".");
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (strcmp(base, pairs[i].vocab) == 0 || strcmp(base, pairs[i].merges) == 0)
            return open_pair(t, dir, &pairs[i], err);
    if (ends_with(base, ".tiktoken"))
        return open_one(t, path, tokenizer_load_ranks, err);
    if (ends_with(base, ".json"))
        return open_one(t, path, tokenizer_load_json, err);
    return error_set(err, ERROR_INPUT,
                     "'%s' is no tokenizer by its name; name a directory, or "
                     "tokenizer.json, vocab.json, encoder.json or *.tiktoken",
                     path);
}

/* Name the tokenizer of another kind that the directory has; false: none is known. */
static bool refuse_foreign(const char *dir, struct error *err)
{
    static const struct {
        const char *file, *what;
    } kinds[] = {
        {"vocab.txt", "WordPiece, as BERT's"},
        {"tokenizer.model", "SentencePiece, as Llama's"},
        {"spiece.model", "SentencePiece, as T5's"},
        {"sentencepiece.bpe.model", "SentencePiece"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char path[PATH_MAX];
        struct error ignored;
        if (fs_join(path, sizeof path, dir, kinds[i].file, &ignored) || !fs_exists(path))
            continue;
        error_set(err, ERROR_INPUT,
                  "'%s' is of another kind of tokenizer (%s); only byte-level BPE, as "
                  "GPT-2's, can be used",
                  path, kinds[i].what);
        return true;
    }
    return false;
}

/* What a message adds for a name that means GPT-2's tokenizer: none is built in. */
static const char *where_to_get(const char *name)
{
    return strstr(name, "gpt2") ? "; " TOKENIZER_GPT2_FILES : "";
}

/* The only *.tiktoken of a directory. */
static int open_ranks_in(struct tokenizer *t, const char *dir, struct error *err)
{
    struct fs_names names;
    char path[PATH_MAX];
    const char *found = NULL;
    int rc = -1;
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        if (!ends_with(names.names[i], ".tiktoken"))
            continue;
        if (found) {
            error_set(err, ERROR_INPUT,
                      "the directory '%s' has several tokenizers, '%s' and '%s'; name "
                      "the file",
                      dir, found, names.names[i]);
            goto done;
        }
        found = names.names[i];
    }
    if (!found && !refuse_foreign(dir, err))
        error_set(err, ERROR_INPUT,
                  "the directory '%s' has no tokenizer: neither tokenizer.json, nor "
                  "vocab.json with merges.txt, nor encoder.json with vocab.bpe, nor "
                  "*.tiktoken%s",
                  dir, where_to_get(dir));
    else if (found && fs_join(path, sizeof path, dir, found, err) == 0)
        rc = open_one(t, path, tokenizer_load_ranks, err);
done:
    fs_names_release(&names);
    return rc;
}

static int open_directory(struct tokenizer *t, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    enum fs_type type;
    if (fs_join(path, sizeof path, dir, "tokenizer.json", err) ||
        fs_look(path, &type, err))
        return -1;
    if (type != FS_NOTHING)
        return open_one(t, path, tokenizer_load_json, err);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (fs_join(path, sizeof path, dir, pairs[i].vocab, err) ||
            fs_look(path, &type, err))
            return -1;
        if (type != FS_NOTHING)
            return open_pair(t, dir, &pairs[i], err);
    }
    return open_ranks_in(t, dir, err);
}

int tokenizer_open(struct tokenizer **out, const char *name, struct error *err)
{
    struct tokenizer *t = NULL;
    enum fs_type type;
    int rc;
    *out = NULL;
    if (tokenizer_new(&t, name, err))
        return -1;
    if (strcmp(name, TOKENIZER_BYTES) == 0)
        rc = tokenizer_load_bytes(t, err);
    else if (fs_look(name, &type, err))
        rc = -1;
    else if (type == FS_DIRECTORY)
        rc = open_directory(t, name, err);
    else if (type == FS_NOTHING)
        rc = error_set(err, ERROR_INPUT,
                       "there is no tokenizer '%s'; name \"%s\", or a directory or "
                       "file%s",
                       name, TOKENIZER_BYTES, where_to_get(name));
    else
        rc = open_file(t, name, err);
    if (rc) {
        tokenizer_close(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_release(&t->vocab);
    merge_table_release(&t->merges);
    free(t->added);
    free(t->name);
    free(t);
}

/* -- facts --------------------------------------------------------------------------- */

const char *tokenizer_name(const struct tokenizer *t)
{
    return t->name;
}

int64_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.n_ids;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    return vocab_flags(&t->vocab, id) ? vocab_bytes(&t->vocab, id, n) : NULL;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return (vocab_flags(&t->vocab, id) & VOCAB_SPECIAL) != 0;
}

int64_t tokenizer_n_merges(const struct tokenizer *t)
{
    return t->merges.n;
}

void tokenizer_hash(const struct tokenizer *t, char hash[TOKENIZER_HASH_BYTES])
{
    XXH64_hash_t sum = 0;
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        if (!vocab_flags(&t->vocab, id))
            continue;
        size_t n;
        const char *bytes = vocab_bytes(&t->vocab, id, &n);
        int64_t head[] = {id, (int64_t)n};
        sum = XXH3_64bits_withSeed(head, sizeof head, sum);
        sum = XXH3_64bits_withSeed(bytes, n, sum);
    }
    snprintf(hash, TOKENIZER_HASH_BYTES, "%016llx", (unsigned long long)sum);
}

/* -- decoding ------------------------------------------------------------------------ */

size_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n,
                        char *out, size_t size)
{
    size_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_token_bytes(t, ids[i], &n_bytes);
        if (used < size && n_bytes > 0) {
            size_t space = size - used;
            memcpy(out + used, bytes, n_bytes < space ? n_bytes : space);
        }
        used += n_bytes;
    }
    return used;
}
