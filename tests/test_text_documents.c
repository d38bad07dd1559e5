#include "data/text/text_documents.h"

#include "data_fixture.h"

#include <zlib.h>

struct seen {
    char text[1024];
    int64_t n_read;
    int64_t n_progress_left; // calls until progress() stops the reading; -1: never
};

static void put(struct seen *s, const char *bytes, size_t n)
{
    size_t used = strlen(s->text);
    assert_true(used + n < sizeof s->text);
    memcpy(s->text + used, bytes, n);
}

static int append(void *context, const char *bytes, size_t n, struct error *err)
{
    (void)err;
    assert_true(n > 0);
    put(context, bytes, n);
    return 0;
}

static int end_document(void *context, struct error *err)
{
    (void)err;
    put(context, "|", 1);
    return 0;
}

static int bad_line(void *context, const char *path, int64_t line, const char *reason,
                    struct error *err)
{
    char text[128];
    (void)err;
    assert_non_null(strstr(path, "/x"));
    snprintf(text, sizeof text, "!%lld %.6s!", (long long)line, reason);
    put(context, text, strlen(text));
    return 0;
}

static int progress(void *context, size_t n, struct error *err)
{
    struct seen *s = context;
    s->n_read += (int64_t)n;
    if (s->n_progress_left >= 0 && s->n_progress_left-- == 0)
        return error_set(err, ERROR_STOPPED, "stopped");
    return 0;
}

static void write_gzip(const char *path, const char *text)
{
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzputs(f, text), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static void test_text_documents__lines_of_json_are_parsed(void **state)
{
    struct seen seen = {.n_progress_left = -1};
    const struct text_sink sink = {append, end_document, bad_line, progress, &seen};
    const char *path = test_path(*state, "x");
    struct error err;
    const char *text = "{\"t\": \"one\"}\nnothing\n\n{\"t\": \"\"}\n{\"t\": \"two\"}";
    write_gzip(path, text);
    assert_ok(text_documents_read(
                  path, &(struct text_form){.kind = TEXT_JSON_LINES, .json_key = "t"},
                  &sink, &err),
              err);
    assert_string_equal(seen.text, "one|!2 not JS!|two|");
    assert_int_equal(seen.n_read, strlen(text)); // of text, not as packed
}

static void test_text_documents__other_kinds_pass_as_they_are(void **state)
{
    struct seen seen = {.n_progress_left = -1};
    const struct text_sink sink = {append, end_document, bad_line, progress, &seen};
    const char *path = test_path(*state, "x");
    struct error err;
    write_gzip(path, "{\"t\": 1}\n\nb");
    assert_ok(text_documents_read(
                  path, &(struct text_form){.kind = TEXT_BLANK_LINES, .json_key = "t"},
                  &sink, &err),
              err);
    assert_ok(text_documents_read(
                  path, &(struct text_form){.kind = TEXT_WHOLE_FILE, .json_key = "t"},
                  &sink, &err),
              err);
    assert_string_equal(seen.text, "{\"t\": 1}|b|{\"t\": 1}\n\nb|");
}

static void test_text_documents__progress_can_stop_it(void **state)
{
    const char *path = test_path(*state, "x");
    write_gzip(path, "a\n\nb");
    for (int64_t n = 0; n < 2; n++) {
        struct seen seen = {.n_progress_left = n};
        const struct text_sink sink = {append, end_document, bad_line, progress, &seen};
        struct error err = {.text = ""};
        assert_int_equal(text_documents_read(path,
                                             &(struct text_form){.kind = TEXT_BLANK_LINES,
                                                                 .json_key = "t"},
                                             &sink, &err),
                         -1);
        assert_int_equal(err.kind, ERROR_STOPPED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_text_documents__lines_of_json_are_parsed),
        data_test(test_text_documents__other_kinds_pass_as_they_are),
        data_test(test_text_documents__progress_can_stop_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
