/*
 * trefoil tokenizer train - a byte-level BPE learned from text or JSON lines.
 *
 * Text comes in chunks; it is handed on up to the last place where words surely end, so
 * that a document need not fit in memory and its words are those of the whole.
 */
#include "cli/tokenizer_train.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/stop.h"
#include "cli/input_files.h"
#include "cli/options.h"
#include "data/text/text_documents.h"
#include "data/text/text_encoding.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer_save.h"
#include "text/word_split.h"

#include <stdlib.h>
#include <string.h>

#define HELD_BYTES ((size_t)1 << 20) // of text before it is handed on
#define PROGRESS_SECONDS 0.2

struct training {
    struct option_list inputs; // as given on the command line
    const char *output;
    const char *json_key;
    const char *encoding; // NULL: UTF-8
    bool is_json;
    int64_t vocab_size;
    int64_t min_frequency;
    struct input_files files;
    struct bpe_trainer *trainer;
    char *held; // text whose last word may go on
    size_t n_held;
    int64_t held_capacity;
    int64_t n_bytes;
    struct bad_lines bad_lines;
    double start_seconds, shown_seconds;
};

/* -- what text_documents calls ------------------------------------------------------- */

/* Hand on the first n bytes of what is held. */
static int hand_on(struct training *tr, size_t n, struct error *err)
{
    if (n == 0)
        return 0;
    if (bpe_trainer_add(tr->trainer, tr->held, n, err))
        return -1;
    memmove(tr->held, tr->held + n, tr->n_held - n);
    tr->n_held -= n;
    return 0;
}

static int append_training_text(void *context, const char *bytes, size_t n,
                                struct error *err)
{
    struct training *tr = context;
    char *held = grow_array(tr->held, &tr->held_capacity, (int64_t)(tr->n_held + n), 1);
    if (!held)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu bytes of text",
                         tr->n_held + n);
    tr->held = held;
    memcpy(tr->held + tr->n_held, bytes, n);
    tr->n_held += n;
    // Looking only when twice as full keeps a text without any end of a word linear.
    if (tr->n_held < HELD_BYTES || tr->n_held < (size_t)tr->held_capacity / 2)
        return 0;
    return hand_on(tr, word_split_last_cut(tr->held, tr->n_held), err);
}

static int end_training_text(void *context, struct error *err)
{
    struct training *tr = context;
    return hand_on(tr, tr->n_held, err);
}

static int skip_bad_line(void *context, const char *path, int64_t line,
                         const char *reason, struct error *err)
{
    struct training *tr = context;
    return bad_lines_add(&tr->bad_lines, path, line, reason, err);
}

static int show_bytes_read(void *context, size_t n, struct error *err)
{
    struct training *tr = context;
    (void)err;
    tr->n_bytes += (int64_t)n;
    double now = clock_seconds();
    if (now - tr->shown_seconds < PROGRESS_SECONDS)
        return 0;
    tr->shown_seconds = now;
    log_status("tokenizer train: %.1f MB read, %lld distinct words",
               (double)tr->n_bytes / 1e6, (long long)bpe_trainer_n_words(tr->trainer));
    return 0;
}

static int read_inputs(struct training *tr, struct error *err)
{
    struct text_sink sink = {append_training_text, end_training_text, skip_bad_line,
                             show_bytes_read, tr};
    for (int64_t i = 0; i < tr->files.files.n_names; i++) {
        const char *path = tr->files.files.names[i];
        bool is_json = tr->is_json || input_files_is_json(path);
        const struct text_form form = {.kind =
                                           is_json ? TEXT_JSON_LINES : TEXT_WHOLE_FILE,
                                       .encoding = tr->encoding,
                                       .json_key = tr->json_key};
        if (text_documents_read(path, &form, &sink, err))
            return -1;
    }
    if (bpe_trainer_n_words(tr->trainer) == 0)
        return error_set(err, ERROR_INPUT,
                         "there is no text in the %lld input files (%lld bad lines "
                         "skipped); nothing was written",
                         (long long)tr->files.files.n_names, (long long)tr->bad_lines.n);
    return 0;
}

/* -- the run ------------------------------------------------------------------------- */

