/*
 * The learning rate: every value the original systems' published logs show, the shape of
 * the schedule, and its corners.
 */
#include "test.h"

#include "optim/lr.h"

/* A log prints, after update n, the rate of update n + 1, with "%.5e". */
struct logged {
    double warmup_rate;
    int64_t decay_steps;
    const char *values[10];
};

static const struct logged logs[] = {
    // 3D parallel
    {0.01,
     360000,
     {"5.55556e-09", "8.33333e-09", "1.11111e-08", "1.38889e-08", "1.66667e-08",
      "1.94444e-08", "2.22222e-08", "2.50000e-08", "2.77778e-08"}},
    // data parallel
    {0.01,
     360000,
     {"5.55556e-09", "8.33333e-09", "1.11111e-08", "1.38889e-08", "1.66667e-08",
      "1.94444e-08", "2.22222e-08", "2.50000e-08", "2.77778e-08", "3.05556e-08"}},
    // single card
    {0.01,
     360000,
     {"5.55556e-09", "8.33333e-09", "1.11111e-08", "1.38889e-08", "1.66667e-08",
      "1.94444e-08", "2.22222e-08", "2.50000e-08", "2.77778e-08"}},
    // group sharding, another warm-up
    {0.01,
     320000,
     {"6.25000e-09", "9.37500e-09", "1.25000e-08", "1.56250e-08", "1.87500e-08",
      "2.18750e-08", "2.50000e-08", "2.81250e-08", "3.12500e-08", "3.43750e-08"}},
};

static void test_lr__is_what_the_published_logs_show(void **state)
{
    (void)state;
    int n_values = 0;
    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        struct config_lr lr = {.decay_steps = logs[i].decay_steps,
                               .warmup_rate = logs[i].warmup_rate,
                               .max_lr = 1e-5,
                               .min_lr = 5e-5};
        for (int64_t n = 0; n < 10 && logs[i].values[n]; n++, n_values++) {
            char text[32];
            snprintf(text, sizeof text, "%.5e", lr_at(&lr, n + 2));
            assert_string_equal(text, logs[i].values[n]);
        }
    }
    assert_int_equal(n_values, 38);
}

static void test_lr__falls_from_max_to_min_along_a_cosine(void **state)
{
    (void)state;
    struct config_lr lr = {
        .decay_steps = 360000, .warmup_rate = 0.01, .max_lr = 5e-5, .min_lr = 1e-5};
    assert_close(lr_at(&lr, 1), 1.38889e-8, 1e-13);
    assert_close(lr_at(&lr, 3600), 5e-5, 1e-12);
    assert_close(lr_at(&lr, 100000), 4.32035e-5, 1e-10);
    assert_close(lr_at(&lr, 181800), 3e-5, 1e-12);
    assert_close(lr_at(&lr, 360000), 1e-5, 1e-12);
    assert_close(lr_at(&lr, 500000), 1e-5, 0);
}

static void test_lr__rises_when_the_two_are_swapped(void **state)
{
    (void)state;
    struct config_lr lr = {
        .decay_steps = 360000, .warmup_rate = 0.01, .max_lr = 1e-5, .min_lr = 5e-5};
    assert_close(lr_at(&lr, 100000), 1.67965e-5, 1e-10);
    assert_close(lr_at(&lr, 360001), 5e-5, 0);
}

static void test_lr__without_warm_up_starts_near_max(void **state)
{
    (void)state;
    struct config_lr lr = {
        .decay_steps = 10, .warmup_rate = 0.0, .max_lr = 1.0, .min_lr = 0.0};
    assert_close(lr_at(&lr, 1), 0.5 * (1 + cos(M_PI * 0.1)), 1e-15);
    assert_close(lr_at(&lr, 10), 0.0, 1e-15);
}

static void test_highest__is_that_of_all_updates(void **state)
{
    (void)state;
    static const double warmups[] = {0, 0.05, 0.1, 0.33, 0.9};
    static const double lows[] = {0, 0.1, 1, 5};
    int n_compared = 0;
    for (size_t w = 0; w < ARRAY_LEN(warmups); w++)
        for (size_t m = 0; m < ARRAY_LEN(lows); m++)
            for (int64_t decay = 0; decay < 30; decay += 7) {
                struct config_lr lr = {.decay_steps = decay,
                                       .warmup_rate = warmups[w],
                                       .max_lr = 1,
                                       .min_lr = lows[m]};
                for (int64_t first = 1; first < 40; first += 3)
                    for (int64_t last = first; last < 40; last += 5, n_compared++) {
                        double highest = 0;
                        for (int64_t k = first; k <= last; k++)
                            if (lr_at(&lr, k) > highest)
                                highest = lr_at(&lr, k);
                        assert_true(lr_highest(&lr, first, last) == highest);
                    }
            }
    assert_true(n_compared > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_highest__is_that_of_all_updates),
        cmocka_unit_test(test_lr__is_what_the_published_logs_show),
        cmocka_unit_test(test_lr__falls_from_max_to_min_along_a_cosine),
        cmocka_unit_test(test_lr__rises_when_the_two_are_swapped),
        cmocka_unit_test(test_lr__without_warm_up_starts_near_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
