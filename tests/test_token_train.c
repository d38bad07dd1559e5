/*
 * Learning against the definition: count all pairs, merge the most frequent everywhere,
 * start again.
 */
#include "text/tokenizer_build.h"
#include "text/word_split.h"
#include "token_fixture.h"

#define MOST_WORDS 20000
#define MOST_SYMBOLS 40000

struct slow { // the text as words of ids, one after the other
    int32_t ids[MOST_SYMBOLS];
    int32_t starts[MOST_WORDS + 1]; // of words in ids
    int32_t n_words;
};

static void slow_add(struct slow *s, struct word_splitter *splitter, const char *text,
                     size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t n_word = word_split_next(splitter, text + at, n - at);
        int32_t used = s->starts[s->n_words];
        assert_true(s->n_words < MOST_WORDS && used + (int64_t)n_word <= MOST_SYMBOLS);
        for (size_t i = 0; i < n_word; i++)
            s->ids[used++] = byte_level_place((uint8_t)text[at + i]);
        s->starts[++s->n_words] = used;
        at += n_word;
    }
}

/* The most frequent pair, by counting; false when none is there `least` times. */
static bool slow_best(const struct slow *s, int32_t n_ids, int64_t least, int32_t *left,
                      int32_t *right)
{
    int64_t best = least - 1;
    int32_t *counts = calloc((size_t)n_ids * (size_t)n_ids, sizeof *counts);
    assert_non_null(counts);
    for (int32_t w = 0; w < s->n_words; w++)
        for (int32_t i = s->starts[w]; i + 1 < s->starts[w + 1]; i++)
            counts[(int64_t)s->ids[i] * n_ids + s->ids[i + 1]]++;
    for (int64_t pair = 0; pair < (int64_t)n_ids * n_ids; pair++)
        if (counts[pair] > best) {
            best = counts[pair];
            *left = (int32_t)(pair / n_ids);
            *right = (int32_t)(pair % n_ids);
        }
    free(counts);
    return best >= least;
}

static void slow_merge(struct slow *s, int32_t left, int32_t right, int32_t merged)
{
    int32_t used = 0;
    for (int32_t w = 0; w < s->n_words; w++) {
        int32_t start = s->starts[w], end = s->starts[w + 1];
        s->starts[w] = used;
        for (int32_t i = start; i < end; i++) {
            bool is_pair = i + 1 < end && s->ids[i] == left && s->ids[i + 1] == right;
            s->ids[used++] = is_pair ? merged : s->ids[i];
            i += is_pair;
        }
    }
    s->starts[s->n_words] = used;
}

/* Learn both ways: the same merges, in the same order. Returns their number. */
static int64_t assert_same_merges(const char *text, size_t n, int64_t vocab_size,
                                  int64_t least)
{
    static struct slow s;
    struct error err;
    struct word_splitter *splitter = NULL;
    struct bpe_trainer *tr = NULL;
    struct tokenizer *t = NULL;
    int32_t left, right;
    s = (struct slow){0};
    assert_ok(word_splitter_open(&splitter, &err), err);
    slow_add(&s, splitter, text, n);
    assert_ok(bpe_trainer_open(&tr, &err), err);
    assert_ok(bpe_trainer_add(tr, text, n, &err), err);
    assert_ok(bpe_trainer_learn(tr, vocab_size, least, "learned", &t, &err), err);
    for (int64_t rank = 0; rank < tokenizer_n_merges(t); rank++) {
        assert_true(slow_best(&s, 256 + (int32_t)rank, least, &left, &right));
        const struct merge *m = &t->merges.list[rank];
        if (m->left != left || m->right != right)
            fail_msg("merge %lld is %d %d, not %d %d", (long long)rank, m->left, m->right,
                     left, right);
        slow_merge(&s, left, right, 256 + (int32_t)rank);
    }
    int64_t n_merges = tokenizer_n_merges(t);
    if (n_merges < vocab_size - 257)
        assert_false(slow_best(&s, 256 + (int32_t)n_merges, least, &left, &right));
    // what was learned from encodes to what was left of it
    struct token_list list = token_encode(t, text, n, false);
    assert_int_equal(list.n, s.starts[s.n_words]);
    assert_memory_equal(list.ids, s.ids, (size_t)list.n * sizeof *list.ids);
    token_list_release(&list);
    tokenizer_close(t);
    bpe_trainer_close(tr);
    word_splitter_close(splitter);
    return n_merges;
}

