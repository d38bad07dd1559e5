/*
 * trefoil tokenizer - a byte-level BPE learned from text; text to token ids and back, on
 * standard output. Both ways stream: text is encoded, on all cores, up to the last place
 * where it can be cut without changing an id; ids are decoded as they come.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "data/text/encode_pipeline.h"
#include "data/text/text_documents.h"
#include "data/text/text_encoding.h"
#include "data/text/text_files.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_save.h"
#include "text/word_split.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_SECONDS 0.2
#define HELD_BYTES ((size_t)1 << 20) // of text before it is handed on
#define MOST_THREADS 64
#define INPUT_BYTES ((size_t)1 << 20)
#define OUTPUT_BYTES ((size_t)1 << 16)
#define MOST_ID_DIGITS 10

/* -- train --------------------------------------------------------------------------- */

/*
 * Text comes in chunks; it is handed on up to the last place where words surely end, so
 * that a document need not fit in memory and its words are those of the whole.
 */
struct training {
    struct option_list inputs; // as given on the command line
    const char *output;
    const char *json_key;
    const char *encoding; // NULL: UTF-8
    bool is_json;
    int64_t vocab_size;
    int64_t min_frequency;
    struct text_files files;
    struct bpe_trainer *trainer;
    char *held; // text whose last word may go on
    size_t n_held;
    int64_t held_capacity;
    int64_t n_bytes;
    struct bad_lines bad_lines;
    double start_seconds, shown_seconds;
};

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
    if (grow_array(&tr->held, &tr->held_capacity, (int64_t)(tr->n_held + n), 1))
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu bytes of text",
                         tr->n_held + n);
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
        bool is_json = tr->is_json || text_files_is_json(path);
        const struct text_form form = {.kind =
                                           is_json ? TEXT_JSON_LINES : TEXT_WHOLE_FILE,
                                       .encoding = tr->encoding,
                                       .json_key = tr->json_key};
        if (text_documents_read(path, &form, &sink, err))
            return -1;
    }
    if (bpe_trainer_n_words(tr->trainer) > 0)
        return 0;
    char inputs[PATH_MAX + 64];
    text_files_say(&tr->files, inputs, sizeof inputs);
    return error_set(
        err, ERROR_INPUT,
        "there is no text in %s (%lld bad lines skipped); nothing was written", inputs,
        (long long)tr->bad_lines.n);
}

/* -- the run ------------------------------------------------------------------------- */

static int check_training(const struct training *tr, struct error *err)
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

static void report_training(const struct training *tr, const struct tokenizer *t)
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

