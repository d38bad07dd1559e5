/*
 * Attention over samples that hold several documents: what must hold whatever the
 * numbers. How close the tables come to the reference is in test_kernels.c.
 */
#include "kernel_test.h"

#ifndef TEST_LENGTH_MOST // an emulator is slow
#define TEST_LENGTH_MOST 650
#endif

enum { B = 2, A = 2, D = 20, H = A * D };

struct run { // one attention, forward and backward
    int64_t S;
    float *qkv, *dout; // inputs
    float *out, *lse, *dqkv, *delta;
};

static struct run run_open(int64_t S)
{
    return (struct run){.S = S,
                        .qkv = floats_new_bell(B * S * 3 * H, 1),
                        .dout = floats_new_bell(B * S * H, 2),
                        .out = floats_new_set(B * S * H, NAN),
                        .lse = floats_new_set(B * A * S, NAN),
                        .dqkv = floats_new_set(B * S * 3 * H, NAN),
                        .delta = floats_new_set(B * A * S, NAN)};
}

static void run_close(struct run *run)
{
    float *all[] = {run->qkv, run->dout, run->out, run->lse, run->dqkv, run->delta};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void run_attention(const struct run *run, const struct kernels *k, double rate,
                          const int32_t *first_key)
{
    struct attention at = {
        .B = B,
        .S = run->S,
        .A = A,
        .D = D,
        .out = run->out,
        .lse = run->lse,
        .drop = rate > 0 ? dropout_init(rate, 7, PHILOX_DROP_MLP_OUT, 1, 2, 3)
                         : dropout_none(),
        .first_key = first_key,
    };
    attention_fwd(k, at, run->qkv);
    attention_bwd(
        k, (struct attention_bwd){.fwd = at, .dout = run->dout, .delta = run->delta},
        run->qkv, run->dqkv);
}

/* Both samples cut at the same places, every `length` tokens. */
static int32_t *first_keys_new(int64_t S, int64_t length)
{
    int32_t *first_key = words_new(B * S);
    for (int64_t i = 0; i < B * S; i++)
        first_key[i] = (int32_t)(i % S / length * length);
    return first_key;
}

static void assert_same_runs(const struct run *got, const struct run *want)
{
    int64_t S = want->S;
    assert_same_floats(got->out, want->out, B * S * H, "out");
    assert_same_floats(got->lse, want->lse, B * A * S, "lse");
    assert_same_floats(got->dqkv, want->dqkv, B * S * 3 * H, "dqkv");
}

/* Calls `check` for every table and for lengths around the tiles that tables may use. */
static void for_each_length(void (*check)(const struct kernels *k, int64_t S))
{
    static const int64_t lengths[] = {1, 5, 127, 128, 129, 255, 261, 390, 650};
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++)
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
            if (lengths[l] <= (i > 0 ? TEST_LENGTH_MOST : 127)) // the reference is slow
                check(t.at[i], lengths[l]);
}

static void check_one_document(const struct kernels *k, int64_t S)
{
    static const double rates[] = {0, 0.2};
    int32_t *first_key = first_keys_new(S, S);
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct run plain = run_open(S), masked = run_open(S);
        run_attention(&plain, k, rates[i], NULL);
        run_attention(&masked, k, rates[i], first_key);
        assert_same_runs(&masked, &plain);
        run_close(&plain);
        run_close(&masked);
    }
    free(first_key);
}

static void test_documents__one_a_sample_has_the_bits_of_no_mask(void **state)
{
    (void)state;
    for_each_length(check_one_document);
}

static void check_single_tokens(const struct kernels *k, int64_t S)
{
    struct run run = run_open(S);
    int32_t *first_key = first_keys_new(S, 1);
    run_attention(&run, k, 0, first_key);
    for (int64_t n = 0; n < B * S; n++)
        for (int64_t c = 0; c < H; c++) {
            const float *dqkv = run.dqkv + n * 3 * H + c;
            assert_close(run.out[n * H + c], run.qkv[(n * 3 + 2) * H + c], 1e-6);
            assert_close(dqkv[2 * H], run.dout[n * H + c], 1e-5);
            assert_close(dqkv[0], 0, 1e-4);
            assert_close(dqkv[H], 0, 1e-4);
        }
    free(first_key);
    run_close(&run);
}

static void test_documents__of_one_token_see_themselves_alone(void **state)
{
    (void)state;
    for_each_length(check_single_tokens);
}

/* Scores of minus thousands, all equal: a row is the mean of the values it sees, and its
 * maximum must not be taken for that of nothing. */
