/*
 * trefoil inspect - what a dataset, a checkpoint or a tokenizer holds.
 *
 * A directory may hold several kinds of things: all of them are reported. A file is what
 * its name says it is, and anything else is taken for the prefix of a dataset.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_store.h"
#include "cli/cmd.h"
#include "cli/inspect_tensors.h"
#include "cli/options.h"
#include "cli/report.h"
#include "data/formats/dataset_list.h"
#include "text/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SAMPLES 1000
#define MOST_TOKENS 100000
#define MOST_SPECIALS 64 // special tokens that are listed

struct inspect_options {
    const char *path;
    bool is_json;
    const char *tokenizer; // decodes samples; NULL: the one the dataset names
    int64_t n_samples;     // documents shown of a dataset, tokens of a tokenizer
    int64_t n_tokens;      // shown of a document
    bool verifies;         // reads every byte of a checkpoint
};

/* -- datasets ------------------------------------------------------------------------ */

static int64_t document_start(const struct dataset *d, int64_t doc)
{
    return doc == 0 ? 0 : d->document_ends[doc - 1];
}

static int64_t document_tokens(const struct dataset *d, int64_t doc)
{
    return d->document_ends[doc] - document_start(d, doc);
}

static json_t *describe_lengths(const struct dataset *d)
{
    int64_t least = INT64_MAX, most = 0, n_empty = 0;
    for (int64_t doc = 0; doc < d->n_documents; doc++) {
        int64_t n = document_tokens(d, doc);
        least = i64_min(least, n);
        most = i64_max(most, n);
        n_empty += n == 0;
    }
    json_t *lengths = json_object();
    report_set_int(lengths, "least", d->n_documents ? least : 0);
    report_set(
        lengths, "mean",
        json_real(d->n_documents ? (double)d->n_tokens / (double)d->n_documents : 0.0));
    report_set_int(lengths, "most", most);
    report_set_int(lengths, "empty_documents", n_empty);
    return lengths;
}

static json_t *describe_meta(const struct dataset_meta *meta)
{
    json_t *object = json_object();
    report_set_text(object, "tokenizer", meta->tokenizer);
    report_set_int(object, "vocab_size", meta->vocab_size);
    report_set_int(object, "eos_token_id", meta->eos_token_id);
    return object;
}

/* The largest id, by reading all tokens; a negative one is the largest as unsigned. */
static int add_largest_id(json_t *object, const struct dataset *d, struct error *err)
{
    uint64_t max;
    log_status("reading '%s'", d->data_path);
    int rc = dataset_max_token(d, &max, err);
    log_status_clear();
    if (rc)
        return -1;
    if (max > INT64_MAX) {
        report_set(object, "largest_id", json_null());
        report_note(object,
                    "there are negative ids, %lld for one: no model can train "
                    "on this dataset",
                    (long long)max);
        return 0;
    }
    report_set(object, "largest_id",
               d->n_tokens ? json_integer((json_int_t)max) : json_null());
    if (d->has_meta && d->n_tokens && max >= (uint64_t)d->meta.vocab_size)
        report_note(object, "the largest id is not below the vocab_size of .meta.json");
    return 0;
}

/* -- samples ------------------------------------------------------------------------- */

/* NULL in *t when the dataset names no tokenizer, or one that cannot be opened. */
static int open_dataset_tokenizer(json_t *object, const struct dataset *d,
                                  const struct inspect_options *opt, struct tokenizer **t,
                                  struct error *err)
{
    struct error why;
    *t = NULL;
    if (opt->tokenizer)
        return tokenizer_open(t, opt->tokenizer, err);
    if (!d->has_meta)
        report_note(object, "no .meta.json names the tokenizer; --tokenizer decodes");
    else if (tokenizer_open(t, d->meta.tokenizer, &why))
        report_note(object, "not decoded: %s; --tokenizer names another", why.text);
    return 0;
}

static json_t *decode_sample(const struct tokenizer *t, const int32_t *ids, int64_t n)
{
    size_t n_bytes = tokenizer_decode(t, ids, n, NULL, 0);
    char *bytes = malloc(n_bytes + 1);
    CHECK(bytes, "out of memory");
    tokenizer_decode(t, ids, n, bytes, n_bytes);
    json_t *text = report_text(bytes, n_bytes);
    free(bytes);
    return text;
}

static json_t *list_ids(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        report_append(list, json_integer(ids[i]));
    return list;
}

