/*
 * Philox-4x32-10 against the known answers published with Random123, and the two
 * distributions built on it.
 */
#include "test.h"

#include "base/philox.h"

struct known_answer {
    uint32_t counter[4], key[2], out[4];
};

static void test_philox__gives_the_published_answers(void **state)
{
    (void)state;
    static const struct known_answer answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        uint32_t out[4];
        philox_4x32(answers[i].key, answers[i].counter, out);
        for (int w = 0; w < 4; w++)
            assert_int_equal(out[w], answers[i].out[w]);
    }
}

static void test_philox__key_holds_seed_use_and_layer(void **state)
{
    (void)state;
    struct philox_key key =
        philox_key(0x0123456789ABCDEFu, PHILOX_DROP_MLP_OUT, 0x123456);
    assert_int_equal(key.k[0], 0x89ABCDEF);
    assert_int_equal(key.seed_high, 0x01234567);
    assert_int_equal(key.k[1], (uint32_t)PHILOX_DROP_MLP_OUT << 24 | 0x123456);
}

/* -- normal numbers ------------------------------------------------------------------ */

enum { N_NORMAL = 1 << 20 };

static float *normal_numbers(double std)
{
    float *x = malloc(N_NORMAL * sizeof *x);
    assert_non_null(x);
    philox_normal_fill(x, N_NORMAL, philox_key(1234, PHILOX_INIT, 0), 0, std);
    return x;
}

/* Standard errors of the moments of n normal numbers: mean sqrt(1/n), variance
 * sqrt(2/n), third moment sqrt(15/n), fourth sqrt(96/n). */
static void test_philox_normal__has_the_moments_of_a_normal(void **state)
{
    (void)state;
    float *x = normal_numbers(1.0);
    double sum[5] = {0};
    for (int64_t i = 0; i < N_NORMAL; i++) {
        double power = (double)x[i];
        for (int m = 1; m <= 4; m++, power *= (double)x[i])
            sum[m] += power;
    }
    assert_close(sum[1] / N_NORMAL, 0, 5 * sqrt(1.0 / N_NORMAL));
    assert_close(sum[2] / N_NORMAL, 1, 5 * sqrt(2.0 / N_NORMAL));
    assert_close(sum[3] / N_NORMAL, 0, 5 * sqrt(15.0 / N_NORMAL));
    assert_close(sum[4] / N_NORMAL, 3, 5 * sqrt(96.0 / N_NORMAL));
    free(x);
}

/* Elements 2i and 2i+1 come from one block, 2i and 2i+2 from neighbouring ones. */
static void test_philox_normal__neighbours_are_not_correlated(void **state)
{
    (void)state;
    float *x = normal_numbers(1.0);
    for (int64_t lag = 1; lag <= 3; lag++) {
        double sum = 0;
        for (int64_t i = 0; i + lag < N_NORMAL; i++)
            sum += (double)x[i] * (double)x[i + lag];
        assert_close(sum / N_NORMAL, 0, 5 * sqrt(1.0 / N_NORMAL));
    }
    free(x);
}

static void test_philox_normal__scales_with_std(void **state)
{
    (void)state;
    float *x = normal_numbers(1.0), *scaled = normal_numbers(0.02);
    for (int64_t i = 0; i < N_NORMAL; i++)
        assert_close(scaled[i], 0.02 * (double)x[i], 2e-7 * fabs((double)scaled[i]));
    free(x);
    free(scaled);
}

/* A tensor may be filled in pieces by many ranks: any cut gives the same elements. */
static void test_philox_normal__pieces_give_the_same_bits_as_the_whole(void **state)
{
    (void)state;
    float *x = normal_numbers(1.0);
    struct philox_key key = philox_key(1234, PHILOX_INIT, 0);
    for (int64_t first = 0; first < 7; first++) {
        for (int64_t n = 0; n < 7; n++) {
            float piece[8] = {0};
            philox_normal_fill(piece, n, key, (uint64_t)first, 1.0);
            assert_memory_equal(piece, x + first, (size_t)n * sizeof *x);
            assert_true(piece[n] == 0);
        }
    }
    free(x);
}

static void test_philox_normal__element_depends_on_all_64_bits_of_its_index(void **state)
{
    (void)state;
    struct philox_key key = philox_key(7, PHILOX_INIT, 0);
    float low, high, highest;
    philox_normal_fill(&low, 1, key, 0, 1.0);
    philox_normal_fill(&high, 1, key, 1ull << 33, 1.0);
    philox_normal_fill(&highest, 1, key, 1ull << 63, 1.0);
    assert_true(low != high && low != highest && high != highest);
}

/* -- uniform numbers ----------------------------------------------------------------- */

static void test_philox_uniform__lies_in_0_to_1_evenly(void **state)
{
    (void)state;
    enum { N = 1 << 18, BINS = 16 };
    struct philox_key key = philox_key(42, PHILOX_SAMPLE_TOKEN, 0);
    int64_t count[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float x = philox_uniform(key, i, 3);
        assert_true(x >= 0 && x < 1);
        count[(int)(x * BINS)]++;
    }
    double p = 1.0 / BINS;
    for (int b = 0; b < BINS; b++)
        assert_close(count[b], N * p, 5 * sqrt(N * p * (1 - p)));
}

static void test_philox_uniform__another_step_is_another_stream(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    struct philox_key key = philox_key(42, PHILOX_SAMPLE_TOKEN, 0);
    double sum = 0;
    for (uint64_t i = 0; i < N; i++)
        sum += ((double)philox_uniform(key, i, 1) - 0.5) *
               ((double)philox_uniform(key, i, 2) - 0.5);
    assert_close(sum / N, 0, 5 * sqrt(1.0 / N) / 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox__gives_the_published_answers),
        cmocka_unit_test(test_philox__key_holds_seed_use_and_layer),
        cmocka_unit_test(test_philox_normal__has_the_moments_of_a_normal),
        cmocka_unit_test(test_philox_normal__neighbours_are_not_correlated),
        cmocka_unit_test(test_philox_normal__scales_with_std),
        cmocka_unit_test(test_philox_normal__pieces_give_the_same_bits_as_the_whole),
        cmocka_unit_test(test_philox_normal__element_depends_on_all_64_bits_of_its_index),
        cmocka_unit_test(test_philox_uniform__lies_in_0_to_1_evenly),
        cmocka_unit_test(test_philox_uniform__another_step_is_another_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
