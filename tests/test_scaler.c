/* The loss scale over time: when it doubles, when it halves, when there is no hope. */
#include "test.h"

#include "base/base.h"
#include "optim/scaler.h"

static struct scaler dynamic_scaler(double scale)
{
    return (struct scaler){.scale = scale, .is_dynamic = true};
}

static void update_times(struct scaler *s, bool is_finite, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        scaler_update(s, is_finite);
}

static void test_scaler__doubles_after_each_thousand_clean_steps(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(8);
    update_times(&s, true, 999);
    assert_close(s.scale, 8, 0);
    scaler_update(&s, true);
    assert_close(s.scale, 16, 0);
    update_times(&s, true, 999);
    assert_close(s.scale, 16, 0);
    scaler_update(&s, true);
    assert_close(s.scale, 32, 0);
    assert_int_equal(s.n_skipped, 0);
}

static void test_scaler__halves_after_each_two_overflows_in_a_row(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(64);
    static const double expected[] = {64, 32, 32, 16, 16, 8};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        scaler_update(&s, false);
        assert_close(s.scale, expected[i], 0);
    }
    assert_int_equal(s.n_skipped, ARRAY_LEN(expected));
}

static void
test_scaler__a_clean_step_between_two_overflows_forgives_the_first(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(64);
    for (int i = 0; i < 10; i++) {
        scaler_update(&s, false);
        scaler_update(&s, true);
    }
    assert_close(s.scale, 64, 0);
    assert_int_equal(s.n_skipped, 10);
}

static void test_scaler__an_overflow_starts_the_count_of_clean_steps_again(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(8);
    update_times(&s, true, 999);
    scaler_update(&s, false);
    update_times(&s, true, 999);
    assert_close(s.scale, 8, 0);
    scaler_update(&s, true);
    assert_close(s.scale, 16, 0);
}

static void test_scaler__never_goes_below_one_nor_to_infinity(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(3);
    update_times(&s, false, 2);
    assert_close(s.scale, 1.5, 0);
    update_times(&s, false, 20);
    assert_close(s.scale, 1, 0);
    s = dynamic_scaler(0.5); // below from the start: an overflow is no reason to raise it
    update_times(&s, false, 20);
    assert_close(s.scale, 0.5, 0);
    s = dynamic_scaler(1e30);
    update_times(&s, true, 5000);
    assert_true((double)(float)s.scale <= 1e31); // the loss is scaled in float
}

static void test_scaler__a_fixed_scale_stays(void **state)
{
    (void)state;
    struct scaler s = {.scale = 1024};
    update_times(&s, true, 3000);
    update_times(&s, false, 50);
    assert_close(s.scale, 1024, 0);
    assert_int_equal(s.n_skipped, 50);
}

static void test_scaler__is_hopeless_when_no_scale_helps(void **state)
{
    (void)state;
    struct scaler s = dynamic_scaler(65536); // 32 overflows bring it to one
    update_times(&s, false, 99);
    assert_false(scaler_is_hopeless(&s));
    scaler_update(&s, false);
    assert_true(scaler_is_hopeless(&s));
    scaler_update(&s, true);
    assert_false(scaler_is_hopeless(&s));

    s = dynamic_scaler(1e30); // about 2^100: still on its way down after a hundred
    update_times(&s, false, 150);
    assert_false(scaler_is_hopeless(&s));
    update_times(&s, false, 50);
    assert_true(scaler_is_hopeless(&s));

    s = (struct scaler){.scale = 1024}; // one that cannot be lowered
    update_times(&s, false, 99);
    assert_false(scaler_is_hopeless(&s));
    scaler_update(&s, false);
    assert_true(scaler_is_hopeless(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaler__doubles_after_each_thousand_clean_steps),
        cmocka_unit_test(test_scaler__halves_after_each_two_overflows_in_a_row),
        cmocka_unit_test(
            test_scaler__a_clean_step_between_two_overflows_forgives_the_first),
        cmocka_unit_test(test_scaler__an_overflow_starts_the_count_of_clean_steps_again),
        cmocka_unit_test(test_scaler__never_goes_below_one_nor_to_infinity),
        cmocka_unit_test(test_scaler__a_fixed_scale_stays),
        cmocka_unit_test(test_scaler__is_hopeless_when_no_scale_helps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
