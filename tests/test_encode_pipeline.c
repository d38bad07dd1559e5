#include "data/text/encode_pipeline.h"

#include "data_fixture.h"

/* -- what the sink sees, as one row of numbers --------------------------------------- */

enum { END_OF_DOCUMENT = -1, BAD_LINE = -2 };

struct record {
    int32_t *at;
    int64_t n, capacity;
    int64_t n_left;   // calls until the sink, or the watch, fails; -1: never
    char reason[256]; // of the last bad line
};

static int put(struct record *r, int32_t value)
{
    if (r->n == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 1 << 16;
        r->at = realloc(r->at, (size_t)r->capacity * sizeof *r->at);
        assert_non_null(r->at);
    }
    r->at[r->n++] = value;
    return 0;
}

static int take_tokens(void *context, const int32_t *tokens, int64_t n, struct error *err)
{
    struct record *r = context;
    if (r->n_left >= 0 && r->n_left-- == 0)
        return error_set(err, ERROR_RUNTIME, "the disk is full");
    for (int64_t i = 0; i < n; i++)
        put(r, tokens[i]);
    return 0;
}

static int take_end(void *context, struct error *err)
{
    (void)err;
    return put(context, END_OF_DOCUMENT);
}

static int take_bad_line(void *context, const char *path, int64_t line,
                         const char *reason, struct error *err)
{
    struct record *r = context;
    (void)path;
    (void)err;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    put(r, BAD_LINE);
    return put(r, (int32_t)line);
}

static int refuse_bad_line(void *context, const char *path, int64_t line,
                           const char *reason, struct error *err)
{
    (void)context;
    return error_set(err, ERROR_INPUT, "%s:%lld: %s", path, (long long)line, reason);
}

static int watch_quietly(void *context, struct error *err)
{
    (void)context;
    (void)err;
    return 0;
}

/* -- texts and tokenizers ------------------------------------------------------------ */

/* A byte-level BPE with a few merges: of letters, and of white space, so that a text cut
 * in a wrong place gives other tokens. */
static void write_tokenizer(const char *path)
{
    static const char *const merged[] = {"th",  "he",   " t",   " th", " the",
                                         "  ",  "\n\n", "    ", "in",  " a",
                                         "\n ", "it",   "'s",   "..",  "ab"};
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int id = 0; id < 256 + (int)ARRAY_LEN(merged); id++) {
        unsigned char bytes[8] = {(unsigned char)id};
        size_t n = 1;
        if (id >= 256) {
            n = strlen(merged[id - 256]);
            memcpy(bytes, merged[id - 256], n);
        }
        for (size_t i = 0; i < n; i += 3) {
            uint32_t bits =
                (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
            fprintf(f, "%c%c%c%c", digits[bits >> 18], digits[bits >> 12 & 63],
                    i + 1 < n ? digits[bits >> 6 & 63] : '=',
                    i + 2 < n ? digits[bits & 63] : '=');
        }
        fprintf(f, " %d\n", id);
    }
    assert_int_equal(fclose(f), 0);
}

static struct tokenizer *open_tokenizer(const char *dir)
{
    const char *path = test_path(dir, "small.tiktoken");
    struct tokenizer *t;
    struct error err;
    write_tokenizer(path);
    assert_ok(tokenizer_open(&t, path, &err), err);
    return t;
}

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525 + 1013904223;
    return *x >> 8;
}

/* Words, runs of white space of every kind, other scripts and stray bytes; no blank line
 * if `is_one_document`. */
static size_t make_text(char *text, size_t n, bool is_one_document)
{
    static const char *const pieces[] = {
        "the",          " the",     " then it's",
        "    ",         "\n",       "\n  ",
        "..",           "\t",       " in",
        "ab",           "7",        "\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82",
        "\xe3\x80\x80", "\xc2\xa0", "\xff",
        "\xe2\x80\x83", "a",        " a",
        "\r\n",         "'",        "\n\n"};
    uint32_t x = 42;
    size_t used = 0;
    while (used + 32 < n) {
        const char *piece =
            pieces[next_random(&x) % (ARRAY_LEN(pieces) - is_one_document)];
        memcpy(text + used, piece, strlen(piece));
        used += strlen(piece);
    }
    return used;
}

