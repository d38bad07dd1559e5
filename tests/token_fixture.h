/*
 * token_fixture - text and tokenizers for the tests of src/token.
 *
 * Random text is made of characters where the classes meet: letters and numbers of
 * several alphabets, all kinds of white space, apostrophes, and bytes that are no UTF-8.
 */
#ifndef TESTS_TOKEN_FIXTURE_H
#define TESTS_TOKEN_FIXTURE_H

#include "base/fs.h"
#include "test.h"
#include "text/bpe_trainer.h"
#include "text/encoder.h"

#include <unistd.h>

struct token_random { // a linear congruential generator: the same numbers everywhere
    uint64_t state;
};

static inline uint32_t token_random_below(struct token_random *r, uint32_t n)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33) % n;
}

/* Fill at most `size` bytes with random characters; returns how many they take. */
static inline size_t token_random_text(struct token_random *r, char *out, size_t size,
                                       bool with_invalid)
{
    static const char *const pieces[] = {
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "'s",
        "'t",
        "'re",
        "'ve",
        "'ll",
        "'",
        "'S",
        "a",
        "Zebra",
        "the",
        "7",
        "2024",
        "!",
        "...",
        "<|endoftext|>",
        "\u00E9",
        "\u00A0",
        "\xC2\x85",
        "\u180E",
        "\u2009",
        "\u2028",
        "\u3000",
        "\uFEFF",
        "\u200B",
        "\u4F60\u597D",
        "\u0645\u0631",
        "\u0301",
        "\u00BD",
        "\u2167",
        "\u0663",
        "\U0001F600",
        "\U00010330",
        "\U0001D7D8",
        "\uFFFD",
        "_",
        "\x7F",
        "\x01",
        "\x1C",
        "\u1680",
        "\u205F",
    };
    static const char *const invalid[] = {
        "\x80",         "\xFF",     "\xC3",         "\xE4\xBD",
        "\xF0\x9F\x98", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
    };
    size_t n = 0;
    for (;;) {
        uint32_t n_valid = ARRAY_LEN(pieces);
        uint32_t n_all = n_valid + (with_invalid ? (uint32_t)ARRAY_LEN(invalid) : 0);
        uint32_t i = token_random_below(r, n_all);
        const char *piece = i < n_valid ? pieces[i] : invalid[i - n_valid];
        size_t k = strlen(piece);
        if (n + k > size)
            return n;
        memcpy(out + n, piece, k);
        n += k;
    }
}

/* English with a little of everything else, so that merges of all kinds are learned. */
static const char token_sample[] =
    "In the beginning the field was green, and the seed was in the field; it's the rain "
    "that they'll see. The fields, the seeds, the rains: 1984, 2001 and 2024!\n\n"
    "  The beginning of the rain in the green field isn't the end...  We've seen 123456 "
    "seeds there, they're seeding again and again.\n\t\u4F60\u597D\u4E16\u754C "
    "\u4F60\u597D\u4E16\u754C caf\u00E9 caf\u00E9s \U0001F600\U0001F600 aaaaaaaaaaaaaaaa "
    "aaaaaaaa --- ---- the beginning, the ending, seeing, being, raining.\n";

/* A tokenizer learned from the sample. */
static inline struct tokenizer *token_learn(int64_t vocab_size)
{
    struct error err;
    struct bpe_trainer *tr = NULL;
    struct tokenizer *t = NULL;
    assert_ok(bpe_trainer_open(&tr, &err), err);
    assert_ok(bpe_trainer_add(tr, token_sample, strlen(token_sample), &err), err);
    assert_ok(bpe_trainer_learn(tr, vocab_size, 1, "learned", &t, &err), err);
    bpe_trainer_close(tr);
    return t;
}

/* The ids of n bytes; the caller releases the list. */
static inline struct token_list token_encode(const struct tokenizer *t, const char *text,
                                             size_t n, bool with_special)
{
    struct error err;
    struct encoder *e = NULL;
    struct token_list list = {0};
    assert_ok(encoder_open(&e, t, &err), err);
    assert_ok(encoder_encode(e, text, n, with_special, &list, &err), err);
    encoder_close(e);
    return list;
}

static inline void token_assert_same_ids(const struct token_list *a,
                                         const struct token_list *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        if (a->ids[i] != b->ids[i])
            fail_msg("id %lld is %d and %d", (long long)i, a->ids[i], b->ids[i]);
}

/* decode(encode(text)) is text. */
static inline void token_assert_round_trip(const struct tokenizer *t, const char *text,
                                           size_t n)
{
    struct token_list list = token_encode(t, text, n, false);
    char *back = malloc(n + 1);
    assert_non_null(back);
    assert_int_equal(tokenizer_decode(t, list.ids, list.n, back, n), n);
    assert_memory_equal(back, text, n);
    free(back);
    token_list_release(&list);
}

/* Write a file into a directory of test_make_directory(). */
static inline void token_write(const char *dir, const char *name, const char *text,
                               size_t n)
{
    char path[4096];
    struct error err;
    assert_ok(fs_join(path, sizeof path, dir, name, &err), err);
    assert_ok(fs_write_atomic(path, text, n, &err), err);
}

static inline void token_remove_directory(char *dir)
{
    struct error err;
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

#endif
