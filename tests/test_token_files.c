/*
 * Every file a tokenizer can be read from: the same ids from all of them, and a sentence
 * for each that cannot be used.
 */
#include "text/encoder.h"
#include "text/tokenizer_load.h"
#include "text/tokenizer_save.h"
#include "token_fixture.h"

/* -- the same tokenizer in every format ---------------------------------------------- */

/* What the tests know of a tokenizer: ids of texts that meet all its parts. */
static void assert_same_tokenizer(const struct tokenizer *a, const struct tokenizer *b)
{
    struct token_random r = {7};
    char text[6000];
    assert_int_equal(tokenizer_vocab_size(a), tokenizer_vocab_size(b));
    assert_int_equal(tokenizer_eos(a), tokenizer_eos(b));
    assert_int_equal(tokenizer_n_merges(a), tokenizer_n_merges(b));
    for (int i = 0; i < 8; i++) {
        size_t n = token_random_text(&r, text, sizeof text, true);
        bool with_special = i % 2 == 0;
        struct token_list x = token_encode(a, text, n, with_special);
        struct token_list y = token_encode(b, text, n, with_special);
        token_assert_same_ids(&x, &y);
        token_list_release(&x);
        token_list_release(&y);
    }
    for (int64_t id = 0; id < tokenizer_vocab_size(a); id++)
        assert_int_equal(tokenizer_is_special(a, (int32_t)id),
                         tokenizer_is_special(b, (int32_t)id));
}

static void assert_opens_as(const struct tokenizer *expected, const char *name)
{
    struct error err;
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, name, &err), err);
    assert_string_equal(tokenizer_name(t), name);
    assert_same_tokenizer(expected, t);
    tokenizer_close(t);
}

static void move(const char *dir, const char *from, const char *to)
{
    char old[4096], new[4096];
    struct error err;
    assert_ok(fs_join(old, sizeof old, dir, from, &err), err);
    assert_ok(fs_join(new, sizeof new, dir, to, &err), err);
    assert_int_equal(rename(old, new), 0);
}

static void assert_file_opens_as(const struct tokenizer *expected, const char *dir,
                                 const char *name)
{
    char path[4096];
    struct error err;
    assert_ok(fs_join(path, sizeof path, dir, name, &err), err);
    assert_opens_as(expected, path);
}

static void test_tokenizer__reads_back_each_file_it_saves(void **state)
{
    struct error err;
    struct tokenizer *t = token_learn(420);
    char *dir = test_make_directory();
    (void)state;
    assert_ok(tokenizer_save(t, dir, &err), err);
    assert_opens_as(t, dir);
    assert_file_opens_as(t, dir, "tokenizer.json");
    assert_file_opens_as(t, dir, "vocab.json");
    assert_file_opens_as(t, dir, "merges.txt");
    move(dir, "tokenizer.json", "other.json");
    assert_opens_as(t, dir);
    move(dir, "vocab.json", "encoder.json");
    move(dir, "merges.txt", "vocab.bpe");
    assert_opens_as(t, dir);
    assert_file_opens_as(t, dir, "encoder.json");
    token_remove_directory(dir);
    tokenizer_close(t);
}

static void base64(const char *bytes, size_t n, FILE *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            fputc(i + k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=', out);
    }
}

static void test_tokenizer__recovers_the_merges_of_a_rank_file(void **state)
{
    struct tokenizer *t = token_learn(420);
    char *dir = test_make_directory();
    char *text = NULL;
    size_t n_text;
    FILE *out = open_memstream(&text, &n_text);
    (void)state;
    assert_non_null(out);
    for (int32_t id = 0; id < tokenizer_eos(t); id++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(t, id, &n);
        base64(bytes, n, out);
        fprintf(out, " %d\n", id);
    }
    fclose(out);
    token_write(dir, "own.tiktoken", text, n_text);
    assert_opens_as(t, dir);
    assert_file_opens_as(t, dir, "own.tiktoken");
    free(text);
    token_remove_directory(dir);
    tokenizer_close(t);
}

