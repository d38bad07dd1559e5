/*
 * Words against PCRE2 on the pattern itself, which is the definition.
 */
#include "base/utf8.h"
#include "text/vocab.h"
#include "text/word_split.h"
#include "token_fixture.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACE                                                                            \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"   \
    "\\x{202F}\\x{205F}\\x{3000}"
#define PATTERN                                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE    \
    "]+(?![^" SPACE "])|[" SPACE "]+"

struct reference {
    pcre2_code *code;
    pcre2_match_data *match;
};

static struct reference reference_open(void)
{
    int error;
    PCRE2_SIZE at;
    struct reference r;
    r.code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                           PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    assert_non_null(r.code);
    pcre2_jit_compile(r.code, PCRE2_JIT_COMPLETE);
    r.match = pcre2_match_data_create_from_pattern(r.code, NULL);
    assert_non_null(r.match);
    return r;
}

static void reference_close(struct reference *r)
{
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
}

/* The end of the first word of valid UTF-8 from `at` on. */
static size_t reference_next(struct reference *r, const char *text, size_t n, size_t at)
{
    int rc =
        pcre2_match(r->code, (PCRE2_SPTR)text, n, at, PCRE2_ANCHORED, r->match, NULL);
    assert_true(rc > 0);
    return pcre2_get_ovector_pointer(r->match)[1];
}

static void assert_words(struct word_splitter *s, struct reference *r, const char *text,
                         size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t end = at + word_split_next(s, text + at, n - at);
        size_t expected = reference_next(r, text, n, at);
        if (end != expected)
            fail_msg("the word at %zu of '%.*s' ends at %zu, not %zu", at, (int)n, text,
                     end, expected);
        at = end;
    }
}

static void test_word_split__cuts_as_the_pattern_does(void **state)
{
    struct error err;
    struct word_splitter *s = NULL;
    struct reference r = reference_open();
    struct token_random random = {1};
    char text[80];
    (void)state;
    assert_ok(word_splitter_open(&s, &err), err);
    for (int i = 0; i < 60000; i++) {
        size_t size = 1 + token_random_below(&random, sizeof text);
        assert_words(s, &r, text, token_random_text(&random, text, size, false));
    }
    word_splitter_close(s);
    reference_close(&r);
}

/* Each code point between two letters and between two blanks: its class decides. */
static void test_word_split__knows_the_class_of_every_code_point(void **state)
{
    struct error err;
    struct word_splitter *s = NULL;
    struct reference r = reference_open();
    (void)state;
    assert_ok(word_splitter_open(&s, &err), err);
    for (uint32_t code = 1; code < 0x110000; code++) {
        char text[16] = "a";
        if (code >= 0xD800 && code < 0xE000)
            continue;
        size_t n = 1 + utf8_encode(code, text + 1);
        text[n++] = '5';
        assert_words(s, &r, text, n);
    }
    word_splitter_close(s);
    reference_close(&r);
}

/* Replace what is no UTF-8 by U+FFFD; from[i] is where byte i of the result came from. */
static size_t replace_invalid(const char *text, size_t n, char *out, size_t *from)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        size_t k = utf8_decode(text + at, n - at, &code);
        char character[UTF8_MOST_BYTES];
        size_t n_out = utf8_encode(k ? code : 0xFFFD, character);
        for (size_t i = 0; i < n_out; i++) {
            from[used] = at + (k ? i : 0);
            out[used++] = character[i];
        }
        at += k ? k : 1;
    }
    from[used] = n;
    return used;
}