static int add_sample_documents(json_t *object, const struct dataset *d,
                                const struct inspect_options *opt, struct error *err)
{
    struct tokenizer *t = NULL;
    int64_t n_samples = i64_min(opt->n_samples, d->n_documents);
    int32_t *ids = malloc((size_t)opt->n_tokens * sizeof *ids + 1);
    json_t *samples = json_array();
    int rc = -1;
    report_set(object, "samples", samples);
    if (!ids) {
        error_set(err, ERROR_RUNTIME, "no memory for %lld tokens",
                  (long long)opt->n_tokens);
        goto done;
    }
    if (n_samples > 0 && open_dataset_tokenizer(object, d, opt, &t, err))
        goto done;
    for (int64_t i = 0; i < n_samples; i++) {
        // spread evenly; the product is kept small by dividing first
        int64_t doc =
            d->n_documents / n_samples * i + d->n_documents % n_samples * i / n_samples;
        int64_t n = i64_min(opt->n_tokens, document_tokens(d, doc));
        if (dataset_read(d, document_start(d, doc), n, ids, err))
            goto done;
        json_t *sample = json_object();
        report_set_int(sample, "document", doc);
        report_set_int(sample, "tokens", document_tokens(d, doc));
        report_set_int(sample, "shown", n);
        report_set(sample, t ? "text" : "ids",
                   t ? decode_sample(t, ids, n) : list_ids(ids, n));
        report_append(samples, sample);
    }
    rc = 0;
done:
    tokenizer_close(t);
    free(ids);
    return rc;
}

/* -- one dataset --------------------------------------------------------------------- */