static void test_tokenizer__bytes_needs_no_files(void **state)
{
    static const char text[] = "a\xFF <|endoftext|>";
    struct error err;
    struct tokenizer *t = NULL, *again = NULL;
    char *dir = test_make_directory();
    (void)state;
    assert_ok(tokenizer_open(&t, TOKENIZER_BYTES, &err), err);
    assert_int_equal(tokenizer_vocab_size(t), 257);
    assert_int_equal(tokenizer_eos(t), 256);
    assert_true(tokenizer_is_special(t, 256));
    struct token_list plain = token_encode(t, text, strlen(text), false);
    struct token_list special = token_encode(t, text, strlen(text), true);
    assert_int_equal(plain.n, strlen(text));
    assert_int_equal(plain.ids[1], 0xFF);
    assert_int_equal(special.n, 4);
    assert_int_equal(special.ids[3], 256);
    token_assert_round_trip(t, text, strlen(text));
    assert_ok(tokenizer_save(t, dir, &err), err);
    assert_ok(tokenizer_open(&again, dir, &err), err);
    assert_same_tokenizer(t, again);
    tokenizer_close(again);
    token_list_release(&plain);
    token_list_release(&special);
    token_remove_directory(dir);
    tokenizer_close(t);
}

/* -- tokenizer.json by hand ---------------------------------------------------------- */

#define MODEL                                                                            \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"\\u0120\": 2, "    \
    "\"ab\": 3, \"\\u0120ab\": 4, \"<s>\": 5, \"c\": 9}, \"merges\": [\"a b\", "         \
    "[\"\\u0120\", \"ab\"]]}"
#define BYTE_LEVEL                                                                       \
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define ADDED                                                                            \
    "\"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true}, "          \
    "{\"id\": 6, \"content\": \"  \", \"special\": false}, "                             \
    "{\"id\": 7, \"content\": \"<s>b\", \"special\": true}]"

static int load_json(struct tokenizer **t, const char *json, struct error *err)
{
    assert_ok(tokenizer_new(t, "json", err), *err);
    int rc = tokenizer_load_json(*t, json, strlen(json), err);
    if (rc) {
        tokenizer_close(*t);
        *t = NULL;
    }
    return rc;
}

static void assert_ids(const char *json, const char *text, bool with_special,
                       const char *expected)
{
    struct error err;
    struct tokenizer *t = NULL;
    char found[200] = "";
    assert_ok(load_json(&t, json, &err), err);
    struct token_list list = token_encode(t, text, strlen(text), with_special);
    for (int64_t i = 0; i < list.n; i++)
        sprintf(found + strlen(found), i ? " %d" : "%d", list.ids[i]);
    assert_string_equal(found, expected);
    token_list_release(&list);
    tokenizer_close(t);
}

static void test_tokenizer_json__reads_both_spellings_of_merges(void **state)
{
    (void)state;
    assert_ids("{" BYTE_LEVEL ", " MODEL "}", "ab ab", false, "3 4");
}

static void test_tokenizer_json__takes_added_tokens_out_longest_first(void **state)
{
    static const char json[] = "{" BYTE_LEVEL ", " ADDED ", " MODEL "}";
    (void)state;
    assert_ids(json, "ab<s>ba  ab", true, "3 7 0 6 3");
    assert_ids(json, "<s>ab  ", true, "5 3 6");
    // a token that is added but not special is never text
    assert_ids(json, "ab  ab", false, "3 6 3");
}

static void test_tokenizer_json__adds_a_space_where_it_says(void **state)
{
    static const char json[] = "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                               "\"add_prefix_space\": true}, " MODEL "}";
    (void)state;
    assert_ids(json, "ab", false, "4");
    assert_ids(json, " ab", false, "4");
    assert_ids(json, "", false, "");
}

#define SMALL_VOCAB                                                                      \
    "\"vocab\": {\"a\": 0, \"\\u0120\": 1, \"a\\u0120\": 2, \"aa\": 3}, "                \
    "\"merges\": [[\"a\", \"\\u0120\"]]"