/* A JSON lines file with every kind of bad line among good ones. */
static void write_json_lines(const char *path, int n_lines)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 1; i <= n_lines; i++)
        switch (i % 50) {
        case 7:
            fprintf(f, "{\"text\": 5}\n");
            break;
        case 17:
            fprintf(f, "no JSON\n");
            break;
        case 27:
            fprintf(f, "{\"text\": \"\"}\n");
            break;
        case 37:
            fprintf(f, " \n");
            break;
        default:
            fprintf(f, "{\"id\": %d, \"text\": \"the line\\n %d it's\\u0000 in\"}\n", i,
                    i);
        }
    assert_int_equal(fclose(f), 0);
}

static struct encode_settings make_settings(const struct tokenizer *t, int n_threads,
                                            struct record *r)
{
    return (struct encode_settings){
        .tokenizer = t,
        .json_key = "text",
        .encoding = "bytes", // the texts here are any bytes
        .n_threads = n_threads,
        .sink = {take_tokens, take_end, take_bad_line, r},
        .watch = {.tick = watch_quietly, .context = r},
    };
}

/* All of the file through a pipeline of so many threads. */
static void run(const struct tokenizer *t, int n_threads, const char *path,
                enum text_kind kind, struct record *r, struct encode_counts *counts)
{
    const struct encode_settings settings = make_settings(t, n_threads, r);
    struct encode_pipeline *p;
    struct error err;
    assert_ok(encode_pipeline_open(&p, &settings, &err), err);
    assert_ok(encode_pipeline_read(p, path, kind, &err), err);
    assert_ok(encode_pipeline_finish(p, &err), err);
    encode_pipeline_counts(p, counts);
    encode_pipeline_close(p);
}

/* -- tests
 * ------------------------------------------------------------------------------- */

/* The text is several batches long; cut in a wrong place it would give other tokens. */
static void test_encode_pipeline__a_long_document_encodes_as_the_whole(void **state)
{
    enum { N = 3000000 };
    struct tokenizer *t = open_tokenizer(*state);
    struct tokenizer *bytes;
    const char *path = test_path(*state, "x");
    char *text = malloc(N);
    size_t n = make_text(text, N, true);
    struct error err;
    test_write_file(path, text, n);
    assert_ok(tokenizer_open(&bytes, TOKENIZER_BYTES, &err), err);
    for (int is_bpe = 0; is_bpe < 2; is_bpe++) {
        const struct tokenizer *used = is_bpe ? t : bytes;
        struct encoder *e;
        struct token_list whole = {0};
        struct record got = {.n_left = -1};
        struct encode_counts counts;
        assert_ok(encoder_open(&e, used, &err), err);
        assert_ok(encoder_encode(e, text, n, false, &whole, &err), err);
        run(used, 2, path, TEXT_WHOLE_FILE, &got, &counts);
        assert_int_equal(got.n, whole.n + 1);
        assert_memory_equal(got.at, whole.ids, (size_t)whole.n * sizeof *whole.ids);
        assert_int_equal(got.at[whole.n], END_OF_DOCUMENT);
        assert_int_equal(counts.n_documents, 1);
        assert_int_equal(counts.n_tokens, whole.n);
        assert_int_equal(counts.n_text_bytes, n);
        encoder_close(e);
        token_list_release(&whole);
        free(got.at);
    }
    tokenizer_close(t);
    tokenizer_close(bytes);
    free(text);
}

static void test_encode_pipeline__the_result_does_not_depend_on_threads(void **state)
{
    enum { N = 2000000 };
    static const int threads[] = {1, 2, 3, 16};
    struct tokenizer *t = open_tokenizer(*state);
    const char *text_path = test_path(*state, "text"),
               *lines = test_path(*state, "lines");
    char *text = malloc(N);
    test_write_file(text_path, text, make_text(text, N, false));
    write_json_lines(lines, 30000);
    for (int kind = TEXT_BLANK_LINES; kind <= TEXT_JSON_LINES; kind++) {
        const char *path = kind == TEXT_JSON_LINES ? lines : text_path;
        struct record first = {.n_left = -1};
        struct encode_counts first_counts;
        run(t, 1, path, (enum text_kind)kind, &first, &first_counts);
        assert_true(first.n > 100000);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
            struct record other = {.n_left = -1};
            struct encode_counts counts;
            run(t, threads[i], path, (enum text_kind)kind, &other, &counts);
            assert_int_equal(other.n, first.n);
            assert_memory_equal(other.at, first.at, (size_t)first.n * sizeof *first.at);
            assert_memory_equal(&counts, &first_counts, sizeof counts);
            free(other.at);
        }
        free(first.at);
    }
    tokenizer_close(t);
    free(text);
}

