#include "cli/ckpt_tokenizer.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/dataset_list.h"
#include "data/dataset_meta.h"
#include "hf/hf_import.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define BYTES_ROUNDED 128 // what a vocabulary of bytes may be rounded up to

struct search {
    const char *path;
    const struct config *cfg;
    char name[PATH_MAX]; // "": not found yet
    const char *why;     // where it was found
};

/* -- where to look ---------------------------------------------------------------------
 */

static int look_beside(struct search *s, struct error *err)
{
    char dir[PATH_MAX];
    if (fs_join(dir, sizeof dir, s->path, "../" HF_TOKENIZER_DIR, err))
        return -1;
    if (!fs_is_directory(dir))
        return 0;
    snprintf(s->name, sizeof s->name, "%s", dir);
    s->why = "beside the checkpoint";
    return 0;
}

/* A dataset without a meta file, made by others, says nothing. */
static int look_at_dataset(struct search *s, const char *prefix, struct error *err)
{
    char path[PATH_MAX];
    struct dataset_meta meta;
    bool is_there;
    if (snprintf(path, sizeof path, "%s.meta.json", prefix) >= (int)sizeof path)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", prefix);
    if (dataset_meta_read(path, &meta, &is_there, err))
        return -1;
    if (!is_there || strcmp(meta.tokenizer, s->name) == 0)
        return 0;
    if (s->name[0])
        return error_set(err, ERROR_INPUT,
                         "the datasets of checkpoint '%s' were prepared with several "
                         "tokenizers, '%s' and '%s'; name one with --tokenizer",
                         s->path, s->name, meta.tokenizer);
    snprintf(s->name, sizeof s->name, "%s", meta.tokenizer);
    s->why = "of the data it was trained on";
    return 0;
}

/* Data that is not on this machine any more tells nothing, and is no error. */
static int look_at_data(struct search *s, struct error *err)
{
    const struct config_paths *inputs = &s->cfg->dataset.input_dir;
    struct error ignored;
    int rc = 0;
    for (int64_t i = 0; i < inputs->n_paths && rc == 0; i++) {
        struct dataset_list list = {0};
        if (dataset_list_find(&list, config_path_at(inputs, i), &ignored) == 0)
            for (int64_t j = 0; j < list.n_entries && rc == 0; j++)
                rc = look_at_dataset(s, list.entries[j].prefix, err);
        dataset_list_release(&list);
    }
    return rc;
}

/* -- opening ------------------------------------------------------------------------- */

static int refuse_unknown(const struct search *s, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "the tokenizer of checkpoint '%s' is not known, and its vocabulary "
                     "of %lld tokens is not the byte-level one: name it with --tokenizer "
                     "DIR",
                     s->path, (long long)s->cfg->model.vocab_size);
}

/* Of the sizes that a vocabulary of n tokens is rounded up to? */
static bool is_rounded(int64_t V, int64_t n)
{
    for (int64_t unit = 1; unit <= BYTES_ROUNDED; unit *= 2)
        if (V == i64_round_up(n, unit))
            return true;
    return false;
}

/* Bytes, if the vocabulary is theirs, rounded up or not: a guess, and said to be one. */
static int open_bytes(struct tokenizer **out, const struct search *s, bool is_optional,
                      struct error *err)
{
    int64_t V = s->cfg->model.vocab_size;
    if (tokenizer_open(out, TOKENIZER_BYTES, err))
        return -1;
    if (is_rounded(V, tokenizer_vocab_size(*out))) {
        log_warning(
            "the tokenizer of checkpoint '%s' is not known (the data it was trained "
            "on is not found from here); its vocabulary of %lld tokens looks like "
            "bytes, so bytes are taken. If that is wrong, name it with --tokenizer",
            s->path, (long long)V);
        return 0;
    }
    tokenizer_close(*out);
    *out = NULL;
    return is_optional ? 0 : refuse_unknown(s, err);
}

static int open_named(struct tokenizer **out, const struct search *s, const char *name,
                      struct error *err)
{
    if (tokenizer_open(out, name, err))
        return s->why ? error_prefix(err,
                                     "the tokenizer %s cannot be opened; name it with "
                                     "--tokenizer",
                                     s->why)
                      : -1;
    int64_t n = tokenizer_vocab_size(*out), V = s->cfg->model.vocab_size;
    if (n <= V)
        return 0;
    tokenizer_close(*out);
    *out = NULL;
    return error_set(err, ERROR_INPUT,
                     "the tokenizer '%s' has %lld tokens, but checkpoint '%s' only %lld: "
                     "name the tokenizer it was trained with",
                     name, (long long)n, s->path, (long long)V);
}

int ckpt_tokenizer_open(struct tokenizer **out, const char *given, const char *path,
                        const struct config *cfg, bool is_optional, struct error *err)
{
    struct search s = {.path = path, .cfg = cfg};
    *out = NULL;
    if (given)
        return open_named(out, &s, given, err);
    if (look_beside(&s, err) || (!s.name[0] && look_at_data(&s, err)))
        return -1;
    if (!s.name[0])
        return open_bytes(out, &s, is_optional, err);
    log_info("tokenizer: '%s', %s", s.name, s.why);
    return open_named(out, &s, s.name, err);
}