static void test_tokenizer_json__cuts_into_words_or_not(void **state)
{
#define MODEL_AFTER(pre)                                                                 \
    "{\"pre_tokenizer\": " pre ", \"model\": {\"type\": \"BPE\", " SMALL_VOCAB "}}"
#define LEVEL(regex)                                                                     \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define SEQUENCE(list) "{\"type\": \"Sequence\", \"pretokenizers\": [" list "]}"
#define SPLIT                                                                            \
    "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": " \
    "{\"Regex\": \"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "                    \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"}}"
    (void)state;
    assert_ids(MODEL_AFTER(LEVEL("true")), "a a", false, "0 1 0");
    assert_ids(MODEL_AFTER(LEVEL("false")), "a a", false, "2 0");
    assert_ids(MODEL_AFTER(SEQUENCE(LEVEL("true"))), "a a", false, "0 1 0");
    assert_ids(MODEL_AFTER(SEQUENCE(SPLIT ", " LEVEL("false"))), "a a", false, "0 1 0");
}

static void test_tokenizer_json__takes_whole_words_with_ignore_merges(void **state)
{
    (void)state;
    assert_ids("{" BYTE_LEVEL ", \"model\": {" SMALL_VOCAB ", \"ignore_merges\": true}}",
               "aa a", false, "3 1 0");
    assert_ids("{" BYTE_LEVEL ", \"model\": {" SMALL_VOCAB "}}", "aa", false, "0 0");
}

static void test_tokenizer_json__refuses_what_would_change_ids(void **state)
{
    // clang-format off
    static const struct { const char *json, *reason; } cases[] = {
        {"{", "line 1, column 1: string or '}' expected near end of file"},
        {"[]", "there is no \"model\" in it"},
        {"{\"model\": {\"type\": \"WordPiece\"}}", "its model is 'WordPiece'"},
        {"{\"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\"}}",
         "end_of_word_suffix '</w>'"},
        {"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1}}", "dropout"},
        {"{\"normalizer\": {\"type\": \"NFC\"}, " MODEL "}", "its normalizer is 'NFC'"},
        {"{" MODEL "}", "its pre-tokenizer is 'null'"},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL "}",
         "its pre-tokenizer is 'Whitespace'"},
        {"{\"pre_tokenizer\": " SEQUENCE("{\"type\": \"Digits\"}, " LEVEL("true")) ", "
         MODEL "}", "a sequence of 2, 'Digits' first"},
        {"{\"pre_tokenizer\": " SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"Regex\": "
         "\"[0-9]\"}}, " LEVEL("false")) ", " MODEL "}", "splits by '[0-9]'"},
        {"{\"pre_tokenizer\": " SEQUENCE(SPLIT ", " LEVEL("true")) ", " MODEL "}",
         "only without both"},
        {"{" BYTE_LEVEL ", \"added_tokens\": [{\"id\": 5, \"content\": \"<m>\", "
         "\"lstrip\": true}], " MODEL "}", "'<m>' has lstrip"},
        {"{" BYTE_LEVEL ", \"added_tokens\": [{\"id\": 0, \"content\": \"<m>\"}], " MODEL
         "}", "two tokens have the id 0, 'a' is one"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a b\": 0}, \"merges\": []}}",
         "stands for no byte"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {}, \"merges\": []}}", "is empty"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"\": 0}, \"merges\": []}}",
         "a token has 0 bytes"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}",
         "negative"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 2000000000}, \"merges\": []}}",
         "far beyond"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 9999999999}, \"merges\": []}}",
         "larger than ids can be"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": \"0\"}, \"merges\": []}}",
         "no number"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
         "two tokens have the id 0"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
         "merge 1 joins 'b', which is not in the vocabulary"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
         "merge 1 makes 'aa', which is not in the vocabulary"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}",
         "is not two tokens with a space between"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
         "merge 1 is no pair of tokens"},
        {"{" BYTE_LEVEL ", \"model\": {\"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": "
         "[\"a a\", \"a a\"]}}", "merges 1 and 2 join the same two tokens"},
    };
    // clang-format on
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = {.text = ""};
        struct tokenizer *t = NULL;
        assert_int_equal(load_json(&t, cases[i].json, &err), -1);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("'%s' is refused with '%s', not '%s'", cases[i].json, err.text,
                     cases[i].reason);
        assert_int_equal(err.kind, ERROR_INPUT);
    }
}

