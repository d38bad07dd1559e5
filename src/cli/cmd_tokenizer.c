/*
 * trefoil tokenizer - text to token ids and back, on standard output.
 *
 * Both ways stream: text is encoded, on all cores, up to the last place where it can be
 * cut without changing an id; ids are decoded as they come.
 */
#include "base/fs.h"
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/encode_lanes.h"
#include "cli/options.h"
#include "cli/tokenizer_train.h"
#include "data/text/text_input.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_BYTES ((size_t)1 << 20) // held at once, while that is enough
#define OUTPUT_BYTES ((size_t)1 << 16)
#define MOST_ID_DIGITS 10

struct request {
    const char *tokenizer_name; // as given on the command line
    const char *file;
    bool with_special;
    struct tokenizer *tokenizer;
    struct text_source source;
    char *input;
    size_t n_input, input_capacity;
    char *output;
    size_t n_output;
};

/* -- input and output ---------------------------------------------------------------- */

static int open_input(struct request *r, struct error *err)
{
    const struct text_watch watch = {.tick = NULL};
    if (text_source_open(&r->source, r->file ? r->file : TEXT_STANDARD_INPUT, &watch,
                         err))
        return -1;
    r->input = calloc(1, INPUT_BYTES);
    r->output = malloc(OUTPUT_BYTES);
    r->input_capacity = INPUT_BYTES;
    if (!r->input || !r->output)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    return 0;
}

/* Read until the buffer is full or the input ends. */
static int fill_input(struct request *r, bool *is_end, struct error *err)
{
    *is_end = false;
    while (r->n_input < r->input_capacity && !*is_end) {
        size_t n;
        if (text_source_read(&r->source, r->input + r->n_input,
                             r->input_capacity - r->n_input, &n, err))
            return -1;
        *is_end = n == 0;
        r->n_input += n;
    }
    return 0;
}

static int grow_input(struct request *r, struct error *err)
{
    char *larger = realloc(r->input, 2 * r->input_capacity);
    if (!larger)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu bytes of '%s'",
                         2 * r->input_capacity, r->source.name);
    r->input = larger;
    r->input_capacity *= 2;
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

static int put_bytes(void *context, const char *bytes, size_t n, struct error *err)
{
    struct request *r = context;
    while (n > 0) {
        size_t room = OUTPUT_BYTES - r->n_output;
        size_t part = n < room ? n : room;
        memcpy(r->output + r->n_output, bytes, part);
        r->n_output += part;
        bytes += part;
        n -= part;
        if (r->n_output == OUTPUT_BYTES && flush_output(r, err))
            return -1;
    }
    return 0;
}

/* -- encode -------------------------------------------------------------------------- */

static int encode(struct request *r, struct error *err)
{
    struct encode_lanes *lanes = NULL;
    bool is_end = false;
    int rc = -1;
    if (encode_lanes_open(&lanes, r->tokenizer, r->with_special, err))
        return -1;
    while (!is_end) {
        if (fill_input(r, &is_end, err))
            goto done;
        size_t n =
            is_end ? r->n_input : encode_lanes_last_cut(lanes, r->input, r->n_input);
        if (!is_end && n == 0 && grow_input(r, err))
            goto done;
        if (encode_lanes_encode(lanes, r->input, n, put_bytes, r, err))
            goto done;
        memmove(r->input, r->input + n, r->n_input - n);
        r->n_input -= n;
    }
    rc = put_bytes(r, "\n", 1, err);
done:
    encode_lanes_close(lanes);
    return rc;
}

/* -- decode -------------------------------------------------------------------------- */

struct word {       // of the input, which may come in two pieces
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

static void take_digit(struct word *w, char c)
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
    while (!is_end) {
        if (fill_input(r, &is_end, err))
            return -1;
        for (size_t i = 0; i < r->n_input; i++) {
            if (!is_white(r->input[i])) {
                take_digit(&w, r->input[i]);
                continue;
            }
            if (w.n_bytes > 0 && put_token(r, &w, err))
                return -1;
            w.n_bytes = 0;
        }
        r->n_input = 0;
    }
    return w.n_bytes > 0 ? put_token(r, &w, err) : 0;
}

/* -- the commands -------------------------------------------------------------------- */

static int run(struct request *r, int (*convert)(struct request *, struct error *),
               struct error *err)
{
    int rc = -1;
    r->source.fd = -1;
    if (tokenizer_open(&r->tokenizer, r->tokenizer_name, err) || open_input(r, err))
        goto done;
    rc = convert(r, err);
    if (rc == 0)
        rc = flush_output(r, err);
done:
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
