/*
 * trefoil tokenizer - text to token ids and back, on standard output.
 *
 * Both ways stream: text is encoded, on all cores, up to the last place where it can be
 * cut without changing an id; ids are decoded as they come.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/tokenizer_train.h"
#include "data/text/encode_pipeline.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 64
#define INPUT_BYTES ((size_t)1 << 20)
#define OUTPUT_BYTES ((size_t)1 << 16)
#define MOST_ID_DIGITS 10

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

static int encode(struct request *r, struct error *err)
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

static int decode(struct request *r, struct error *err)
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
         "Take special tokens in the text for what they are, not for text."},
        {"file", 0, OPTION_OPERAND, &r.file, false, "FILE",
         "The text; standard input when not given."},
    };
    const struct command cmd = {"trefoil tokenizer encode",
                                "Print the token ids of a text.", options,
                                ARRAY_LEN(options)};
    return run_command(&cmd, argc, argv, &r, encode);
}

static int cmd_decode(int argc, char **argv)
{
    struct request r = {0};
    const struct option_spec options[] = {
        {"tokenizer", 0, OPTION_TEXT, &r.tokenizer_name, true, "NAME",
         "A directory or file of a byte-level BPE, or bytes."},
        {"file", 0, OPTION_OPERAND, &r.file, false, "FILE",
         "Token ids with white space between; standard input when not given."},
    };
    const struct command cmd = {"trefoil tokenizer decode",
                                "Print the text of token ids, byte for byte.", options,
                                ARRAY_LEN(options)};
    return run_command(&cmd, argc, argv, &r, decode);
}

static const struct command_choice commands[] = {
    {"train", tokenizer_train, "Learn a byte-level BPE from text."},
    {"encode", cmd_encode, "Print the token ids of a text."},
    {"decode", cmd_decode, "Print the text of token ids."},
};

int cmd_tokenizer(int argc, char **argv)
{
    const struct command_group tokenizer = {
        "trefoil tokenizer", "Text to tokens and back.", commands, ARRAY_LEN(commands)};
    return command_dispatch(&tokenizer, argc, argv);
}