static int check_settings(const struct training *tr, struct error *err)
{
    if (tr->vocab_size < BPE_TRAINER_LEAST_VOCAB || tr->vocab_size > INT32_MAX)
        return error_set(err, ERROR_INPUT,
                         "--vocab_size %lld cannot be: it is at least %d, the 256 bytes "
                         "and the end of a document",
                         (long long)tr->vocab_size, BPE_TRAINER_LEAST_VOCAB);
    if (text_encoding_check(tr->encoding, err))
        return -1;
    if (tr->min_frequency < 1)
        return error_set(err, ERROR_INPUT,
                         "--min_frequency %lld cannot be: it is at "
                         "least 1",
                         (long long)tr->min_frequency);
    return 0;
}

static void report(const struct training *tr, const struct tokenizer *t)
{
    log_info(
        "learned '%s': %lld merges, vocab_size %lld, eos_token_id %d, from %lld bytes "
        "with %lld distinct words in %.1f s; %lld bad lines skipped",
        tr->output, (long long)tokenizer_n_merges(t), (long long)tokenizer_vocab_size(t),
        tokenizer_eos(t), (long long)tr->n_bytes,
        (long long)bpe_trainer_n_words(tr->trainer), clock_seconds() - tr->start_seconds,
        (long long)tr->bad_lines.n);
    if (tokenizer_vocab_size(t) < tr->vocab_size)
        log_warning("the vocabulary has %lld tokens, not %lld: no pair is left that the "
                    "text has %lld times (--min_frequency); give more text",
                    (long long)tokenizer_vocab_size(t), (long long)tr->vocab_size,
                    (long long)tr->min_frequency);
}

static int run(struct training *tr, struct error *err)
{
    struct tokenizer *t = NULL;
    int rc = -1;
    tr->start_seconds = clock_seconds();
    if (check_settings(tr, err) ||
        input_files_init(&tr->files, tr->inputs.values, tr->inputs.n_values, NULL, err) ||
        bpe_trainer_open(&tr->trainer, err) || read_inputs(tr, err))
        goto done;
    log_status("tokenizer train: learning from %lld distinct words",
               (long long)bpe_trainer_n_words(tr->trainer));
    if (bpe_trainer_learn(tr->trainer, tr->vocab_size, tr->min_frequency, tr->output, &t,
                          err))
        goto done;
    stop_watch(STOP_COMMAND); // all files or none, and they are soon written
    if (fs_make_directories(tr->output, err) || tokenizer_save(t, tr->output, err))
        goto done;
    log_status_clear();
    report(tr, t);
    rc = 0;
done:
    log_status_clear();
    tokenizer_close(t);
    bpe_trainer_close(tr->trainer);
    input_files_release(&tr->files);
    free(tr->held);
    return rc;
}

int tokenizer_train(int argc, char **argv)
{
    struct training tr = {.json_key = "text", .min_frequency = 2};
    // clang-format off
    const struct option_spec options[] = {
        {"input", 'i', OPTION_LIST, &tr.inputs, true, "PATH",
         "Text files in UTF-8, JSON (*.jsonl, *.ndjson, *.json: lines, or an array), plain or packed (gzip, zstd); - is standard input; or directories of them."},
        {"vocab_size", 0, OPTION_INT, &tr.vocab_size, true, "N",
         "Tokens in all: 256 bytes, N - 257 merges, <|endoftext|>."},
        {"output", 0, OPTION_TEXT, &tr.output, true, "DIR",
         "Where to write tokenizer.json, vocab.json, merges.txt and their like."},
        {"json", 0, OPTION_FLAG, &tr.is_json, false, NULL,
         "Take every input for JSON, whatever its name."},
        {"json_key", 0, OPTION_TEXT, &tr.json_key, false, "KEY",
         "The key of the text in an object of JSON; text when not given."},
        {"encoding", 0, OPTION_TEXT, &tr.encoding, false, "NAME",
         INPUT_FILES_ENCODING_HELP},
        {"min_frequency", 0, OPTION_INT, &tr.min_frequency, false, "N",
         "Make no token of a pair that is in the text fewer times (2)."},
    };
    // clang-format on
    const struct command cmd = {"trefoil tokenizer train",
                                "Learn a byte-level BPE, written as Hugging Face does.",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = run(&tr, &err);
    options_list_release(&tr.inputs);
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}