static json_t *describe_dataset(const struct dataset *d,
                                const struct inspect_options *opt, struct error *err)
{
    json_t *object = json_object();
    bool has_two_files = strcmp(d->data_path, d->index_path) != 0;
    report_set_text(object, "data_file", d->data_path);
    report_set_text(object, "index_file", d->index_path);
    report_set(object, "format", json_string(dataset_formats[d->format].name));
    report_set_int(object, "bytes",
                   d->data_stat.st_size + (has_two_files ? d->index_stat.st_size : 0));
    report_set_int(object, "documents", d->n_documents);
    report_set_int(object, "tokens", d->n_tokens);
    report_set(object, "token_type", json_string(disk_int_name(d->type)));
    report_set(object, "document_tokens", describe_lengths(d));
    report_set(object, "meta", d->has_meta ? describe_meta(&d->meta) : json_null());
    if (add_largest_id(object, d, err) == 0 &&
        add_sample_documents(object, d, opt, err) == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* An array of the datasets that `input` means, by the rules of data/samples/corpus.h. */
static json_t *inspect_datasets(const char *input, const struct inspect_options *opt,
                                struct error *err)
{
    struct dataset_list list;
    json_t *datasets = json_array();
    int rc = -1;
    if (dataset_list_find(&list, input, err))
        goto done;
    for (int64_t i = 0; i < list.n_entries; i++) {
        struct dataset d;
        if (dataset_open(&d, list.entries[i].prefix, list.entries[i].format, err))
            goto done;
        json_t *object = describe_dataset(&d, opt, err);
        dataset_close(&d);
        if (!object)
            goto done;
        report_append(datasets, object);
    }
    rc = 0;
done:
    dataset_list_release(&list);
    if (rc) {
        json_decref(datasets);
        return NULL;
    }
    return datasets;
}

/* -- tokenizers ---------------------------------------------------------------------- */

static json_t *describe_token(const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *bytes = tokenizer_token_bytes(t, id, &n);
    json_t *object = json_object();
    report_set_int(object, "id", id);
    report_set_int(object, "bytes", (int64_t)n);
    report_set(object, "text", report_text(bytes ? bytes : "", n));
    return object;
}

/* Counts over all ids; special tokens are listed on the way. */
static void count_tokens(json_t *object, const struct tokenizer *t)
{
    int64_t n_tokens = 0, n_special = 0, longest = -1;
    size_t most = 0, n;
    json_t *specials = json_array();
    for (int64_t id = 0; id < tokenizer_vocab_size(t); id++) {
        if (!tokenizer_token_bytes(t, (int32_t)id, &n))
            continue;
        bool is_special = tokenizer_is_special(t, (int32_t)id);
        n_tokens++;
        n_special += is_special;
        if (is_special && n_special <= MOST_SPECIALS)
            report_append(specials, describe_token(t, (int32_t)id));
        if (!is_special && n > most) {
            most = n;
            longest = id;
        }
    }
    report_set_int(object, "tokens", n_tokens);
    report_set_int(object, "merges", tokenizer_n_merges(t));
    report_set_int(object, "special_tokens", n_special);
    report_set(object, "eos_token_id",
               tokenizer_eos(t) >= 0 ? json_integer(tokenizer_eos(t)) : json_null());
    report_set(object, "specials", specials);
    if (longest >= 0) {
        json_t *rows = json_array();
        report_append(rows, describe_token(t, (int32_t)longest));
        report_set(object, "longest", rows);
    }
    if (n_special > MOST_SPECIALS)
        report_note(object, "only the first %d special tokens are listed", MOST_SPECIALS);
    if (tokenizer_eos(t) < 0)
        report_note(object, "no token ends a document");
}

/* A few tokens spread over the vocabulary; where an id is no token, the next one. */
static void add_sample_tokens(json_t *object, const struct tokenizer *t,
                              int64_t n_samples)
{
    json_t *samples = json_array();
    int64_t V = tokenizer_vocab_size(t), next = 0;
    n_samples = i64_min(n_samples, V);
    for (int64_t i = 0; i < n_samples; i++) {
        size_t n;
        int64_t id = i64_max(next, V / n_samples * i + V % n_samples * i / n_samples);
        while (id < V && !tokenizer_token_bytes(t, (int32_t)id, &n))
            id++;
        if (id == V)
            break;
        report_append(samples, describe_token(t, (int32_t)id));
        next = id + 1;
    }
    report_set(object, "samples", samples);
}

/* The tokenizer that `name` means to tokenizer_open(). */
static json_t *inspect_tokenizer(const char *name, const struct inspect_options *opt,
                                 struct error *err)
{
    struct tokenizer *t;
    if (tokenizer_open(&t, name, err))
        return NULL;
    json_t *object = json_object();
    report_set_text(object, "name", name);
    report_set_int(object, "vocab_size", tokenizer_vocab_size(t));
    count_tokens(object, t);
    add_sample_tokens(object, t, opt->n_samples);
    tokenizer_close(t);
    return object;
}

/* -- what a path names --------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Does a file of this name describe a tokenizer, alone or with another beside it? */
static bool is_tokenizer_file(const char *name)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt",
                                        "encoder.json", "vocab.bpe"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return text_ends_with(name, ".tiktoken");
}

/* report[key] := value, unless that failed. */
static int report_add(json_t *report, const char *key, json_t *value)
{
    if (!value)
        return -1;
    report_set(report, key, value);
    return 0;
}

/* -- a directory --------------------------------------------------------------------- */

struct findings {
    int64_t n_checkpoints; // the one that was named, or those below a directory
    int64_t n_damaged;     // of them
};

struct contents { // which kinds a directory holds, going by names alone
    bool has_manifest, has_tensors, has_moments, has_tokenizer, has_datasets;
};

static int list_contents(struct contents *c, const char *dir, struct error *err)
{
    struct fs_names names;
    *c = (struct contents){0};
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        const char *name = names.names[i];
        c->has_manifest |= strcmp(name, CKPT_MANIFEST_NAME) == 0;
        c->has_tensors |= text_ends_with(name, ".safetensors");
        c->has_moments |= text_ends_with(name, ".safetensors") &&
                          strncmp(name, "optimizer", strlen("optimizer")) == 0;
        c->has_tokenizer |= is_tokenizer_file(name);
        c->has_datasets |= dataset_list_is_file(name);
    }
    fs_names_release(&names);
    return 0;
}

/* The files of tensors in a directory that is no checkpoint of ours. */
static int add_tensor_files(json_t *report, const char *dir, struct error *err)
{
    struct fs_names names;
    int rc = 0;
    if (fs_list(dir, &names, err))
        return -1;
    json_t *files = json_array();
    report_set(report, "tensor_files", files);
    for (int64_t i = 0; i < names.n_names && rc == 0; i++) {
        char path[PATH_MAX];
        if (!text_ends_with(names.names[i], ".safetensors"))
            continue;
        rc = fs_join(path, sizeof path, dir, names.names[i], err);
        json_t *file = rc ? NULL : inspect_safetensors(path, err);
        rc = file ? 0 : -1;
        if (file)
            report_append(files, file);
    }
    fs_names_release(&names);
    return rc;
}

