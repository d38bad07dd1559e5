/*
 * trefoil inspect - what a dataset, a checkpoint, a run, a tokenizer or a model of other
 * programs holds.
 *
 * A directory may hold several kinds of things: all of them are reported. A file is what
 * its name says it is, and anything else is taken for the prefix of a dataset.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "board/run.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_store.h"
#include "cli/cmd.h"
#include "cli/inspect_data.h"
#include "cli/inspect_model.h"
#include "cli/inspect_run.h"
#include "cli/inspect_tensors.h"
#include "cli/options.h"
#include "cli/report.h"
#include "data/formats/dataset_list.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SAMPLES 1000
#define MOST_TOKENS 100000

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
    bool has_manifest, has_tensors, has_moments, has_tokenizer, has_datasets, has_hf,
        has_metrics;
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
        c->has_hf |= strcmp(name, INSPECT_HF_NAME) == 0;
        c->has_metrics |= strcmp(name, RUN_FILE_NAME) == 0;
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

/* All checkpoints of an output_dir, and the one that a command given it would take. */
static int add_checkpoints(json_t *report, const char *dir,
                           const struct inspect_options *opt, struct findings *found,
                           struct error *err)
{
    json_t *rows, *taken;
    struct error why;
    int rc = inspect_checkpoints(dir, opt->verifies, &rows, &taken, &why,
                                 &found->n_damaged, err);
    bool has_any = json_array_size(rows) > 0;
    found->n_checkpoints = (int64_t)json_array_size(rows);
    if (rc == 0 && has_any && !taken)
        report_note(report, "%s", why.text);
    if (has_any)
        report_set(report, "checkpoints", json_incref(rows));
    if (taken) {
        report_set(report, "taken", json_incref(json_object_get(taken, "directory")));
        report_set(report, "checkpoint", json_incref(taken));
    }
    json_decref(taken);
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

/* What a config.json says is a part of the report; one that is damaged, beside other
 * things, a note. */
static int add_hf(json_t *report, const char *dir, bool is_other, struct error *err)
{
    json_t *model;
    struct error why;
    if (inspect_hf(&model, dir, is_other ? &why : err)) {
        if (is_other)
            report_note(report, "%s", why.text);
        return is_other ? 0 : -1;
    }
    if (model)
        report_set(report, "hugging_face_model", model);
    return 0;
}

static int inspect_directory(json_t *report, const char *dir,
                             const struct inspect_options *opt, struct findings *found,
                             struct error *err)
{
    struct contents c;
    if (list_contents(&c, dir, err))
        return -1;
    bool is_one = is_checkpoint(dir, &c);
    if (c.has_metrics && report_add(report, "run", inspect_run(dir, err)))
        return -1;
    if (!is_one && add_checkpoints(report, dir, opt, found, err))
        return -1;
    bool is_other = is_one || found->n_checkpoints || c.has_tensors || c.has_tokenizer ||
                    c.has_metrics;
    if (c.has_hf && !is_one && add_hf(report, dir, is_other || c.has_datasets, err))
        return -1;
    is_other |= json_object_get(report, "hugging_face_model") != NULL;
    if (!is_other && !c.has_datasets)
        return error_set(err, ERROR_INPUT,
                         "nothing to inspect in the directory '%s': it has no dataset "
                         "(X.bin + X.idx, X_ids.npy + X_idx.npz), no checkpoint "
                         "(" CKPT_MANIFEST_NAME ", *.safetensors), no run "
                         "(" RUN_FILE_NAME "), no tokenizer and no model of other "
                         "programs (" INSPECT_HF_NAME ")",
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
    if (strcmp(name, RUN_FILE_NAME) == 0 && fs_exists(path))
        return parent_of(path, other, err)
                   ? -1
                   : report_add(report, "run", inspect_run(other, err));
    if (strcmp(name, INSPECT_HF_NAME) == 0 && fs_exists(path))
        return parent_of(path, other, err) ? -1 : add_hf(report, other, false, err);
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
    const struct command command = {
        "trefoil inspect",
        "Show what is in a dataset, checkpoint, run, tokenizer or model.", specs,
        (int)ARRAY_LEN(specs)};
    return command_run(&command, argc, argv, run_inspect, &opt);
}
