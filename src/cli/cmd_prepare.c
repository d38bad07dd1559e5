/*
 * trefoil prepare - text or JSON lines into token files.
 *
 * This thread reads the files one after the other; the encode_pipeline turns documents
 * into tokens on all processors and writes them in order, each followed by the token that
 * ends a document. The reading thread looks for signals, so that stopping goes
 * through the same clean-up as any error: nothing is left behind.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "data/formats/dataset_writer.h"
#include "data/samples/split.h"
#include "data/text/encode_pipeline.h"
#include "data/text/text_encoding.h"
#include "data/text/text_files.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_SECONDS 0.2    // between two status lines on a terminal
#define LINE_SECONDS 30.0     // between two lines of progress elsewhere
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
    struct text_files inputs;
    struct tokenizer *tokenizer;
    struct dataset_writer *writer;
    struct token_sink sink;     // the writer and the end of a document
    struct bad_lines bad_lines; // used by the pipeline's thread, as the sink is
    struct encode_pipeline *pipeline;
    bool has_blank_lines; // documents of plain text end at blank lines
    double start_seconds, shown_seconds;
};

/* -- progress, and stopping ---------------------------------------------------------- */

/* "45 % of 123.4 MB, 0:12:34 left, 12.3 MB/s, 678 documents, 910 tokens" */
static void describe_progress(const struct prepare *p, const struct encode_counts *c,
                              double spent, char *text, size_t size)
{
    double total = p->inputs.total_bytes, done = (double)c->n_file_bytes;
    char how_far[64], left[64] = "";
    snprintf(how_far, sizeof how_far, "%.1f MB", done / 1e6);
    if (!p->inputs.has_pipes && total > 0 && done <= total) {
        snprintf(how_far, sizeof how_far, "%.0f %% of %.1f MB", 100 * done / total,
                 total / 1e6);
        if (done > 0 && spent > 1) {
            int64_t seconds = (int64_t)(spent * (total - done) / done + 0.5);
            snprintf(left, sizeof left, ", %lld:%02d:%02d left",
                     (long long)(seconds / 3600), (int)(seconds / 60 % 60),
                     (int)(seconds % 60));
        }
    }
    snprintf(text, size, "%s%s, %.1f MB/s, %lld documents, %lld tokens", how_far, left,
             (double)c->n_text_bytes / 1e6 / (spent > 0 ? spent : 1),
             (long long)c->n_documents, (long long)c->n_tokens);
}

static void show_progress(struct prepare *p)
{
    struct encode_counts counts;
    char text[256];
    bool is_terminal = log_is_terminal();
    double now = clock_seconds();
    if (!p->pipeline ||
        now - p->shown_seconds < (is_terminal ? STATUS_SECONDS : LINE_SECONDS))
        return;
    p->shown_seconds = now;
    encode_pipeline_counts(p->pipeline, &counts);
    describe_progress(p, &counts, now - p->start_seconds, text, sizeof text);
    if (is_terminal)
        log_status("prepare: %s", text);
    else
        log_info("prepare: %s", text);
}

static int watch_prepare(void *context, struct error *err)
{
    struct prepare *p = context;
    if (stop_check(err))
        return -1;
    show_progress(p);
    return 0;
}

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
    if (set->threads == 0)
        set->threads = i64_min(thread_processors(), ENCODE_MAX_THREADS);
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

static int open_tokenizer(struct prepare *p, struct error *err)
{
    if (tokenizer_open(&p->tokenizer, p->set.tokenizer, err))
        return -1;
    if (tokenizer_eos(p->tokenizer) < 0)
        return error_set(err, ERROR_INPUT,
                         "the tokenizer '%s' has no token <|endoftext|>, which is to end "
                         "each document; add it to the vocabulary",
                         p->set.tokenizer);
    return 0;
}

/* The tokenizer is recorded by its full path, so that it is found from anywhere. */
static int describe_dataset(const struct prepare *p, struct dataset_meta *meta,
                            struct error *err)
{
    char path[PATH_MAX];
    const char *name = p->set.tokenizer;
    if (strcmp(name, TOKENIZER_BYTES) != 0) {
        name = realpath(p->set.tokenizer, path);
        if (!name)
            return error_set(err, ERROR_INPUT, "cannot open '%s': %s", p->set.tokenizer,
                             strerror(errno));
    }
    *meta = (struct dataset_meta){.vocab_size = tokenizer_vocab_size(p->tokenizer),
                                  .eos_token_id = tokenizer_eos(p->tokenizer)};
    snprintf(meta->tokenizer, sizeof meta->tokenizer, "%s", name);
    return 0;
}