/* All checkpoints of an output_dir, and the newest one that is not damaged. */
static int add_checkpoints(json_t *report, const char *dir,
                           const struct inspect_options *opt, struct findings *found,
                           struct error *err)
{
    json_t *rows, *newest;
    int rc =
        inspect_checkpoints(dir, opt->verifies, &rows, &newest, &found->n_damaged, err);
    bool has_any = json_array_size(rows) > 0;
    found->n_checkpoints = (int64_t)json_array_size(rows);
    if (has_any && !newest)
        report_note(report, "no checkpoint in '%s' is whole", dir);
    if (has_any)
        report_set(report, "checkpoints", json_incref(rows));
    if (newest)
        report_set(report, "checkpoint", json_incref(newest));
    json_decref(newest);
    json_decref(rows);
    return rc;
}

/* Is `dir` a checkpoint, with or without the manifest it should have? */
static bool is_checkpoint(const char *dir, const struct contents *c)
{
    struct ckpt_name name;
    char text[PATH_MAX];
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    snprintf(text, sizeof text, "%.*s", (int)n, dir);
    return c->has_manifest || c->has_moments || ckpt_name_parse(base_name(text), &name);
}

static int inspect_directory(json_t *report, const char *dir,
                             const struct inspect_options *opt, struct findings *found,
                             struct error *err)
{
    struct contents c;
    if (list_contents(&c, dir, err))
        return -1;
    bool is_one = is_checkpoint(dir, &c);
    if (!is_one && add_checkpoints(report, dir, opt, found, err))
        return -1;
    bool is_other = is_one || found->n_checkpoints || c.has_tensors || c.has_tokenizer;
    if (!is_other && !c.has_datasets)
        return error_set(err, ERROR_INPUT,
                         "nothing to inspect in the directory '%s': it has no dataset "
                         "(X.bin + X.idx, X_ids.npy + X_idx.npz), no checkpoint "
                         "(" CKPT_MANIFEST_NAME ", *.safetensors) and no tokenizer",
                         dir);
    if (c.has_datasets) {
        // an unrelated .bin beside a tokenizer does not hide the tokenizer
        struct error why;
        json_t *datasets = inspect_datasets(dir, opt, is_other ? &why : err);
        if (!datasets && !is_other)
            return -1;
        if (datasets)
            report_set(report, "datasets", datasets);
        else
            report_note(report, "%s", why.text);
    }
    if (is_one &&
        report_add(report, "checkpoint", inspect_checkpoint(dir, opt->verifies, err)))
        return -1;
    found->n_checkpoints += is_one;
    if (c.has_tensors && !is_one && add_tensor_files(report, dir, err))
        return -1;
    if (c.has_tokenizer)
        return report_add(report, "tokenizer", inspect_tokenizer(dir, opt, err));
    return 0;
}

/* -- a file or a prefix -------------------------------------------------------------- */

/* `path` without its last component, "." when it has one only. */
static int parent_of(const char *path, char dir[PATH_MAX], struct error *err)
{
    int n = (int)(base_name(path) - path);
    if (n > 1) // the slash is not part of the name, but for the root's
        n--;
    if (snprintf(dir, PATH_MAX, "%.*s", n ? n : 1, n ? path : ".") >= PATH_MAX)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", path);
    return 0;
}

static int inspect_file(json_t *report, const char *path,
                        const struct inspect_options *opt, struct findings *found,
                        struct error *err)
{
    static const char meta_suffix[] = ".meta.json";
    const char *name = base_name(path);
    char other[PATH_MAX];
    if (text_ends_with(name, ".safetensors"))
        return report_add(report, "tensor_file", inspect_safetensors(path, err));
    if (text_ends_with(name, ".gguf"))
        return report_add(report, "gguf_file", inspect_gguf(path, err));
    if (strcmp(name, CKPT_MANIFEST_NAME) == 0) {
        found->n_checkpoints = 1;
        return parent_of(path, other, err)
                   ? -1
                   : report_add(report, "checkpoint",
                                inspect_checkpoint(other, opt->verifies, err));
    }
    // of a pair the half with the merges does not stand for the whole: the directory does
    bool is_merges = strcmp(name, "merges.txt") == 0 || strcmp(name, "vocab.bpe") == 0;
    if (is_tokenizer_file(name)) {
        if (is_merges && parent_of(path, other, err))
            return -1;
        return report_add(report, "tokenizer",
                          inspect_tokenizer(is_merges ? other : path, opt, err));
    }
    if (text_ends_with(name, meta_suffix)) {
        snprintf(other, sizeof other, "%.*s", (int)(strlen(path) - strlen(meta_suffix)),
                 path);
        return report_add(report, "datasets", inspect_datasets(other, opt, err));
    }
    if (fs_exists(path) && !dataset_list_is_file(name))
        return error_set(
            err, ERROR_INPUT,
            "'%s' is not known by its name: name a dataset (a directory, a "
            "prefix X, X.bin, X.idx, X_ids.npy, X_idx.npz), a checkpoint "
            "(its directory, *.safetensors), *.gguf or a tokenizer (its directory, "
            "tokenizer.json, vocab.json, encoder.json, *.tiktoken)",
            path);
    return report_add(report, "datasets", inspect_datasets(path, opt, err));
}