/* -- vocab.json with merges.txt, rank files ------------------------------------------ */

static void test_vocab_json__makes_special_what_no_text_can_reach(void **state)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2, \"<pad>\": 3, "
                                "\"<|endoftext|>\": 4, \"two words\": 5}";
    static const char merges[] = "#version: 0.2\r\na b\r\n";
    struct error err;
    struct tokenizer *t = NULL;
    (void)state;
    assert_ok(tokenizer_new(&t, "pair", &err), err);
    assert_ok(tokenizer_load_pair(t, vocab, strlen(vocab), merges, strlen(merges), &err),
              err);
    assert_int_equal(tokenizer_eos(t), 4);
    for (int32_t id = 0; id < 6; id++)
        assert_int_equal(tokenizer_is_special(t, id), id >= 3);
    assert_false(tokenizer_is_special(t, 6));
    struct token_list list = token_encode(t, "abtwo words", 11, true);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.ids[1], 5);
    token_list_release(&list);
    tokenizer_close(t);
}

static void test_vocab_json__refuses_what_is_no_byte_level_bpe(void **state)
{
    static const struct {
        const char *vocab, *merges, *reason;
    } cases[] = {
        {"", "", "the vocabulary, line 1"},
        {"[]", "", "no JSON object"},
        {"{\"a\": 0}", "a\n", "merge 1, 'a', is not two tokens"},
        {"{\"a\": 0}", "\na a\n", "merge 1, '', is not two tokens"},
        {"{\"i\": 0, \"n</w>\": 1, \"in</w>\": 2}", "i n</w>\n",
         "'n</w>', which is neither a byte nor made by a merge"},
        {"{\"a\": 0, \".\": 1, \".a\": 2}", ". a\n", "'.a', goes over the end of a word"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = {.text = ""};
        struct tokenizer *t = NULL;
        assert_ok(tokenizer_new(&t, "pair", &err), err);
        assert_int_equal(tokenizer_load_pair(t, cases[i].vocab, strlen(cases[i].vocab),
                                             cases[i].merges, strlen(cases[i].merges),
                                             &err),
                         -1);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("case %zu is refused with '%s', not '%s'", i, err.text,
                     cases[i].reason);
        tokenizer_close(t);
    }
}

static void test_ranks__refuses_what_is_no_list_of_ranks(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "the vocabulary is empty"},
        {"YQ== 0\nYg==\n", "line 2, 'Yg==', is not a token in base64 and its rank"},
        {"YQ== 0\n\nYg== 1\n", "line 2, '', is not a token"},
        {"Y*== 0\n", "line 1"},
        {"YQ= 0\n", "line 1"},
        {"YQ== 0x\n", "line 1"},
        {"YQ== 0\nYQ== 1\n", "line 2: token 'a' is there twice, as 0 and 1"},
        {"YQ== 0\nYg== 0\n", "line 2: two tokens have the id 0"},
        {"YQ== 9999999999\n", "line 1: token 'a' has the id 9999999999"},
        {"YWI= 0\nYQ== 1\n", "the byte 0x62 of token 0 is no token itself"},
        {"YQ== 0\nYWFh 1\n", "leave 3 parts of token 1, 'aaa', not two"},
        {"Lg== 0\nYQ== 1\nLmE= 2\n", "'.a', goes over the end of a word"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = {.text = ""};
        struct tokenizer *t = NULL;
        assert_ok(tokenizer_new(&t, "ranks", &err), err);
        assert_int_equal(
            tokenizer_load_ranks(t, cases[i].text, strlen(cases[i].text), &err), -1);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("'%s' is refused with '%s', not '%s'", cases[i].text, err.text,
                     cases[i].reason);
        tokenizer_close(t);
    }
}

/* -- names --------------------------------------------------------------------------- */

static void assert_refused(const char *name, const char *reason)
{
    struct error err = {.text = ""};
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&t, name, &err), -1);
    assert_null(t);
    if (!strstr(err.text, reason))
        fail_msg("'%s' is refused with '%s', not '%s'", name, err.text, reason);
}