static void test_encode_pipeline__every_line_is_counted_once(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x");
    struct record r = {.n_left = -1};
    struct encode_counts counts;
    int32_t line = 0;
    write_json_lines(path, 30000);
    run(t, 2, path, TEXT_JSON_LINES, &r, &counts);
    assert_int_equal(counts.n_bad_lines, 2 * 600);
    assert_int_equal(counts.n_empty, 600);
    assert_int_equal(counts.n_documents, 30000 - 4 * 600);
    for (int64_t i = 0; i < r.n; i++)
        if (r.at[i] == BAD_LINE) {
            int32_t expected = line % 50 == 7 ? line + 10 : line == 0 ? 7 : line + 40;
            line = r.at[++i];
            assert_int_equal(line, expected);
        }
    assert_non_null(strstr(r.reason, "not JSON"));
    free(r.at);
    tokenizer_close(t);
}

/* The first in the order of the text, though the second file is opened long before the
 * line is parsed. */
static void test_encode_pipeline__the_first_error_is_the_one_reported(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x"), *missing = test_path(*state, "missing");
    for (int i = 0; i < 20; i++) {
        struct record r = {.n_left = -1};
        struct encode_settings settings = make_settings(t, 2, &r);
        struct encode_pipeline *p;
        struct error err = {.text = ""};
        settings.sink.bad_line = refuse_bad_line;
        write_json_lines(path, 7 + 400 * i);
        assert_ok(encode_pipeline_open(&p, &settings, &err), err);
        int rc = encode_pipeline_read(p, path, TEXT_JSON_LINES, &err);
        if (rc == 0)
            rc = encode_pipeline_read(p, missing, TEXT_WHOLE_FILE, &err);
        assert_int_equal(rc, -1);
        assert_says(err, "x:7: no string under the key");
        encode_pipeline_close(p);
        free(r.at);
    }
    tokenizer_close(t);
}

/* Even while the reader waits for a pipe that says nothing more. */
static void test_encode_pipeline__a_sink_that_fails_ends_the_reading(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *fifo = test_path(*state, "fifo");
    struct record r = {.n_left = 0};
    const struct encode_settings settings = make_settings(t, 2, &r);
    struct encode_pipeline *p;
    struct error err = {.text = ""};
    enum { MUCH = 1 << 19 };
    char *text = malloc(MUCH);
    make_text(text, MUCH, true);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR);
    assert_true(fcntl(fd, F_SETPIPE_SZ, MUCH) >= MUCH);
    assert_int_equal(fs_write_exact(fd, text, MUCH), 0);
    assert_ok(encode_pipeline_open(&p, &settings, &err), err);
    assert_int_equal(encode_pipeline_read(p, fifo, TEXT_WHOLE_FILE, &err), -1);
    assert_says(err, "the disk is full");
    encode_pipeline_close(p);
    close(fd);
    free(text);
    tokenizer_close(t);
}

static int stop_after(void *context, struct error *err)
{
    struct record *r = context;
    return r->n_left-- > 0 ? 0 : error_set(err, ERROR_STOPPED, "stopped");
}

static void test_encode_pipeline__the_watch_stops_it_at_any_moment(void **state)
{
    enum { N = 4000000 };
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x");
    char *text = malloc(N);
    test_write_file(path, text, make_text(text, N, false));
    for (int64_t n = 0; n < 12; n++) {
        struct record r = {.n_left = -1}, watch = {.n_left = n};
        struct encode_settings settings = make_settings(t, 2, &r);
        struct encode_pipeline *p;
        struct error err = {.text = ""};
        settings.watch = (struct text_watch){.tick = stop_after, .context = &watch};
        assert_ok(encode_pipeline_open(&p, &settings, &err), err);
        assert_int_equal(encode_pipeline_read(p, path, TEXT_BLANK_LINES, &err), -1);
        assert_int_equal(err.kind, ERROR_STOPPED);
        encode_pipeline_close(p);
        free(r.at);
    }
    free(text);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_encode_pipeline__a_long_document_encodes_as_the_whole),
        data_test(test_encode_pipeline__the_result_does_not_depend_on_threads),
        data_test(test_encode_pipeline__every_line_is_counted_once),
        data_test(test_encode_pipeline__the_first_error_is_the_one_reported),
        data_test(test_encode_pipeline__a_sink_that_fails_ends_the_reading),
        data_test(test_encode_pipeline__the_watch_stops_it_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