/* -- the command --------------------------------------------------------------------- */

static int check_options(const struct inspect_options *opt, struct error *err)
{
    if (opt->n_samples < 0 || opt->n_samples > MOST_SAMPLES)
        return error_set(err, ERROR_INPUT, "--samples must lie in 0..%d; it is %lld",
                         MOST_SAMPLES, (long long)opt->n_samples);
    if (opt->n_tokens < 1 || opt->n_tokens > MOST_TOKENS)
        return error_set(err, ERROR_INPUT, "--tokens must lie in 1..%d; it is %lld",
                         MOST_TOKENS, (long long)opt->n_tokens);
    return 0;
}

static int run_inspect(void *context, struct error *err)
{
    const struct inspect_options *opt = context;
    const char *path = opt->path;
    int rc = -1;
    struct findings found = {.n_damaged = 0};
    enum fs_type type;
    json_t *report = json_object();
    report_set_text(report, "path", path);
    if (check_options(opt, err) || fs_look(path, &type, err) ||
        (type == FS_DIRECTORY ? inspect_directory(report, path, opt, &found, err)
                              : inspect_file(report, path, opt, &found, err)))
        goto done;
    if (opt->verifies && found.n_checkpoints == 0) {
        error_set(err, ERROR_INPUT,
                  "there is nothing to --verify: '%s' is no checkpoint and holds none",
                  path);
        goto done;
    }
    if (opt->is_json) {
        json_dumpf(report, stdout, JSON_INDENT(1));
        putchar('\n');
    } else {
        report_print(report, stdout);
    }
    if (print_check("the report", err))
        goto done;
    if (opt->verifies && found.n_damaged > 0) {
        error_set(err, ERROR_INPUT, "%lld of the %lld checkpoints in '%s' %s damaged",
                  (long long)found.n_damaged, (long long)found.n_checkpoints, path,
                  found.n_damaged == 1 ? "is" : "are");
        goto done;
    }
    rc = 0;
done:
    json_decref(report);
    return rc;
}

int cmd_inspect(int argc, char **argv)
{
    struct inspect_options opt = {.n_samples = 3, .n_tokens = 48};
    // clang-format off
    const struct option_spec specs[] = {
        {"path", 0, OPTION_OPERAND, &opt.path, true, "PATH",
         "A file, a directory, or the prefix of a dataset."},
        {"json", 0, OPTION_FLAG, &opt.is_json, false, NULL,
         "Print one JSON object instead, for other programs."},
        {"verify", 0, OPTION_FLAG, &opt.verifies, false, NULL,
         "Read every byte of the checkpoints and compare hashes; a damaged one is reported, "
         "and the exit code is not 0."},
        {"samples", 0, OPTION_INT, &opt.n_samples, false, "N",
         "Documents or tokens to show (3)."},
        {"tokens", 0, OPTION_INT, &opt.n_tokens, false, "N",
         "Tokens to show per document (48)."},
        {"tokenizer", 0, OPTION_TEXT, &opt.tokenizer, false, "NAME",
         "The tokenizer to decode a dataset with: bytes, or a tokenizer's directory or file; "
         "by default the one named in its .meta.json."},
    };
    // clang-format on
    const struct command command = {"trefoil inspect",
                                    "Show what is in a dataset, checkpoint or tokenizer.",
                                    specs, (int)ARRAY_LEN(specs)};
    return command_run(&command, argc, argv, run_inspect, &opt);
}
