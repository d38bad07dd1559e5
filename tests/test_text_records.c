#include "data/text/json_text.h"
#include "data/text/text_records.h"

#include "data_fixture.h"

#include <zlib.h>

/* Documents as "<...>", bad lines as "!line reason!", of short ones. */
struct log {
    char text[4096];
    int64_t n_bytes;  // of the document so far
    bool is_counting; // instead of keeping
};

static void put(struct log *l, const char *bytes, size_t n)
{
    size_t used = strlen(l->text);
    assert_true(used + n < sizeof l->text);
    memcpy(l->text + used, bytes, n);
}

static int take_bytes(void *context, const char *bytes, size_t n, struct error *err)
{
    struct log *l = context;
    (void)err;
    l->n_bytes += (int64_t)n;
    if (!l->is_counting)
        put(l, bytes, n);
    return 0;
}

static int take_end(void *context, int64_t line, struct error *err)
{
    struct log *l = context;
    char text[64];
    (void)err;
    snprintf(text, sizeof text, l->is_counting ? "<%lld bytes>%lld|" : "<%lld>%lld|",
             (long long)l->n_bytes, (long long)line);
    l->n_bytes = 0;
    put(l, text, strlen(text));
    return 0;
}

static int take_bad_line(void *context, int64_t line, const char *reason,
                         struct error *err)
{
    struct log *l = context;
    char text[128];
    (void)err;
    snprintf(text, sizeof text, "!%lld %s!", (long long)line, reason);
    l->n_bytes = 0;
    put(l, text, strlen(text));
    return 0;
}

static int watch_quietly(void *context, struct error *err)
{
    (void)context;
    (void)err;
    return 0;
}

static void check(const char *path, enum text_kind kind, bool is_counting,
                  const char *expected)
{
    struct log l = {.is_counting = is_counting};
    const struct text_record_sink sink = {take_bytes, take_end, take_bad_line, &l};
    const struct text_watch watch = {.tick = watch_quietly};
    const struct text_form form = {.kind = kind};
    struct text_input *in;
    struct error err;
    assert_ok(text_input_open(&in, path, &form, &watch, &err), err);
    assert_ok(text_records_read(in, &sink, &err), err);
    text_input_close(in);
    assert_string_equal(l.text, expected);
}

static void test_text_records__each_kind_has_its_documents(void **state)
{
    static const struct {
        enum text_kind kind;
        const char *text, *expected;
    } cases[] = {
        {TEXT_BLANK_LINES, "a\nb\n\n \nc\n", "a\nb<3>0|c<1>0|"},
        {TEXT_BLANK_LINES, "", ""},
        {TEXT_BLANK_LINES, "\n\n", ""},
        {TEXT_WHOLE_FILE, "a\n\nb\n", "a\n\nb\n<5>0|"},
        {TEXT_WHOLE_FILE, "", "<0>0|"},
        {TEXT_JSON_LINES, "a\n\nb", "a<1>1|<0>2|b<1>3|"},
        {TEXT_JSON_LINES, "a\r\nb\n", "a\r<2>1|b<1>2|"},
        {TEXT_JSON_LINES, "", ""},
        // an array, and objects over several lines, are taken apart
        {TEXT_JSON_LINES, "[{\"t\": \"]\\\"}\"},\n \"b,\", 5 ,[1, {}]\n]\n",
         "{\"t\": \"]\\\"}\"}<13>1|\"b,\"<4>2|5<1>2|[1, {}]<7>2|"},
        {TEXT_JSON_LINES, "[]", ""},
        {TEXT_JSON_LINES, "\n{\n\"t\": {}}\n{}x [y]",
         "{\n\"t\": {}}<10>2|{}<2>4|x<1>4|y<1>4|"},
        {TEXT_JSON_LINES, "[{}, {\n",
         "{}<2>1|{\n!1 the file ends inside the value that begins here!"},
        {TEXT_JSON_LINES, "[{},\n",
         "{}<2>1|!2 the file ends inside an array; is it cut off?!"},
        // a string that is not closed ends with its line: the rest is still read
        {TEXT_JSON_LINES, "[{\"t\": \"a},\n{\"t\": 1}]",
         "{\"t\": \"a},<10>1|{\"t\": 1}<8>2|"},
        {TEXT_JSON_LINES, "{\"t\": 1}\n[2]\n", "{\"t\": 1}<8>1|[2]<3>2|"},
    };
    const char *path = test_path(*state, "x");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        test_write_file(path, cases[i].text, strlen(cases[i].text));
        check(path, cases[i].kind, false, cases[i].expected);
    }
}

