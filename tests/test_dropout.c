/*
 * Dropout: the contract of kernels.h written out a second time, the rate, the streams,
 * and that every kernel applies exactly dropout_factor().
 */
#include "kernel_test.h"

static struct dropout drop_at(double rate, int64_t first_sample)
{
    return dropout_init(rate, 0xFEDCBA9876543210u, PHILOX_DROP_EMBEDDING, 2, 100,
                        first_sample);
}

/* -- the definition ------------------------------------------------------------------ */

static void test_dropout__none_keeps_everything(void **state)
{
    (void)state;
    struct dropout none = dropout_none(), zero = drop_at(0, 0);
    assert_int_equal(none.threshold, 0);
    assert_int_equal(zero.threshold, 0);
    for (int64_t c = 0; c < 1000; c++) {
        assert_true(dropout_factor(&none, 0, 0, 1000, c) == 1.0F);
        assert_true(dropout_factor(&zero, 3, 5, 1000, c) == 1.0F);
    }
}

static void test_dropout__scale_makes_up_for_the_rounded_rate(void **state)
{
    (void)state;
    static const double rates[] = {0.1, 0.5, 1e-5, 0.123456, 0.999, 0.25};
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct dropout drop = drop_at(rates[i], 0);
        assert_close(drop.threshold, rates[i] * 65536, 0.5);
        double kept = 1 - drop.threshold / 65536.0;
        assert_close((double)drop.scale * kept, 1, 1e-7);
    }
}

static void test_dropout__rate_1_drops_everything(void **state)
{
    (void)state;
    struct dropout drop = drop_at(1, 0);
    for (int64_t c = 0; c < 1000; c++)
        assert_true(dropout_factor(&drop, 0, 0, 1000, c) == 0.0F);
}

/* The 128 factors of a group, block by block as the contract words it. */
static void expected_group(float factor[DROPOUT_GROUP], const struct dropout *drop,
                           uint32_t sample, uint32_t group)
{
    for (uint32_t j = 0; j < 16; j++) {
        uint32_t counter[4] = {group * 16 + j, sample, drop->step, drop->key.seed_high};
        uint32_t words[4];
        philox_4x32(drop->key.k, counter, words);
        for (uint32_t w = 0; w < 4; w++) {
            uint32_t low = words[w] & 0xFFFF, high = words[w] >> 16;
            factor[(2 * w) * 16 + j] = low < drop->threshold ? 0 : drop->scale;
            factor[(2 * w + 1) * 16 + j] = high < drop->threshold ? 0 : drop->scale;
        }
    }
}

static void test_dropout_factor__is_what_the_contract_says(void **state)
{
    (void)state;
    static const int64_t columns[] = {1, 127, 128, 129, 300, 768};
    struct dropout drop = drop_at(0.3, 21);
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        int64_t C = columns[i], n_groups = (C + 127) / 128;
        for (int64_t row = 0; row < 5; row++) {
            for (int64_t c = 0; c < C; c++) {
                float want[DROPOUT_GROUP];
                int64_t group = row * n_groups + c / 128;
                expected_group(want, &drop, 21 + 4, (uint32_t)group);
                assert_true(dropout_factor(&drop, 4, row, C, c) == want[c % 128]);
            }
        }
    }
}

/* -- the rate and the streams -------------------------------------------------------- */

enum { ROWS = 64, COLUMNS = 1000, N_DECISIONS = ROWS * COLUMNS };

static bool *decisions(const struct dropout *drop, int64_t b)
{
    bool *is_kept = malloc(N_DECISIONS * sizeof *is_kept);
    assert_non_null(is_kept);
    for (int64_t i = 0; i < N_DECISIONS; i++)
        is_kept[i] = dropout_factor(drop, b, i / COLUMNS, COLUMNS, i % COLUMNS) != 0.0F;
    return is_kept;
}

