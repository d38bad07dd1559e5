#include "data/text/encode_pipeline.h"

#include "data_fixture.h"

enum { END_OF_DOCUMENT = 1000000 }; // no token of the texts here

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

struct result {
    struct token_list tokens;
    struct token_sink sink;
    struct bad_lines bad_lines;
    struct encode_counts counts;
};

static struct encode_settings make_settings(const struct tokenizer *t, int n_threads,
                                            struct result *r)
{
    *r = (struct result){.sink = {.list = &r->tokens, .eos = END_OF_DOCUMENT}};
    return (struct encode_settings){
        .tokenizer = t,
        .json_key = "text",
        .encoding = "bytes", // the texts here are any bytes
        .n_threads = n_threads,
        .sink = &r->sink,
        .bad_lines = &r->bad_lines,
    };
}

/* All of the file through a pipeline of so many threads. */
static void run(const struct tokenizer *t, int n_threads, const char *path,
                enum text_kind kind, struct result *r)
{
    const struct encode_settings settings = make_settings(t, n_threads, r);
    struct encode_pipeline *p;
    struct error err;
    assert_ok(encode_pipeline_open(&p, &settings, &err), err);
    assert_ok(encode_pipeline_read(p, path, kind, &err), err);
    assert_ok(encode_pipeline_finish(p, &err), err);
    encode_pipeline_counts(p, &r->counts);
    encode_pipeline_close(p);
}

/* -- tests --------------------------------------------------------------------------- */

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
        struct result got;
        assert_ok(encoder_open(&e, used, &err), err);
        assert_ok(encoder_encode(e, text, n, false, &whole, &err), err);
        run(used, 2, path, TEXT_WHOLE_FILE, &got);
        assert_int_equal(got.tokens.n, whole.n + 1);
        assert_memory_equal(got.tokens.ids, whole.ids,
                            (size_t)whole.n * sizeof *whole.ids);
        assert_int_equal(got.tokens.ids[whole.n], END_OF_DOCUMENT);
        assert_int_equal(got.counts.n_documents, 1);
        assert_int_equal(got.counts.n_tokens, whole.n);
        assert_int_equal(got.counts.n_text_bytes, n);
        encoder_close(e);
        token_list_release(&whole);
        token_list_release(&got.tokens);
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
        struct result first;
        run(t, 1, path, (enum text_kind)kind, &first);
        assert_true(first.tokens.n > 100000);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
            struct result other;
            run(t, threads[i], path, (enum text_kind)kind, &other);
            assert_int_equal(other.tokens.n, first.tokens.n);
            assert_memory_equal(other.tokens.ids, first.tokens.ids,
                                (size_t)first.tokens.n * sizeof *first.tokens.ids);
            assert_memory_equal(&other.counts, &first.counts, sizeof first.counts);
            assert_string_equal(other.bad_lines.first, first.bad_lines.first);
            token_list_release(&other.tokens);
        }
        token_list_release(&first.tokens);
    }
    tokenizer_close(t);
    free(text);
}

static void test_encode_pipeline__every_line_is_counted_once(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x");
    struct result r;
    write_json_lines(path, 30000);
    run(t, 2, path, TEXT_JSON_LINES, &r);
    assert_int_equal(r.counts.n_bad_lines, 2 * 600);
    assert_int_equal(r.bad_lines.n, 2 * 600);
    assert_int_equal(r.counts.n_empty, 600);
    assert_int_equal(r.counts.n_documents, 30000 - 4 * 600);
    assert_non_null(strstr(r.bad_lines.first, "x:7, no string under the key"));
    token_list_release(&r.tokens);
    tokenizer_close(t);
}

/* Lines are numbered through all batches of a file. */
static void test_encode_pipeline__a_bad_line_is_named(void **state)
{
    enum { N_LINES = 40000 };
    static const int bad[] = {1, 2, 999, 16384, 16385, 32768, 39999, N_LINES};
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct result r;
        char expected[64];
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int line = 1; line <= N_LINES; line++)
            fputs(line == bad[i] ? "no JSON\n" : "{\"text\": \"the text\"}\n", f);
        assert_int_equal(fclose(f), 0);
        run(t, 2, path, TEXT_JSON_LINES, &r);
        assert_int_equal(r.bad_lines.n, 1);
        snprintf(expected, sizeof expected, "x:%d, not JSON", bad[i]);
        assert_non_null(strstr(r.bad_lines.first, expected));
        token_list_release(&r.tokens);
    }
    tokenizer_close(t);
}

