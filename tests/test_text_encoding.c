#include "data/text/text_encoding.h"

#include "base/utf8.h"
#include "data/text/text_input.h"
#include "data_fixture.h"

#include <iconv.h>

/* Some sentences of each language, long enough to be told. */
static const char chinese[] =
    "中国的人民和世界的人民都希望和平。我们今天要学习新的知识,也要参加社会的工作。\n"
    "这本书讲述了一个年轻人在城市里生活的故事,他每天早上六点钟起床,然后去公园跑步。\n\n"
    "春天来了,花园里的花都开了,孩子们在草地上玩耍。老师说:明天我们去博物馆参观。\n";
static const char traditional[] =
    "臺灣的人民和世界的人民都希望和平。我們今天要學習新的知識,也要參加社會的工作。\n"
    "這本書講述了一個年輕人在城市裡生活的故事,他每天早上六點鐘起床,然後去公園跑步。\n";
static const char japanese[] =
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n"
    "何でも薄暗いじめじめした所でニャーニャー泣いていた事だけは記憶している。\n";
static const char korean[] =
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.\n"
    "인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동한다.\n";
static const char russian[] =
    "Все люди рождаются свободными и равными в своем достоинстве и правах.\n"
    "Они наделены разумом и совестью и должны поступать в духе братства.\n";
static const char french[] =
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.\n"
    "Ils sont doués de raison et doivent agir dans un esprit de fraternité.\n";

struct bytes {
    char at[8192];
    size_t n;
};

static struct bytes convert(const char *text, const char *encoding)
{
    struct bytes out;
    char *from = (char *)(uintptr_t)text, *to = out.at;
    size_t left = strlen(text), room = sizeof out.at;
    iconv_t cd = iconv_open(encoding, "UTF-8");
    assert_true(cd != (iconv_t)-1);
    assert_true(iconv(cd, &from, &left, &to, &room) != (size_t)-1);
    assert_true(iconv(cd, NULL, NULL, &to, &room) != (size_t)-1);
    iconv_close(cd);
    out.n = (size_t)(to - out.at);
    return out;
}

static const struct {
    const char *text, *encoding, *guess;
} languages[] = {
    {chinese, "GBK", "GBK"},
    {chinese, "GB18030", "GBK"},
    {chinese, "UTF-16", "UTF-16LE"},
    {chinese, "UTF-16LE", "UTF-16LE"},
    {chinese, "UTF-16BE", "UTF-16BE"},
    {chinese, "UTF-32LE", "UTF-32LE"},
    {chinese, "UTF-32BE", "UTF-32BE"},
    {traditional, "BIG5", "BIG5"},
    {japanese, "SHIFT_JIS", "SHIFT_JIS"},
    {japanese, "EUC-JP", "EUC-JP"},
    {korean, "EUC-KR", "EUC-KR"},
    {japanese, "ISO-2022-JP", "ISO-2022-JP"},
    {korean, "ISO-2022-KR", "ISO-2022-KR"},
    {korean, "UTF-16LE", "UTF-16LE"},
    {russian, "WINDOWS-1251", "WINDOWS-1251"},
    {russian, "KOI8-R", "KOI8-R"},
    {russian, "UTF-16BE", "UTF-16BE"},
    {french, "ISO-8859-1", "WINDOWS-1252"},
    {french, "UTF-16LE", "UTF-16LE"},
    {french, "UTF-16BE", "UTF-16BE"},
    {french, "UTF-32", "UTF-32LE"},
};

static void test_text_guess__names_the_encoding(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
        struct bytes b = convert(languages[i].text, languages[i].encoding);
        size_t at;
        const char *guess = text_guess_switching(b.at, b.n, &at);
        if (!guess)
            guess = text_guess_encoding(b.at, b.n);
        if (!guess || strcmp(guess, languages[i].guess) != 0)
            fail_msg("%s (text %zu) is taken for %s", languages[i].encoding, i,
                     guess ? guess : "nothing");
    }
}

/* The text at `path`; fails with the sentence in *err. */
static int read_text(const char *path, enum text_kind kind, const char *encoding,
                     size_t step, struct bytes *out, struct error *err)
{
    const struct text_form form = {.kind = kind, .encoding = encoding};
    const struct text_watch watch = {.tick = NULL};
    struct text_input *in;
    size_t n = 1;
    int rc = text_input_open(&in, path, &form, &watch, err);
    for (out->n = 0; rc == 0 && n > 0; out->n += n) {
        assert_true(out->n + step <= sizeof out->at);
        rc = text_input_read(in, out->at + out->n, step, &n, err);
    }
    text_input_close(in);
    return rc;
}

static void test_text_input__an_encoding_is_refused_or_converted(void **state)
{
    const char *path = test_path(*state, "x");
    struct bytes got;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
        const char *text = languages[i].text;
        struct bytes b = convert(text, languages[i].encoding);
        test_write_file(path, b.at, b.n);
        assert_int_equal(read_text(path, TEXT_WHOLE_FILE, NULL, 100, &got, &err), -1);
        assert_non_null(strstr(err.text, "is not UTF-8 at byte "));
        assert_non_null(strstr(err.text, languages[i].guess));
        assert_int_equal(read_text(path, TEXT_JSON_LINES, NULL, 100, &got, &err), -1);
        assert_non_null(strstr(err.text, languages[i].guess));
        for (size_t step = 1; step < 200; step += 99) { // as it is, and as it is guessed
            assert_ok(
                read_text(path, TEXT_WHOLE_FILE, languages[i].encoding, step, &got, &err),
                err);
            assert_int_equal(got.n, strlen(text));
            assert_memory_equal(got.at, text, got.n);
        }
        assert_ok(read_text(path, TEXT_WHOLE_FILE, languages[i].guess, 64, &got, &err),
                  err);
        assert_int_equal(got.n, strlen(text));
        assert_memory_equal(got.at, text, got.n);
        assert_ok(read_text(path, TEXT_WHOLE_FILE, "bytes", 64, &got, &err), err);
        assert_int_equal(got.n, b.n);
        assert_memory_equal(got.at, b.at, b.n);
    }
}

