/* trefoil prepare - text or JSON lines into token files. */
#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "data/samples/split.h"
#include "data/text/text_encoding.h"
#include "data/text/text_files.h"
#include "data/text/text_prepare.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LITTLE_BYTES 200000   // of text
#define VALIDATION_TOKENS 256 // two samples of the recipe for a laptop

struct settings { // as given on the command line
    struct option_list inputs;
    const char *output;
    const char *tokenizer;
    const char *json_key;
    const char *encoding; // NULL: UTF-8
    const char *format;
    const char *doc_separator;
    int64_t threads;
    bool is_json;
    bool is_strict;
    bool is_forced;
};

struct prepare {
    struct settings set;
    enum dataset_format format;
};

/* -- the run ------------------------------------------------------------------------- */

static int check_choice(const char *option, const char *value, const char *a,
                        const char *b, struct error *err)
{
    if (strcmp(value, a) == 0 || strcmp(value, b) == 0)
        return 0;
    return error_set(err, ERROR_INPUT, "--%s '%s' is not known; there are %s and %s",
                     option, value, a, b);
}

static int check_settings(struct prepare *p, struct error *err)
{
    struct settings *set = &p->set;
    if (check_choice("format", set->format, "megatron", "fleetx", err) ||
        check_choice("doc_separator", set->doc_separator, "blank", "file", err) ||
        text_encoding_check(set->encoding, err))
        return -1;
    p->format = strcmp(set->format, "fleetx") == 0 ? DATASET_FLEETX : DATASET_MEGATRON;
    if (set->threads < 0 || set->threads > ENCODE_MAX_THREADS)
        return error_set(err, ERROR_INPUT,
                         "--threads must be from 1 to %d, or 0 for all processors; it is "
                         "%lld",
                         ENCODE_MAX_THREADS, (long long)set->threads);
    return 0;
}

/* A dataset that took hours is not replaced by a slip of the pen. */
static int refuse_existing(const struct prepare *p, struct error *err)
{
    const struct dataset_format_names *format = &dataset_formats[p->format];
    const char *const suffixes[] = {format->data_suffix, format->index_suffix};
    for (size_t i = 0; i < ARRAY_LEN(suffixes) && !p->set.is_forced; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s%s", p->set.output, suffixes[i]) >=
            (int)sizeof path)
            return error_set(err, ERROR_INPUT, "path too long: '%.200s...'",
                             p->set.output);
        if (fs_exists(path))
            return error_set(err, ERROR_INPUT,
                             "'%s' exists; give --force to replace the dataset, or "
                             "another --output",
                             path);
    }
    return 0;
}

static void print_summary(const struct prepare *p, const struct text_prepared *done)
{
    const struct encode_counts *c = &done->counts;
    double spent = done->seconds;
    log_info(
        "prepared '%s' (%s): %lld documents, %lld tokens from %lld bytes in %.1f s "
        "(%.1f MB/s, %lld threads); %lld empty documents and %lld bad lines skipped; "
        "tokenizer '%s', vocab_size %lld, eos_token_id %lld",
        p->set.output, p->set.format, (long long)c->n_documents,
        (long long)done->n_tokens, (long long)c->n_text_bytes, spent,
        (double)c->n_text_bytes / 1e6 / (spent > 0 ? spent : 1),
        (long long)done->n_threads, (long long)c->n_empty, (long long)c->n_bad_lines,
        p->set.tokenizer, (long long)done->vocab_size, (long long)done->eos_token_id);
    if (done->has_blank_lines)
        log_info("documents of plain text are what stands between blank lines; "
                 "--doc_separator file makes one of each file");
}

enum validation { BY_DOCUMENT, CONTIGUOUS, NONE }; // of the recipe for a laptop

/* Whether this split leaves validation enough text, and training most of it. */
static bool is_usable(const struct corpus *corpus, enum config_split_by by)
{
    // as in configs/laptop.yaml
    const struct split_options split = {.weights = {95, 5, 0}, .by = by};
    int64_t n_tokens[SPLIT_PARTS];
    struct error ignored; // pretrain reports it
    return split_count_tokens(corpus, &split, n_tokens, &ignored) == 0 &&
           n_tokens[SPLIT_VALID] >= VALIDATION_TOKENS &&
           n_tokens[SPLIT_VALID] <= n_tokens[SPLIT_TRAIN] / 4;
}

static enum validation find_validation(const struct prepare *p)
{
    struct corpus *corpus;
    struct error ignored; // a second dataset of this name in the other format
    if (corpus_open(&corpus, p->set.output, &ignored))
        return BY_DOCUMENT;
    enum validation found = is_usable(corpus, SPLIT_BY_DOCUMENT)  ? BY_DOCUMENT
                            : is_usable(corpus, SPLIT_CONTIGUOUS) ? CONTIGUOUS
                                                                  : NONE;
    corpus_close(corpus);
    return found;
}

/* The command that comes next, with sizes for this much text: the table in
 * configs/laptop.yaml, whose own sizes are those of the row without settings. */
