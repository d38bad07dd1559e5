/*
 * Merges against the definition: look at all pairs, merge the best, start again.
 */
#include "text/bpe.h"
#include "token_fixture.h"

#define N_SYMBOLS 3

static int64_t merge_slowly(const struct merge_table *merges, int32_t *ids, int64_t n)
{
    for (;;) {
        int64_t best = -1;
        int32_t best_rank = MERGE_NONE, best_id = -1, id;
        for (int64_t i = 0; i + 1 < n; i++) {
            int32_t rank = merge_table_rank(merges, ids[i], ids[i + 1], &id);
            if (rank < best_rank) {
                best = i;
                best_rank = rank;
                best_id = id;
            }
        }
        if (best < 0)
            return n;
        ids[best] = best_id;
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 2) * sizeof *ids);
        n--;
    }
}

/* Random merges of the symbols 0, 1, 2 and of what they make; in any order, so that a
 * merge may come before those that make its parts. */
static struct merge_table random_merges(struct token_random *r, int32_t n)
{
    struct error err;
    struct merge_table m = {0};
    int32_t product;
    for (int32_t i = 0; i < n; i++) {
        int32_t left = (int32_t)token_random_below(r, (uint32_t)(N_SYMBOLS + n));
        int32_t right = (int32_t)token_random_below(r, (uint32_t)(N_SYMBOLS + i));
        if (m.n == 0 || merge_table_rank(&m, left, right, &product) == MERGE_NONE)
            assert_ok(merge_table_add(&m, left, right, N_SYMBOLS + i, &err), err);
    }
    return m;
}

static void assert_same_merge(const struct merge_table *m, struct bpe_scratch *scratch,
                              struct token_random *r, int64_t n, uint32_t n_symbols)
{
    struct error err;
    int32_t fast[400], slow[400];
    int64_t n_fast;
    for (int64_t i = 0; i < n; i++)
        fast[i] = slow[i] = (int32_t)token_random_below(r, n_symbols);
    int64_t n_slow = merge_slowly(m, slow, n);
    assert_ok(bpe_merge(m, scratch, fast, n, &n_fast, &err), err);
    assert_int_equal(n_fast, n_slow);
    assert_memory_equal(fast, slow, (size_t)n_slow * sizeof *slow);
}

static void test_bpe__merges_the_lowest_rank_first_in_words_of_any_length(void **state)
{
    struct token_random r = {4};
    struct bpe_scratch scratch = {0};
    (void)state;
    for (int i = 0; i < 400; i++) {
        struct merge_table m = random_merges(&r, 1 + (int32_t)token_random_below(&r, 60));
        for (int k = 0; k < 10; k++) {
            assert_same_merge(&m, &scratch, &r, 1 + token_random_below(&r, 64), 3);
            assert_same_merge(&m, &scratch, &r, 65 + token_random_below(&r, 300), 3);
            assert_same_merge(&m, &scratch, &r, 65 + token_random_below(&r, 300), 1);
        }
        merge_table_release(&m);
    }
    bpe_scratch_release(&scratch);
}

static void test_merge_table__refuses_a_pair_that_is_there(void **state)
{
    struct error err = {.text = ""};
    struct merge_table m = {0};
    (void)state;
    assert_ok(merge_table_add(&m, 1, 2, 3, &err), err);
    assert_ok(merge_table_add(&m, 2, 1, 4, &err), err);
    assert_int_equal(merge_table_add(&m, 1, 2, 5, &err), -1);
    assert_string_equal(err.text, "merges 1 and 3 join the same two tokens");
    merge_table_release(&m);
}

/* A word of a million letters: done at all means not by the square of its length. */
static void test_bpe__takes_a_word_of_a_million_letters(void **state)
{
    enum { N = 1000000 };
    struct tokenizer *t = token_learn(600);
    char *text = malloc(N);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', N);
    struct token_list list = token_encode(t, text, N, false);
    assert_true(list.n <= N / 8);
    token_assert_round_trip(t, text, N);
    memset(text, ' ', N);
    token_assert_round_trip(t, text, N);
    token_list_release(&list);
    tokenizer_close(t);
    free(text);
}

static void test_encoder__knows_a_word_again_as_it_was(void **state)
{
    struct error err;
    struct tokenizer *t = token_learn(500);
    struct encoder *used = NULL;
    struct token_random r = {5};
    char text[400];
    (void)state;
    assert_ok(encoder_open(&used, t, &err), err);
    for (int i = 0; i < 3000; i++) {
        size_t n = token_random_text(&r, text, sizeof text, true);
        struct token_list list = {0};
        assert_ok(encoder_encode(used, text, n, false, &list, &err), err);
        if (i % 50 == 0) { // against an encoder that knows nothing yet
            struct token_list fresh = token_encode(t, text, n, false);
            token_assert_same_ids(&list, &fresh);
            token_list_release(&fresh);
        }
        char back[400];
        assert_int_equal(tokenizer_decode(t, list.ids, list.n, back, sizeof back), n);
        assert_memory_equal(back, text, n);
        token_list_release(&list);
    }
    encoder_close(used);
    tokenizer_close(t);
}

/* Cut at every place that may be, each part by itself: the ids of the whole. */
static void test_encoder__gives_the_same_ids_in_pieces(void **state)
{
    struct error err;
    struct tokenizer *t = token_learn(500);
    struct encoder *e = NULL;
    struct token_random r = {6};
    char text[300];
    (void)state;
    assert_ok(encoder_open(&e, t, &err), err);
    for (int i = 0; i < 2000; i++) {
        size_t n = token_random_text(&r, text, sizeof text, true);
        bool with_special = i % 2 == 0;
        struct token_list whole = {0}, parts = {0};
        assert_ok(encoder_encode(e, text, n, with_special, &whole, &err), err);
        for (size_t at = 0, seen = 0; at < n; seen += 7) {
            size_t end = at + seen < n ? at + seen : n;
            size_t cut = end == n
                             ? n - at
                             : encoder_last_cut(e, text + at, end - at, with_special);
            if (cut == 0)
                continue;
            assert_ok(encoder_encode(e, text + at, cut, with_special, &parts, &err), err);
            at += cut;
            seen = 0;
        }
        token_assert_same_ids(&whole, &parts);
        token_list_release(&whole);
        token_list_release(&parts);
    }
    encoder_close(e);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe__merges_the_lowest_rank_first_in_words_of_any_length),
        cmocka_unit_test(test_merge_table__refuses_a_pair_that_is_there),
        cmocka_unit_test(test_bpe__takes_a_word_of_a_million_letters),
        cmocka_unit_test(test_encoder__knows_a_word_again_as_it_was),
        cmocka_unit_test(test_encoder__gives_the_same_ids_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