static void check_low_scores(const struct kernels *k, int64_t S)
{
    int64_t length = 100;
    struct run run = run_open(S);
    int32_t *first_key = first_keys_new(S, length);
    for (int64_t n = 0; n < B * S; n++) {
        floats_set(run.qkv + n * 3 * H, H, 50);
        floats_set(run.qkv + (n * 3 + 1) * H, H, -60);
    }
    run_attention(&run, k, 0, first_key);
    for (int64_t b = 0; b < B; b++) {
        double sum = 0;
        for (int64_t q = 0; q < S; q++) {
            sum = (q % length ? sum : 0) + (double)run.qkv[((b * S + q) * 3 + 2) * H];
            assert_close(run.out[(b * S + q) * H], sum / (double)(q % length + 1), 1e-5);
        }
    }
    free(first_key);
    run_close(&run);
}

static void test_documents__may_have_any_scores(void **state)
{
    (void)state;
    for_each_length(check_low_scores);
}

/* Tokens first .. first + n of both samples of `whole`, as samples of their own. */
static struct run run_part(const struct run *whole, int64_t first, int64_t n)
{
    struct run part = run_open(n);
    for (int64_t b = 0; b < B; b++) {
        memcpy(part.qkv + b * n * 3 * H, whole->qkv + (b * whole->S + first) * 3 * H,
               (size_t)(n * 3 * H) * sizeof(float));
        memcpy(part.dout + b * n * H, whole->dout + (b * whole->S + first) * H,
               (size_t)(n * H) * sizeof(float));
    }
    return part;
}

static void assert_close_part(const struct run *whole, const struct run *part,
                              int64_t first)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t s = 0; s < part->S; s++) {
            int64_t n = b * whole->S + first + s, m = b * part->S + s;
            for (int64_t c = 0; c < H; c++)
                assert_close(whole->out[n * H + c], part->out[m * H + c], 2e-5);
            for (int64_t c = 0; c < 3 * H; c++)
                assert_close(whole->dqkv[n * 3 * H + c], part->dqkv[m * 3 * H + c], 1e-4);
        }
}

/* Forward and backward: gradients without a mask are checked elsewhere, by their slopes.
 */
static void check_alone(const struct kernels *k, int64_t S)
{
    static const int64_t cuts[] = {3, 50, 128, 200};
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct run whole = run_open(S);
        int32_t *first_key = first_keys_new(S, cuts[i]);
        run_attention(&whole, k, 0, first_key);
        for (int64_t first = 0; first < S; first += cuts[i] * (1 + 10 / cuts[i])) {
            struct run part = run_part(&whole, first, i64_min(cuts[i], S - first));
            run_attention(&part, k, 0, NULL);
            assert_close_part(&whole, &part, first);
            run_close(&part);
        }
        free(first_key);
        run_close(&whole);
    }
}

static void test_documents__are_what_they_would_be_alone(void **state)
{
    (void)state;
    for_each_length(check_alone);
}

/* Numbers of other documents, however large, change no bit. */
static void check_isolation(const struct kernels *k, int64_t S)
{
    int64_t length = (S + 2) / 3, begin = length, end = i64_min(S, 2 * length);
    struct run run = run_open(S), other = run_open(S);
    int32_t *first_key = first_keys_new(S, length);
    for (int64_t n = 0; n < B * S; n++)
        for (int64_t c = 0; c < 3 * H && (n % S < begin || n % S >= end); c++)
            other.qkv[n * 3 * H + c] *= -20;
    run_attention(&run, k, 0.1, first_key);
    run_attention(&other, k, 0.1, first_key);
    for (int64_t b = 0; b < B && begin < end; b++) {
        int64_t n = b * S + begin;
        assert_same_floats(other.out + n * H, run.out + n * H, (end - begin) * H, "out");
        assert_same_floats(other.dqkv + n * 3 * H, run.dqkv + n * 3 * H,
                           (end - begin) * 3 * H, "dqkv");
    }
    free(first_key);
    run_close(&run);
    run_close(&other);
}

static void test_documents__do_not_see_each_other(void **state)
{
    (void)state;
    for_each_length(check_isolation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents__one_a_sample_has_the_bits_of_no_mask),
        cmocka_unit_test(test_documents__of_one_token_see_themselves_alone),
        cmocka_unit_test(test_documents__may_have_any_scores),
        cmocka_unit_test(test_documents__are_what_they_would_be_alone),
        cmocka_unit_test(test_documents__do_not_see_each_other),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