static void test_dropout__drops_the_rate_it_is_given(void **state)
{
    (void)state;
    static const double rates[] = {0.001, 0.1, 0.5, 0.9};
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct dropout drop = drop_at(rates[i], 0);
        bool *is_kept = decisions(&drop, 0);
        double n_dropped = 0, p = drop.threshold / 65536.0;
        for (int64_t e = 0; e < N_DECISIONS; e++)
            n_dropped += !is_kept[e];
        assert_close(n_dropped, N_DECISIONS * p, 5 * sqrt(N_DECISIONS * p * (1 - p)));
        free(is_kept);
    }
}

static void assert_independent(const bool *x, const bool *y, int64_t n, const char *what)
{
    double n_equal = 0;
    for (int64_t i = 0; i < n; i++)
        n_equal += x[i] == y[i];
    if (fabs(n_equal - 0.5 * (double)n) > 5 * sqrt(0.25 * (double)n))
        fail_msg("%s: %g of %lld decisions are equal", what, n_equal, (long long)n);
}

static void test_dropout__seed_use_layer_step_and_sample_each_make_a_stream(void **state)
{
    (void)state;
    struct dropout first = dropout_init(0.5, 1, PHILOX_DROP_MLP_OUT, 0, 0, 0);
    const struct {
        const char *what;
        struct dropout drop;
    } others[] = {
        {"seed", dropout_init(0.5, 2, PHILOX_DROP_MLP_OUT, 0, 0, 0)},
        {"high seed", dropout_init(0.5, 1 + (1ull << 32), PHILOX_DROP_MLP_OUT, 0, 0, 0)},
        {"use", dropout_init(0.5, 1, PHILOX_DROP_ATTN_OUT, 0, 0, 0)},
        {"layer", dropout_init(0.5, 1, PHILOX_DROP_MLP_OUT, 1, 0, 0)},
        {"step", dropout_init(0.5, 1, PHILOX_DROP_MLP_OUT, 0, 1, 0)},
        {"sample", dropout_init(0.5, 1, PHILOX_DROP_MLP_OUT, 0, 0, 1)},
    };
    bool *x = decisions(&first, 0);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        bool *y = decisions(&others[i].drop, 0);
        assert_independent(x, y, N_DECISIONS, others[i].what);
        free(y);
    }
    static const int64_t lags[] = {1, 16, 128, COLUMNS}; // within one stream, too
    for (size_t i = 0; i < ARRAY_LEN(lags); i++)
        assert_independent(x, x + lags[i], N_DECISIONS - lags[i], "lag");
    free(x);
}

static void test_dropout__grouping_of_samples_does_not_matter(void **state)
{
    (void)state;
    struct dropout whole = drop_at(0.5, 8), second_half = drop_at(0.5, 10);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t c = 0; c < 1000; c++)
            assert_true(dropout_factor(&whole, 2 + b, 7, 1000, c) ==
                        dropout_factor(&second_half, b, 7, 1000, c));
}

/* -- what the kernels apply ---------------------------------------------------------- */

enum { B = 3, S = 5, C = 200 };

static void assert_factors(const float *got, const struct dropout *drop, const char *what)
{
    for (int64_t i = 0; i < B * S * C; i++) {
        float want = dropout_factor(drop, i / (S * C), i / C % S, C, i % C);
        if (got[i] != want)
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, (double)got[i],
                     (double)want);
    }
}

static void check_applied(const struct kernels *k, const struct dropout *drop)
{
    float *ones = floats_new_set(B * S * C, 1), *none = floats_new_set(B * S * C, 0);
    float *y = floats_new_set(B * S * C, NAN);
    bias_dropout_residual(k, y, none, ones, none, B, S, C, drop);
    assert_factors(y, drop, "bias_dropout_residual");
    k->dropout_fwd(stream_of(k), &(struct dropped){y, ones, B, S, C, *drop});
    assert_factors(y, drop, "dropout_fwd");
    floats_set(y, B * S * C, NAN);
    k->dropout_bwd(stream_of(k), &(struct dropped){y, ones, B, S, C, *drop});
    assert_factors(y, drop, "dropout_bwd");
    free(ones);
    free(none);
    free(y);
}