/* Packed, such a line is a small file; and it is never in memory here. */
static void test_text_records__a_line_past_the_limit_is_bad_and_passed_over(void **state)
{
    const char *path = test_path(*state, "x");
    static char much[1 << 20];
    memset(much, 'x', sizeof much);
    gzFile f = gzopen(path, "wb1");
    assert_non_null(f);
    for (size_t n = 0; n < TEXT_MAX_LINE_BYTES; n += sizeof much)
        assert_int_equal(gzwrite(f, much, sizeof much), sizeof much);
    assert_int_equal(gzputs(f, "\nsecond\n"), 8);
    for (size_t n = 0; n < TEXT_MAX_LINE_BYTES; n += sizeof much)
        assert_int_equal(gzwrite(f, much, sizeof much), sizeof much);
    assert_int_equal(gzputs(f, "y\nlast"), 6);
    assert_int_equal(gzclose(f), Z_OK);
    check(path, TEXT_JSON_LINES, true,
          "<268435456 bytes>1|<6 bytes>2|!3 longer than 256 MiB!<4 bytes>4|");
}

static void test_json_line__finds_the_text_or_says_what_is_wrong(void **state)
{
    static const struct {
        const char *line;
        enum json_line_kind kind;
        const char *text; // or the reason
    } cases[] = {
        {"{\"t\": \"a\\u00e9\\ud83d\\ude00 \\n\"}", JSON_LINE_TEXT,
         "a\xc3\xa9\xf0\x9f\x98\x80 \n"},
        {"  {\"n\": 123456789012345678901234567890, \"t\": \"\"} \r", JSON_LINE_TEXT, ""},
        {"", JSON_LINE_BLANK, ""},
        {" \t\r", JSON_LINE_BLANK, ""},
        {"{", JSON_LINE_BAD, "not JSON: "},
        {"{\"t\": \"a\"} x", JSON_LINE_BAD, "not JSON: "},
        {"{\"t\": \"\xff\"}", JSON_LINE_BAD, "not UTF-8"},
        {"{\"t\": \"a\", \"t\": \"b\"}", JSON_LINE_BAD, "not JSON: "},
        {"{\"t\": \"\\ud800\"}", JSON_LINE_BAD, "not JSON: "},
        {"[\"t\"]", JSON_LINE_BAD, "not a JSON object or string"},
        {"{\"u\": \"a\"}", JSON_LINE_BAD,
         "no key \"t\"; there is \"u\": name the key of the text with --json_key"},
        {"{\"n\": 1, \"a\": \"\", \"b\\n\": \"\"}", JSON_LINE_BAD,
         "no key \"t\"; there is \"a\", \"b?\": name the key"},
        {"{\"n\": 1}", JSON_LINE_BAD, "no key \"t\"; there is \"n\": name the key"},
        {"{}", JSON_LINE_BAD, "no key \"t\""},
        {"\"a text\"", JSON_LINE_TEXT, "a text"},
        {"5", JSON_LINE_BAD, "not a JSON object or string"},
        {"{\"t\": null}", JSON_LINE_BAD, "no string under the key \"t\""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_line got;
        size_t n = strlen(cases[i].text);
        assert_int_equal(
            json_line_read(&got, cases[i].line, strlen(cases[i].line), "t", false),
            cases[i].kind);
        if (cases[i].kind == JSON_LINE_TEXT) {
            assert_int_equal(got.n_text, n);
            assert_memory_equal(got.text, cases[i].text, n);
        } else if (cases[i].kind == JSON_LINE_BAD) {
            assert_int_equal(strncmp(got.reason, cases[i].text, n), 0);
        }
        json_line_release(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_text_records__each_kind_has_its_documents),
        data_test(test_text_records__a_line_past_the_limit_is_bad_and_passed_over),
        data_test(test_json_line__finds_the_text_or_says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