static void test_tokenizer__refuses_names_that_are_none(void **state)
{
    char *dir = test_make_directory();
    char path[4096];
    struct error err;
    (void)state;
    assert_refused("no such tokenizer", "there is no tokenizer 'no such tokenizer'");
    assert_refused(dir, "has no tokenizer: neither tokenizer.json");
    token_write(dir, "a.tiktoken", "YQ== 0\n", 7);
    token_write(dir, "b.tiktoken", "YQ== 0\n", 7);
    assert_refused(dir, "several tokenizers, 'a.tiktoken' and 'b.tiktoken'");
    token_write(dir, "notes.txt", "a", 1);
    assert_ok(fs_join(path, sizeof path, dir, "notes.txt", &err), err);
    assert_refused(path, "is no tokenizer by its name");
    token_write(dir, "vocab.json", "{}", 2);
    assert_refused(dir, "merges.txt");
    token_write(dir, "tokenizer.json", "{\"model\": 1}", 12);
    assert_refused(dir, "tokenizer.json' cannot be used: there is no \"model\"");
    token_remove_directory(dir);
}

static void test_encoder__names_a_byte_that_has_no_token(void **state)
{
    struct error err;
    struct tokenizer *t = NULL;
    struct encoder *e = NULL;
    struct token_list list = {0};
    (void)state;
    assert_ok(load_json(&t, "{" BYTE_LEVEL ", " MODEL "}", &err), err);
    assert_ok(encoder_open(&e, t, &err), err);
    assert_int_equal(encoder_encode(e, "abz", 3, false, &list, &err), -1);
    assert_non_null(strstr(err.text, "the byte 0x7A, for which the tokenizer 'json'"));
    assert_ok(encoder_encode(e, "ab", 2, false, &list, &err), err);
    assert_int_equal(list.n, 1);
    encoder_close(e);
    token_list_release(&list);
    tokenizer_close(t);
}

static void test_tokenizer__decodes_into_the_room_there_is(void **state)
{
    static const int32_t ids[] = {3, 8, -1, 4, 100}; // 8 is a hole
    struct error err;
    struct tokenizer *t = NULL;
    size_t n;
    char out[4] = "####";
    (void)state;
    assert_ok(load_json(&t, "{" BYTE_LEVEL ", " MODEL "}", &err), err);
    assert_int_equal(tokenizer_vocab_size(t), 10);
    assert_null(tokenizer_token_bytes(t, 8, &n));
    assert_int_equal(tokenizer_decode(t, ids, ARRAY_LEN(ids), out, 3), 5);
    assert_memory_equal(out, "ab #", 4);
    assert_int_equal(tokenizer_decode(t, ids, ARRAY_LEN(ids), NULL, 0), 5);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer__reads_back_each_file_it_saves),
        cmocka_unit_test(test_tokenizer__recovers_the_merges_of_a_rank_file),
        cmocka_unit_test(test_tokenizer__bytes_needs_no_files),
        cmocka_unit_test(test_tokenizer_json__reads_both_spellings_of_merges),
        cmocka_unit_test(test_tokenizer_json__takes_added_tokens_out_longest_first),
        cmocka_unit_test(test_tokenizer_json__adds_a_space_where_it_says),
        cmocka_unit_test(test_tokenizer_json__cuts_into_words_or_not),
        cmocka_unit_test(test_tokenizer_json__takes_whole_words_with_ignore_merges),
        cmocka_unit_test(test_tokenizer_json__refuses_what_would_change_ids),
        cmocka_unit_test(test_vocab_json__makes_special_what_no_text_can_reach),
        cmocka_unit_test(test_vocab_json__refuses_what_is_no_byte_level_bpe),
        cmocka_unit_test(test_ranks__refuses_what_is_no_list_of_ranks),
        cmocka_unit_test(test_tokenizer__refuses_names_that_are_none),
        cmocka_unit_test(test_encoder__names_a_byte_that_has_no_token),
        cmocka_unit_test(test_tokenizer__decodes_into_the_room_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