static void print_next(const struct prepare *p, const struct encode_counts *c)
{
    static const struct {
        int64_t most_bytes;
        const char *settings;
    } sizes[] = {
        {1000000, " -o hidden_size=128 -o max_steps=1000"},
        {10000000, ""},
        {100000000, " -o hidden_size=256 -o num_layers=6 -o max_steps=2000"},
    };
    static const char *const split_settings[] = {
        [BY_DOCUMENT] = "",
        [CONTIGUOUS] = " -o dataset.split_by=contiguous",
        [NONE] = " -o dataset.split_by=contiguous -o eval_freq=0"};
    if (c->n_text_bytes > sizes[ARRAY_LEN(sizes) - 1].most_bytes)
        return;
    enum validation validation = find_validation(p);
    if (validation == CONTIGUOUS)
        log_info("few documents: validation gets the last ones, because a choice by hash "
                 "would give it too little text or too much");
    if (validation == NONE)
        log_info(
            "too few documents to keep some for validation: end them by blank lines, "
            "or train without it (-o eval_freq=0)");
    if (c->n_text_bytes < LITTLE_BYTES)
        log_info("this is little text: models write readable sentences from about %d KB "
                 "on",
                 LITTLE_BYTES / 1000);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (c->n_text_bytes <= sizes[i].most_bytes) {
            log_info("to train a small model on it: %s pretrain -c "
                     "configs/laptop.yaml -o dataset.input_dir=%s%s%s",
                     program_invocation_name, p->set.output, sizes[i].settings,
                     split_settings[validation]);
            return;
        }
}

static int run_prepare(struct prepare *p, struct error *err)
{
    const struct settings *set = &p->set;
    struct text_prepared done;
    if (check_settings(p, err) || refuse_existing(p, err))
        return -1;
    const struct text_prepare request = {
        .inputs = set->inputs.values,
        .n_inputs = set->inputs.n_values,
        .output = set->output,
        .format = p->format,
        .tokenizer = set->tokenizer,
        .json_key = set->json_key,
        .encoding = set->encoding,
        .n_threads = set->threads,
        .is_json = set->is_json,
        .is_whole_file = strcmp(set->doc_separator, "file") == 0,
        .is_strict = set->is_strict,
    };
    if (text_prepare(&request, &done, err))
        return -1;
    print_summary(p, &done);
    print_next(p, &done.counts);
    return 0;
}

int cmd_prepare(int argc, char **argv)
{
    struct prepare p = {.set = {.tokenizer = TOKENIZER_BYTES,
                                .json_key = "text",
                                .format = "megatron",
                                .doc_separator = "blank"}};
    struct settings *set = &p.set;
    // clang-format off
    const struct option_spec options[] = {
        {"input", 'i', OPTION_LIST, &set->inputs, true, "PATH",
         "UTF-8 text or JSON (*.jsonl, *.ndjson, *.json: lines, or an array), plain or compressed (gzip, zstd); - is standard input; or directories, read recursively in bytewise order of names, without hidden files."},
        {"output", 0, OPTION_TEXT, &set->output, true, "PREFIX",
         "Where to write: PREFIX.bin and PREFIX.idx, or PREFIX_ids.npy and PREFIX_idx.npz."},
        {"format", 0, OPTION_TEXT, &set->format, false, "megatron|fleetx",
         "Which of the two pairs of files to write (megatron)."},
        {"tokenizer", 0, OPTION_TEXT, &set->tokenizer, false, "DIR",
         "The directory or file of a byte-level BPE tokenizer; or bytes (the default): one token per byte, eos 256."},
        {"force", 0, OPTION_FLAG, &set->is_forced, false, NULL,
         "Replace an existing dataset."},
        {"json", 0, OPTION_FLAG, &set->is_json, false, NULL,
         "Read every input as JSON, whatever its name."},
        {"json_key", 0, OPTION_TEXT, &set->json_key, false, "KEY",
         "The JSON key that holds the text (text)."},
        {"encoding", 0, OPTION_TEXT, &set->encoding, false, "NAME",
         TEXT_FILES_ENCODING_HELP},
        {"doc_separator", 0, OPTION_TEXT, &set->doc_separator, false, "blank|file",
         "What ends a document of plain text: a blank line (the default: each paragraph is a document) or the end of the file. The end-of-document token is added after each."},
        {"threads", 0, OPTION_INT, &set->threads, false, "N",
         "Encoding threads (0: all processors); does not change the output."},
        {"strict", 0, OPTION_FLAG, &set->is_strict, false, NULL,
         "Stop at the first bad line instead of skipping it."},
    };
    // clang-format on
    const struct command cmd = {"trefoil prepare",
                                "Turn text or JSON lines into token files to train on.",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0) {
        stop_watch(STOP_COMMAND);
        rc = run_prepare(&p, &err);
    }
    options_list_release(&set->inputs);
    if (rc < 0) {
        log_error("%s", err.text);
        return error_exit_code(&err);
    }
    return 0;
}