static void test_word_split__takes_invalid_bytes_for_replacement_characters(void **state)
{
    struct error err;
    struct word_splitter *s = NULL;
    struct reference r = reference_open();
    struct token_random random = {2};
    char text[60], valid[240];
    size_t from[241];
    (void)state;
    assert_ok(word_splitter_open(&s, &err), err);
    for (int i = 0; i < 60000; i++) {
        size_t n = token_random_text(
            &random, text, 4 + token_random_below(&random, sizeof text - 4), true);
        size_t n_valid = replace_invalid(text, n, valid, from), valid_at = 0;
        for (size_t at = 0; at < n;) {
            at += word_split_next(s, text + at, n - at);
            valid_at = reference_next(&r, valid, n_valid, valid_at);
            assert_int_equal(at, from[valid_at]);
        }
    }
    word_splitter_close(s);
    reference_close(&r);
}

/* Is `at` the end of a word of the text? */
static bool is_word_end(struct word_splitter *s, const char *text, size_t n, size_t at)
{
    size_t end = 0;
    while (end < at)
        end += word_split_next(s, text + end, n - end);
    return end == at;
}

static void test_word_split__may_be_cut_where_it_says(void **state)
{
    struct error err;
    struct word_splitter *s = NULL;
    struct token_random random = {3};
    char text[80];
    int n_cuts = 0;
    (void)state;
    assert_ok(word_splitter_open(&s, &err), err);
    for (int i = 0; i < 30000; i++) {
        size_t n = token_random_text(&random, text, sizeof text, true);
        size_t seen = token_random_below(&random, (uint32_t)n + 1);
        size_t cut = word_split_last_cut(text, seen);
        assert_true(cut <= seen);
        if (cut == 0)
            continue;
        n_cuts++;
        // in the whole, in what was seen, and in the first part, with the same words
        assert_true(is_word_end(s, text, n, cut));
        for (size_t at = 0; at < cut;) {
            size_t n_word = word_split_next(s, text + at, cut - at);
            assert_int_equal(n_word, word_split_next(s, text + at, n - at));
            at += n_word;
        }
    }
    assert_true(n_cuts > 10000);
    word_splitter_close(s);
}

static void test_byte_level__is_the_table_of_gpt2(void **state)
{
    static const struct {
        uint8_t byte;
        uint32_t symbol;
        int32_t place;
    } known[] = {
        {'!', '!', 0},      {'A', 'A', 32},     {'~', '~', 93},     {0xA1, 0xA1, 94},
        {0xAC, 0xAC, 105},  {0xAE, 0xAE, 106},  {0xFF, 0xFF, 187},  {0x00, 0x100, 188},
        {'\n', 0x10A, 198}, {' ', 0x120, 220},  {0x7F, 0x121, 221}, {0x80, 0x122, 222},
        {0xA0, 0x142, 254}, {0xAD, 0x143, 255},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        assert_int_equal(byte_level_symbol(known[i].byte), known[i].symbol);
        assert_int_equal(byte_level_place(known[i].byte), known[i].place);
    }
}

static void test_byte_level__spells_every_byte_and_reads_it_back(void **state)
{
    char bytes[256], text[512], back[512];
    bool is_place_seen[256] = {false};
    size_t n_back = 0;
    (void)state;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)(uint8_t)i;
        is_place_seen[byte_level_place((uint8_t)i)] = true;
    }
    for (int i = 0; i < 256; i++)
        assert_true(is_place_seen[i]);
    size_t n = byte_level_spell(bytes, sizeof bytes, text);
    assert_true(byte_level_read(text, n, back, &n_back));
    assert_int_equal(n_back, sizeof bytes);
    assert_memory_equal(back, bytes, sizeof bytes);
    assert_false(byte_level_read("a b", 3, back, &n_back));
    assert_false(byte_level_read("\u0144", 2, back, &n_back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_word_split__cuts_as_the_pattern_does),
        cmocka_unit_test(test_word_split__knows_the_class_of_every_code_point),
        cmocka_unit_test(test_word_split__takes_invalid_bytes_for_replacement_characters),
        cmocka_unit_test(test_word_split__may_be_cut_where_it_says),
        cmocka_unit_test(test_byte_level__is_the_table_of_gpt2),
        cmocka_unit_test(test_byte_level__spells_every_byte_and_reads_it_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