static enum text_kind kind_of(struct prepare *p, const char *path)
{
    if (p->set.is_json || text_files_is_json(path))
        return TEXT_JSON_LINES;
    if (strcmp(p->set.doc_separator, "file") == 0)
        return TEXT_WHOLE_FILE;
    p->has_blank_lines = true;
    return TEXT_BLANK_LINES;
}

static int encode_files(struct prepare *p, struct error *err)
{
    const struct encode_settings settings = {
        .tokenizer = p->tokenizer,
        .json_key = p->set.json_key,
        .encoding = p->set.encoding,
        .n_threads = (int)p->set.threads,
        .sink = &p->sink,
        .bad_lines = &p->bad_lines,
        .watch = {.tick = watch_prepare, .context = p},
    };
    const struct fs_names *files = &p->inputs.files;
    p->sink =
        (struct token_sink){.dataset = p->writer, .eos = tokenizer_eos(p->tokenizer)};
    p->bad_lines = (struct bad_lines){.is_strict = p->set.is_strict,
                                      .advice = "; --strict stops at the first"};
    if (encode_pipeline_open(&p->pipeline, &settings, err))
        return -1;
    for (int64_t i = 0; i < files->n_names; i++)
        if (encode_pipeline_read(p->pipeline, files->names[i],
                                 kind_of(p, files->names[i]), err))
            return -1;
    return encode_pipeline_finish(p->pipeline, err);
}

static int refuse_nothing(const struct prepare *p, const struct encode_counts *c,
                          struct error *err)
{
    char inputs[PATH_MAX + 64];
    if (c->n_documents > 0)
        return 0;
    text_files_say(&p->inputs, inputs, sizeof inputs);
    return error_set(err, ERROR_INPUT,
                     "there is no text in %s (%lld empty documents and %lld bad lines "
                     "skipped%s%s); nothing was written",
                     inputs, (long long)c->n_empty, (long long)c->n_bad_lines,
                     p->bad_lines.n ? ": first " : "", p->bad_lines.first);
}

static void print_summary(const struct prepare *p, const struct encode_counts *c)
{
    double spent = clock_seconds() - p->start_seconds;
    log_info(
        "prepared '%s' (%s): %lld documents, %lld tokens from %lld bytes in %.1f s "
        "(%.1f MB/s, %lld threads); %lld empty documents and %lld bad lines skipped; "
        "tokenizer '%s', vocab_size %lld, eos_token_id %d",
        p->set.output, p->set.format, (long long)c->n_documents,
        (long long)dataset_writer_n_tokens(p->writer), (long long)c->n_text_bytes, spent,
        (double)c->n_text_bytes / 1e6 / (spent > 0 ? spent : 1),
        (long long)p->set.threads, (long long)c->n_empty, (long long)c->n_bad_lines,
        p->set.tokenizer, (long long)tokenizer_vocab_size(p->tokenizer),
        tokenizer_eos(p->tokenizer));
    if (p->has_blank_lines)
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
    struct dataset_meta meta = {0};
    struct encode_counts counts;
    int rc = -1;
    if (check_settings(p, err) || refuse_existing(p, err) ||
        text_files_init(&p->inputs, set->inputs.values, set->inputs.n_values, set->output,
                        err) ||
        open_tokenizer(p, err) || describe_dataset(p, &meta, err))
        goto done;
    p->start_seconds = p->shown_seconds = clock_seconds();
    if (dataset_writer_open(&p->writer, set->output, p->format, meta.vocab_size, err) ||
        encode_files(p, err))
        goto done;
    encode_pipeline_counts(p->pipeline, &counts);
    if (refuse_nothing(p, &counts, err) || dataset_writer_commit(p->writer, &meta, err))
        goto done;
    log_status_clear();
    print_summary(p, &counts);
    print_next(p, &counts);
    rc = 0;
done:
    log_status_clear();
    encode_pipeline_close(p->pipeline); // first: its thread uses the writer
    dataset_writer_close(p->writer);
    tokenizer_close(p->tokenizer);
    text_files_release(&p->inputs);
    return rc;
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