static void test_bpe_trainer__learns_what_counting_again_would(void **state)
{
    static char text[20000];
    struct token_random r = {8};
    (void)state;
    assert_int_equal(assert_same_merges(token_sample, strlen(token_sample), 340, 1), 83);
    size_t n = token_random_text(&r, text, sizeof text, true);
    assert_int_equal(assert_same_merges(text, n, 500, 2), 243);
    for (size_t i = 0; i < 4000; i++) // words of few letters: pairs that overlap
        text[i] = " aaaaab"[token_random_below(&r, 7)];
    assert_int_equal(assert_same_merges(text, 4000, 350, 2), 93);
}

static void test_bpe_trainer__stops_when_no_pair_is_frequent(void **state)
{
    (void)state;
    assert_int_equal(assert_same_merges("aaaa", 4, 1000, 1), 2);
    assert_int_equal(assert_same_merges("ab ab abc", 9, 1000, 2), 2);
    assert_int_equal(assert_same_merges("abcabc", 6, 1000, 5), 0);
    assert_int_equal(assert_same_merges("a", 1, 1000, 1), 0);
    assert_int_equal(assert_same_merges("ab", 2, 257, 1), 0);
}

static void test_bpe_trainer__numbers_bytes_as_gpt2_and_ends_with_eos(void **state)
{
    struct tokenizer *t = token_learn(300);
    size_t n;
    (void)state;
    assert_int_equal(tokenizer_vocab_size(t), 300);
    assert_int_equal(tokenizer_eos(t), 299);
    assert_true(tokenizer_is_special(t, 299));
    assert_memory_equal(tokenizer_token_bytes(t, 0, &n), "!", 1);
    assert_memory_equal(tokenizer_token_bytes(t, 220, &n), " ", 1);
    tokenizer_close(t);
}

/* Halves in either order: ties do not depend on what came first. */
static void test_bpe_trainer__does_not_mind_the_order_of_texts(void **state)
{
    struct error err;
    struct tokenizer *t[2] = {NULL, NULL};
    size_t half = word_split_last_cut(token_sample, 200);
    (void)state;
    assert_true(half > 0);
    for (int order = 0; order < 2; order++) {
        struct bpe_trainer *tr = NULL;
        assert_ok(bpe_trainer_open(&tr, &err), err);
        for (int i = 0; i < 2; i++) {
            bool is_first = i == order;
            const char *text = is_first ? token_sample : token_sample + half;
            size_t n = is_first ? half : strlen(token_sample) - half;
            assert_ok(bpe_trainer_add(tr, text, n, &err), err);
        }
        assert_ok(bpe_trainer_learn(tr, 400, 1, "learned", &t[order], &err), err);
        bpe_trainer_close(tr);
    }
    assert_int_equal(tokenizer_n_merges(t[0]), tokenizer_n_merges(t[1]));
    for (int64_t rank = 0; rank < tokenizer_n_merges(t[0]); rank++) {
        const struct merge *a = &t[0]->merges.list[rank], *b = &t[1]->merges.list[rank];
        assert_int_equal(a->left, b->left);
        assert_int_equal(a->right, b->right);
    }
    tokenizer_close(t[0]);
    tokenizer_close(t[1]);
}

static void test_bpe_trainer__refuses_a_vocabulary_below_the_bytes(void **state)
{
    struct error err = {.text = ""};
    struct bpe_trainer *tr = NULL;
    struct tokenizer *t = NULL;
    (void)state;
    assert_ok(bpe_trainer_open(&tr, &err), err);
    assert_int_equal(bpe_trainer_learn(tr, 256, 1, "learned", &t, &err), -1);
    assert_non_null(strstr(err.text, "a vocabulary of 256 tokens cannot be learned"));
    assert_null(t);
    bpe_trainer_close(tr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_trainer__learns_what_counting_again_would),
        cmocka_unit_test(test_bpe_trainer__stops_when_no_pair_is_frequent),
        cmocka_unit_test(test_bpe_trainer__numbers_bytes_as_gpt2_and_ends_with_eos),
        cmocka_unit_test(test_bpe_trainer__does_not_mind_the_order_of_texts),
        cmocka_unit_test(test_bpe_trainer__refuses_a_vocabulary_below_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