static void test_text_input__bad_bytes_are_told_with_their_place(void **state)
{
    static const struct {
        const char *bytes;
        enum text_kind kind;
        const char *encoding, *says; // NULL: it is fine
    } cases[] = {
        {"plain\n", TEXT_WHOLE_FILE, NULL, NULL},
        {"ab\xff"
         "cd efgh ijkl mnop",
         TEXT_WHOLE_FILE, NULL, "not UTF-8 at byte 2"},
        {"ab\xe4\xb8", TEXT_WHOLE_FILE, NULL,
         "ends in the middle of a character, at byte 2"},
        {"\xed\xa0\x80", TEXT_WHOLE_FILE, "utf-8", "not UTF-8 at byte 0"}, // a surrogate
        {"\xc0\xaf", TEXT_WHOLE_FILE, NULL, "not UTF-8 at byte 0"},        // overlong
        {"\xd6\xd0\xb9\xfa\x81", TEXT_WHOLE_FILE, "GBK", "ends after 5 bytes"},
        {"\xd6\xd0\xff\xff", TEXT_WHOLE_FILE, "GBK", "byte 2 of its text begins no"},
        {"x", TEXT_WHOLE_FILE, "GBQ", "the encoding 'GBQ' is not known"},
        {"x", TEXT_WHOLE_FILE, "GBK//IGNORE", "is not known"},
        {"x", TEXT_WHOLE_FILE, "", "is not known"},
        // of lines of JSON one may be bad; more than half of several are an encoding
        {"{\"a\": \"b\xe9\"}\n{}\n", TEXT_JSON_LINES, NULL, NULL},
        {"{\"\xd6\xd0\": 1}\n{\"\xb9\xfa\": 2}\n", TEXT_JSON_LINES, NULL, "GBK"},
    };
    const char *path = test_path(*state, "x");
    struct bytes got;
    struct error err = {.text = ""};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        test_write_file(path, cases[i].bytes, strlen(cases[i].bytes));
        int rc = read_text(path, cases[i].kind, cases[i].encoding, 64, &got, &err);
        if (rc != (cases[i].says ? -1 : 0) ||
            (cases[i].says && !strstr(err.text, cases[i].says)))
            fail_msg("case %zu: %d, %s", i, rc, err.text);
    }
}

/* Past the start that is looked into as a whole. */
static void test_text_input__a_late_bad_byte_is_found(void **state)
{
    enum { N = 200000 };
    const char *path = test_path(*state, "x");
    char *text = malloc(N);
    memset(text, 'a', N);
    memcpy(text + 150000, "\n\xd6\xd0\xb9\xfa\xc8\xcb\xc3\xf1\n", 10);
    test_write_file(path, text, N);
    const struct text_form form = {.kind = TEXT_BLANK_LINES};
    const struct text_watch watch = {.tick = NULL};
    struct text_input *in;
    struct error err = {.text = ""};
    size_t n = 1;
    int rc = text_input_open(&in, path, &form, &watch, &err);
    while (rc == 0 && n > 0)
        rc = text_input_read(in, text, 1000, &n, &err);
    text_input_close(in);
    free(text);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(err.text, "not UTF-8 at byte 150001"));
    assert_non_null(strstr(err.text, "GBK"));
}

/* Character by character, the slow way. */
static int64_t find_bad_slowly(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = bytes[i] ? utf8_decode(bytes + i, n - i, &code) : 0;
        if (length == 0)
            return (int64_t)i;
        i += length;
    }
    return -1;
}

static void test_utf8_check__pieces_do_not_matter(void **state)
{
    static const char *const parts[] = {
        "a",    "bcdefghi", "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80",
        "\x80", "\xe4\xb8", "\xff"};
    uint32_t x = 1;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[256];
        size_t n = 0;
        for (int i = 0; i < 12; i++) {
            x = x * 1664525 + 1013904223;
            const char *part = parts[(x >> 24) % (i % 4 == 3 ? 8 : 5)];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        struct utf8_check c = {.n_held = 0};
        bool is_good = true;
        for (size_t at = 0; at < n && is_good;) {
            x = x * 1664525 + 1013904223;
            size_t step = 1 + (x >> 24) % 9;
            step = step < n - at ? step : n - at;
            is_good = utf8_check_take(&c, text + at, step);
            at += step;
        }
        is_good = is_good && utf8_check_end(&c);
        int64_t expected = find_bad_slowly(text, n);
        assert_int_equal(is_good ? -1 : c.n_bytes, expected);
        assert_int_equal(utf8_find_bad(text, n), expected < 0 ? (int64_t)n : expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_text_guess__names_the_encoding),
        data_test(test_text_input__an_encoding_is_refused_or_converted),
        data_test(test_text_input__bad_bytes_are_told_with_their_place),
        data_test(test_text_input__a_late_bad_byte_is_found),
        data_test(test_utf8_check__pieces_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