static void test_dropout__kernels_apply_the_factor(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        struct dropout tenth = drop_at(0.1, 1000), half = drop_at(0.5, 1);
        check_applied(t.at[i], &tenth);
        check_applied(t.at[i], &half);
    }
}

static void test_dropout__of_none_copies(void **state)
{
    (void)state;
    struct tables t = all_tables();
    struct dropout none = dropout_none();
    for (int i = 0; i < t.n; i++) {
        float dx[4] = {9, 9, 9, 9}, dy[4] = {1, 2, 3, 4};
        struct dropped d = {dx, dy, 1, 2, 2, none};
        t.at[i]->dropout_bwd(stream_of(t.at[i]), &d);
        assert_same_floats(dx, dy, 4, "dropout_bwd");
        floats_set(dx, 4, 9);
        t.at[i]->dropout_fwd(stream_of(t.at[i]), &d);
        assert_same_floats(dx, dy, 4, "dropout_fwd");
    }
}

/* With q = 0 all visible keys have the same probability, and with v the unit matrix out
 * shows the factors themselves: out[q, key] = factor / (q + 1). */
static void check_attention_factors(const struct kernels *k, const struct dropout *drop)
{
    enum { L = 140, HEADS = 2, ROW = 3 * HEADS * L }; // D = S = L
    float *qkv = floats_new_set(L * ROW, 0);
    float *out = floats_new_set(L * HEADS * L, NAN),
          *lse = floats_new_set(HEADS * L, NAN);
    for (int64_t s = 0; s < L; s++)
        for (int64_t h = 0; h < HEADS; h++)
            qkv[s * ROW + 2 * HEADS * L + h * L + s] = 1;
    attention_fwd(
        k,
        (struct attention){
            .B = 1, .S = L, .A = HEADS, .D = L, .out = out, .lse = lse, .drop = *drop},
        qkv);
    for (int64_t i = 0; i < L * HEADS * L; i++) {
        int64_t q = i / (HEADS * L), h = i / L % HEADS, key = i % L;
        double factor = (double)dropout_factor(drop, 0, h * L + q, L, key);
        double want = key <= q ? factor / (double)(q + 1) : 0;
        if (fabs((double)out[i] - want) > 5e-7 * want)
            fail_msg("%s: head %lld, query %lld, key %lld is %.9g, not %.9g", k->name,
                     (long long)h, (long long)q, (long long)key, (double)out[i], want);
    }
    free(qkv);
    free(out);
    free(lse);
}

static void test_dropout__attention_applies_the_factor_to_probabilities(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        struct dropout tenth = drop_at(0.1, 3), half = drop_at(0.5, 0);
        check_attention_factors(t.at[i], &tenth);
        check_attention_factors(t.at[i], &half);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout__none_keeps_everything),
        cmocka_unit_test(test_dropout__scale_makes_up_for_the_rounded_rate),
        cmocka_unit_test(test_dropout__rate_1_drops_everything),
        cmocka_unit_test(test_dropout_factor__is_what_the_contract_says),
        cmocka_unit_test(test_dropout__drops_the_rate_it_is_given),
        cmocka_unit_test(test_dropout__seed_use_layer_step_and_sample_each_make_a_stream),
        cmocka_unit_test(test_dropout__grouping_of_samples_does_not_matter),
        cmocka_unit_test(test_dropout__kernels_apply_the_factor),
        cmocka_unit_test(test_dropout__of_none_copies),
        cmocka_unit_test(test_dropout__attention_applies_the_factor_to_probabilities),
    };
    kernels_set_threads(1); // small calls on a busy machine wait long for a second
    return cmocka_run_group_tests(tests, NULL, NULL);
}
