/* The arithmetic of the process grid, and what is said of layouts that do not fit. */
#include "test.h"

#include "base/base.h"
#include "comm/grid.h"

static const struct grid_shape shapes[] = {
    {1, 1, 1, 1}, {4, 1, 1, 1}, {1, 5, 1, 1}, {2, 3, 1, 1},
    {2, 2, 2, 2}, {1, 1, 7, 3}, {3, 4, 2, 5}, {1, 16, 1, 8},
};

static void test_grid__coordinates_and_rank_are_inverse(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        for (int rank = 0; rank < grid_size(&shapes[s]); rank++) {
            struct grid_coord at = grid_coord_of(&shapes[s], rank);
            assert_int_equal(grid_rank_of(&shapes[s], at), rank);
            assert_in_range(at.dp, 0, shapes[s].dp - 1);
            assert_in_range(at.pp, 0, shapes[s].pp - 1);
            assert_in_range(at.sharding, 0, shapes[s].sharding - 1);
            assert_in_range(at.mp, 0, shapes[s].mp - 1);
        }
}

static void test_grid__model_is_the_fastest_axis_and_data_the_slowest(void **state)
{
    (void)state;
    const struct grid_shape s = {.dp = 2, .pp = 3, .sharding = 5, .mp = 7};
    assert_int_equal(grid_rank_of(&s, (struct grid_coord){.mp = 1}), 1);
    assert_int_equal(grid_rank_of(&s, (struct grid_coord){.sharding = 1}), 7);
    assert_int_equal(grid_rank_of(&s, (struct grid_coord){.pp = 1}), 35);
    assert_int_equal(grid_rank_of(&s, (struct grid_coord){.dp = 1}), 105);
    assert_int_equal(grid_size(&s), 210);
}

static void test_grid__a_huge_product_does_not_wrap(void **state)
{
    (void)state;
    const struct grid_shape s = {1000000000, 1000000000, 1000000000, 1000000000};
    assert_true(grid_size(&s) == INT64_MAX);
}

static void test_grid_fit__accepts_what_fits_and_fills_dp_in(void **state)
{
    (void)state;
    struct error err;
    struct grid_shape full = {.dp = 2, .pp = 2, .sharding = 1, .mp = 2};
    struct grid_shape open = {.dp = 0, .pp = 2, .sharding = 1, .mp = 2};
    assert_ok(grid_fit(&full, 8, &err), err);
    assert_ok(grid_fit(&open, 24, &err), err);
    assert_int_equal(open.dp, 6);
}

static void test_grid_fit__a_refusal_says_what_would_fit(void **state)
{
    (void)state;
    static const struct {
        struct grid_shape shape;
        int64_t n;
        const char *want;
    } cases[] = {
        {{2, 1, 1, 3},
         8,
         "the layout dp 2 x mp 3 takes 6 processes, but there are 8; others of that "
         "size: dp 2 x mp 4; dp 4 x mp 2; dp 2 x sharding 2 x mp 2; dp 2 x pp 2 x mp 2"},
        {{0, 3, 1, 1},
         7,
         "the layout pp 3 takes a multiple of 3 processes, but there are 7; others of "
         "that size: pp 7; dp 7; sharding 7; mp 7"},
        {{4, 1, 1, 1},
         1,
         "the layout dp 4 takes 4 processes, but there is 1; others of that size: dp 1"},
        {{1, 0, 1, 1}, 1, "pp_degree is 0; a degree is at least 1"},
        {{-2, 1, 1, 1}, 1, "dp_degree is -2; a degree is at least 1"},
        {{1000000000, 1000000000, 1000000000, 1},
         2,
         "the layout dp 1000000000 x pp 1000000000 x sharding 1000000000 takes more "
         "processes than can be counted, but there are 2; others of that size: sharding "
         "2; "
         "pp 2; dp 2; mp 2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        struct grid_shape shape = cases[i].shape;
        assert_int_equal(grid_fit(&shape, cases[i].n, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_string_equal(err.text, cases[i].want);
    }
}

static void test_grid_suggest__every_suggestion_has_the_right_size(void **state)
{
    (void)state;
    char text[4096];
    const struct grid_shape wanted = {.dp = 3, .pp = 2, .sharding = 2, .mp = 5};
    for (int n = 1; n <= 60; n++) {
        grid_suggest(&wanted, n, 16, NULL, NULL, text, sizeof text);
        for (char *save, *layout = strtok_r(text, ";", &save); layout;
             layout = strtok_r(NULL, ";", &save)) {
            int product = 1;
            for (char *digit = strpbrk(layout, "123456789"); digit;
                 digit = strpbrk(digit, "123456789"))
                product *= (int)strtol(digit, &digit, 10);
            assert_int_equal(product, n);
        }
    }
}

static void test_grid_suggest__a_short_buffer_is_cut_not_overrun(void **state)
{
    (void)state;
    char text[16];
    memset(text, 'x', sizeof text);
    grid_suggest(&shapes[0], 64, 16, NULL, NULL, text, sizeof text - 2);
    assert_true(strlen(text) < sizeof text - 2);
    assert_true(text[14] == 'x' && text[15] == 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid__coordinates_and_rank_are_inverse),
        cmocka_unit_test(test_grid__model_is_the_fastest_axis_and_data_the_slowest),
        cmocka_unit_test(test_grid__a_huge_product_does_not_wrap),
        cmocka_unit_test(test_grid_fit__accepts_what_fits_and_fills_dp_in),
        cmocka_unit_test(test_grid_fit__a_refusal_says_what_would_fit),
        cmocka_unit_test(test_grid_suggest__every_suggestion_has_the_right_size),
        cmocka_unit_test(test_grid_suggest__a_short_buffer_is_cut_not_overrun),
    };
    return cmocka_run_group_tests_name("grid", tests, NULL, NULL);
}