static int train_tokenizer(struct training *tr, struct error *err)
{
    struct tokenizer *t = NULL;
    int rc = -1;
    tr->start_seconds = clock_seconds();
    if (check_training(tr, err) ||
        text_files_init(&tr->files, tr->inputs.values, tr->inputs.n_values, NULL, err) ||
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
    report_training(tr, t);
    rc = 0;
done:
    log_status_clear();
    tokenizer_close(t);
    bpe_trainer_close(tr->trainer);
    text_files_release(&tr->files);
    free(tr->held);
    return rc;
}

static int cmd_train(int argc, char **argv)
{
    struct training tr = {.json_key = "text", .min_frequency = 2};
    // clang-format off
    const struct option_spec options[] = {
        {"input", 'i', OPTION_LIST, &tr.inputs, true, "PATH",
         "UTF-8 text or JSON (*.jsonl, *.ndjson, *.json: lines, or an array), plain or compressed (gzip, zstd); - is standard input; or directories of such files."},
        {"vocab_size", 0, OPTION_INT, &tr.vocab_size, true, "N",
         "Size of the vocabulary: 256 bytes, N - 257 merges, <|endoftext|>."},
        {"output", 0, OPTION_TEXT, &tr.output, true, "DIR",
         "Where to write tokenizer.json, vocab.json, merges.txt and the other files."},
        {"json", 0, OPTION_FLAG, &tr.is_json, false, NULL,
         "Read every input as JSON, whatever its name."},
        {"json_key", 0, OPTION_TEXT, &tr.json_key, false, "KEY",
         "The JSON key that holds the text (text)."},
        {"encoding", 0, OPTION_TEXT, &tr.encoding, false, "NAME",
         TEXT_FILES_ENCODING_HELP},
        {"min_frequency", 0, OPTION_INT, &tr.min_frequency, false, "N",
         "Do not merge pairs that occur fewer than N times (2)."},
    };
    // clang-format on
    const struct command cmd = {
        "trefoil tokenizer train",
        "Train a byte-level BPE tokenizer; the files are those of Hugging Face.", options,
        ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = train_tokenizer(&tr, &err);
    options_list_release(&tr.inputs);
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

/* -- encode and decode --------------------------------------------------------------- */

struct request {
    const char *tokenizer_name; // as given on the command line
    const char *file;
    bool with_special;
    struct tokenizer *tokenizer;
    // of decoding:
    struct text_source source;
    char *input;
    size_t n_input;
    char *output;
    size_t n_output;
};

/* -- encode -------------------------------------------------------------------------- */

static int encode_text(struct request *r, struct error *err)
{
    struct token_sink sink = {.eos = -1};
    const struct encode_settings settings = {
        .tokenizer = r->tokenizer,
        .with_special = r->with_special,
        .n_threads = (int)i64_min(thread_processors(), MOST_THREADS),
        .sink = &sink,
    };
    struct encode_pipeline *pipeline = NULL;
    int rc = -1;
    if (token_text_open(&sink.text, STDOUT_FILENO, "standard output", err) ||
        encode_pipeline_open(&pipeline, &settings, err) ||
        encode_pipeline_read(pipeline, r->file, TEXT_RAW_FILE, err) ||
        encode_pipeline_finish(pipeline, err))
        goto done;
    rc = token_text_finish(sink.text, err);
done:
    encode_pipeline_close(pipeline); // first: its thread uses the sink
    token_text_close(sink.text);
    return rc;
}

/* -- decode -------------------------------------------------------------------------- */

static int open_input(struct request *r, struct error *err)
{
    const struct text_watch watch = {.tick = NULL};
    if (text_source_open(&r->source, r->file, &watch, err))
        return -1;
    r->input = calloc(1, INPUT_BYTES);
    r->output = malloc(OUTPUT_BYTES);
    if (!r->input || !r->output)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    return 0;
}

/* Read until the buffer is full or the input ends. */
static int fill_input(struct request *r, bool *is_end, struct error *err)
{
    *is_end = false;
    while (r->n_input < INPUT_BYTES && !*is_end) {
        size_t n;
        if (text_source_read(&r->source, r->input + r->n_input, INPUT_BYTES - r->n_input,
                             &n, err))
            return -1;
        *is_end = n == 0;
        r->n_input += n;
    }
    return 0;
}

static int flush_output(struct request *r, struct error *err)
{
    if (fs_write_exact(STDOUT_FILENO, r->output, r->n_output))
        return error_set(err, ERROR_RUNTIME, "cannot write standard output: %s",
                         strerror(errno));
    r->n_output = 0;
    return 0;
}

static int put_bytes(struct request *r, const char *bytes, size_t n, struct error *err)
{
    while (n > 0) {
        size_t free_bytes = OUTPUT_BYTES - r->n_output;
        size_t n_put = n < free_bytes ? n : free_bytes;
        memcpy(r->output + r->n_output, bytes, n_put);
        r->n_output += n_put;
        bytes += n_put;
        n -= n_put;
        if (r->n_output == OUTPUT_BYTES && flush_output(r, err))
            return -1;
    }
    return 0;
}

struct word {       // of the input, which may come in two chunks
    int64_t number; // counted from 1
    int64_t id;     // so far; -1: no id
    size_t n_bytes;
    char shown[24];
};

static int put_token(struct request *r, const struct word *w, struct error *err)
{
    size_t n;
    const char *bytes = NULL;
    if (w->id < 0)
        return error_set(err, ERROR_INPUT,
                         "word %lld of '%s', '%s', is no token id; ids are whole numbers "
                         "with white space between",
                         (long long)w->number, r->source.name, w->shown);
    if (w->id < tokenizer_vocab_size(r->tokenizer))
        bytes = tokenizer_token_bytes(r->tokenizer, (int32_t)w->id, &n);
    if (!bytes)
        return error_set(err, ERROR_INPUT,
                         "word %lld of '%s', %lld, is no token of '%s', whose ids are "
                         "below %lld",
                         (long long)w->number, r->source.name, (long long)w->id,
                         r->tokenizer_name,
                         (long long)tokenizer_vocab_size(r->tokenizer));
    return put_bytes(r, bytes, n, err);
}

static void add_digit(struct word *w, char c)
{
    if (w->n_bytes == 0) {
        w->number++;
        w->id = 0;
    }
    if (w->n_bytes + 1 < sizeof w->shown) {
        w->shown[w->n_bytes] = c;
        w->shown[w->n_bytes + 1] = 0;
    }
    w->n_bytes++;
    bool is_digit = c >= '0' && c <= '9' && w->n_bytes <= MOST_ID_DIGITS;
    w->id = w->id < 0 || !is_digit ? -1 : w->id * 10 + (c - '0');
}

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int decode_ids(struct request *r, struct error *err)
{
    struct word w = {0};
    bool is_end = false;
    if (open_input(r, err))
        return -1;
    while (!is_end) {
        if (fill_input(r, &is_end, err))
            return -1;
        for (size_t i = 0; i < r->n_input; i++) {
            if (!is_white(r->input[i])) {
                add_digit(&w, r->input[i]);
                continue;
            }
            if (w.n_bytes > 0 && put_token(r, &w, err))
                return -1;
            w.n_bytes = 0;
        }
        r->n_input = 0;
    }
    if (w.n_bytes > 0 && put_token(r, &w, err))
        return -1;
    return flush_output(r, err);
}

/* -- the commands -------------------------------------------------------------------- */

static int run(struct request *r, int (*convert)(struct request *, struct error *),
               struct error *err)
{
    int rc = -1;
    r->source.fd = -1;
    if (!r->file)
        r->file = TEXT_STANDARD_INPUT;
    if (tokenizer_open(&r->tokenizer, r->tokenizer_name, err) == 0)
        rc = convert(r, err);
    text_source_close(&r->source);
    tokenizer_close(r->tokenizer);
    free(r->input);
    free(r->output);
    return rc;
}

static int run_command(const struct command *cmd, int argc, char **argv,
                       struct request *r,
                       int (*convert)(struct request *, struct error *))
{
    struct error err;
    int rc = options_parse(cmd, argc, argv, &err);
    if (rc == 0)
        rc = run(r, convert, &err);
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

static int cmd_encode(int argc, char **argv)
{
    struct request r = {0};
    const struct option_spec options[] = {
        {"tokenizer", 0, OPTION_TEXT, &r.tokenizer_name, true, "NAME",
         "A directory or file of a byte-level BPE, or bytes."},
        {"special", 0, OPTION_FLAG, &r.with_special, false, NULL,
         "Encode special tokens in the text as special tokens, not as text."},
        {"file", 0, OPTION_OPERAND, &r.file, false, "FILE",
         "The text; standard input by default."},
    };
    const struct command cmd = {"trefoil tokenizer encode",
                                "Print the token ids of a text.", options,
                                ARRAY_LEN(options)};
    return run_command(&cmd, argc, argv, &r, encode_text);
}

static int cmd_decode(int argc, char **argv)
{
    struct request r = {0};
    const struct option_spec options[] = {
        {"tokenizer", 0, OPTION_TEXT, &r.tokenizer_name, true, "NAME",
         "A directory or file of a byte-level BPE, or bytes."},
        {"file", 0, OPTION_OPERAND, &r.file, false, "FILE",
         "Token ids separated by white space; standard input by default."},
    };
    const struct command cmd = {"trefoil tokenizer decode",
                                "Print the text of token ids, byte for byte.", options,
                                ARRAY_LEN(options)};
    return run_command(&cmd, argc, argv, &r, decode_ids);
}

static const struct command_choice commands[] = {
    {"train", cmd_train, "Train a byte-level BPE tokenizer on text."},
    {"encode", cmd_encode, "Print the token ids of a text."},
    {"decode", cmd_decode, "Print the text of token ids."},
};

int cmd_tokenizer(int argc, char **argv)
{
    const struct command_group tokenizer = {
        "trefoil tokenizer", "Text to tokens and back.", commands, ARRAY_LEN(commands)};
    return command_dispatch(&tokenizer, argc, argv);
}