/* Packed or not, UTF-8 or not: every byte, and special tokens for what they are. */
static void test_encode_pipeline__a_raw_file_is_its_bytes(void **state)
{
    static const char text[] = "\x1f\x8b\x08 {\"a\": 1}\n\n\xff\xfe<|endoftext|>\0b";
    enum { N_BYTES = sizeof text - 1, N_EOS = sizeof "<|endoftext|>" - 1 };
    const char *path = test_path(*state, "x");
    struct tokenizer *t;
    struct error err;
    test_write_file(path, text, N_BYTES);
    assert_ok(tokenizer_open(&t, TOKENIZER_BYTES, &err), err);
    for (int with_special = 0; with_special < 2; with_special++) {
        struct result r;
        struct encode_settings settings = make_settings(t, 2, &r);
        struct encode_pipeline *p;
        settings.encoding = NULL;
        settings.with_special = with_special;
        r.sink.eos = -1;
        assert_ok(encode_pipeline_open(&p, &settings, &err), err);
        assert_ok(encode_pipeline_read(p, path, TEXT_RAW_FILE, &err), err);
        assert_ok(encode_pipeline_finish(p, &err), err);
        encode_pipeline_close(p);
        assert_int_equal(r.tokens.n, with_special ? N_BYTES - N_EOS + 1 : N_BYTES);
        for (int64_t i = 0; i < 16; i++)
            assert_int_equal(r.tokens.ids[i], (uint8_t)text[i]);
        assert_int_equal(r.tokens.ids[r.tokens.n - 2], 0);
        assert_int_equal(r.tokens.ids[r.tokens.n - 1], 'b');
        if (with_special)
            assert_int_equal(r.tokens.ids[r.tokens.n - 3], tokenizer_eos(t));
        token_list_release(&r.tokens);
    }
    tokenizer_close(t);
}

/* The first in the order of the text, though the second file is opened long before the
 * line is parsed. */
static void test_encode_pipeline__the_first_error_is_the_one_reported(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x"), *missing = test_path(*state, "missing");
    for (int i = 0; i < 20; i++) {
        struct result r;
        const struct encode_settings settings = make_settings(t, 2, &r);
        struct encode_pipeline *p;
        struct error err = {.text = ""};
        r.bad_lines.is_strict = true;
        write_json_lines(path, 7 + 400 * i);
        assert_ok(encode_pipeline_open(&p, &settings, &err), err);
        int rc = encode_pipeline_read(p, path, TEXT_JSON_LINES, &err);
        if (rc == 0)
            rc = encode_pipeline_read(p, missing, TEXT_WHOLE_FILE, &err);
        assert_int_equal(rc, -1);
        assert_says(err, "x:7: no string under the key");
        encode_pipeline_close(p);
        token_list_release(&r.tokens);
    }
    tokenizer_close(t);
}

/* Even while the reader waits for a pipe that says nothing more. */
static void test_encode_pipeline__a_sink_that_fails_ends_the_reading(void **state)
{
    struct tokenizer *t = open_tokenizer(*state);
    const char *fifo = test_path(*state, "fifo");
    struct result r;
    const struct encode_settings settings = make_settings(t, 2, &r);
    struct encode_pipeline *p;
    struct error err = {.text = ""};
    int full = open("/dev/full", O_WRONLY);
    r.sink = (struct token_sink){.eos = -1};
    assert_ok(token_text_open(&r.sink.text, full, "the ids", &err), err);
    enum { MUCH = 1 << 19 };
    char *text = malloc(MUCH);
    make_text(text, MUCH, true);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR);
    assert_true(fcntl(fd, F_SETPIPE_SZ, MUCH) >= MUCH);
    assert_int_equal(fs_write_exact(fd, text, MUCH), 0);
    assert_ok(encode_pipeline_open(&p, &settings, &err), err);
    assert_int_equal(encode_pipeline_read(p, fifo, TEXT_WHOLE_FILE, &err), -1);
    assert_says(err, "cannot write the ids: No space left");
    encode_pipeline_close(p);
    token_text_close(r.sink.text);
    close(full);
    close(fd);
    free(text);
    tokenizer_close(t);
}

static int stop_after(void *context, struct error *err)
{
    int64_t *n_left = context;
    return (*n_left)-- > 0 ? 0 : error_set(err, ERROR_STOPPED, "stopped");
}

static void test_encode_pipeline__the_watch_stops_it_at_any_moment(void **state)
{
    enum { N = 4000000 };
    struct tokenizer *t = open_tokenizer(*state);
    const char *path = test_path(*state, "x");
    char *text = malloc(N);
    test_write_file(path, text, make_text(text, N, false));
    for (int64_t n = 0; n < 12; n++) {
        struct result r;
        int64_t n_left = n;
        struct encode_settings settings = make_settings(t, 2, &r);
        struct encode_pipeline *p;
        struct error err = {.text = ""};
        settings.watch = (struct text_watch){.tick = stop_after, .context = &n_left};
        assert_ok(encode_pipeline_open(&p, &settings, &err), err);
        assert_int_equal(encode_pipeline_read(p, path, TEXT_BLANK_LINES, &err), -1);
        assert_int_equal(err.kind, ERROR_STOPPED);
        encode_pipeline_close(p);
        token_list_release(&r.tokens);
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
        data_test(test_encode_pipeline__a_bad_line_is_named),
        data_test(test_encode_pipeline__a_raw_file_is_its_bytes),
        data_test(test_encode_pipeline__the_first_error_is_the_one_reported),
        data_test(test_encode_pipeline__a_sink_that_fails_ends_the_reading),
        data_test(test_encode_pipeline__the_watch_stops_it_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
