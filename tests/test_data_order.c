/* The split and the shuffle, against vectors computed by Python and numpy. */
#include "data/np_random.h"
#include "data/split.h"

#include "data_fixture.h"

static void test_split__vectors_of_fleetx(void **state)
{
    (void)state;
    static const struct {
        double weights[3];
        int64_t n;
        int64_t bounds[4];
    } cases[] = {
        {{949, 50, 1}, 268492, {0, 254799, 268224, 268492}},
        {{949, 50, 1}, 1000, {0, 949, 999, 1000}},
        {{949, 50, 1}, 100, {0, 95, 100, 100}},
        {{949, 50, 1}, 7, {0, 7, 7, 7}},
        {{949, 50, 1}, 0, {0, 0, 0, 0}},
        {{1, 0, 0}, 5, {0, 5, 5, 5}},
        {{0.5, 0.5, 0}, 1, {0, 1, 1, 1}}, // two halves round to 0
        {{0.5, 0.5, 0}, 3, {0, 1, 3, 3}}, // 1.5 rounds to 2, twice
        {{1, 1, 1}, 2, {0, 0, 1, 2}},     // three thirds of 2 round to 1
        {{0, 0.5, 0.5}, 3, {0, 0, 1, 3}}, // the boundary at -1 becomes 0
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t bounds[4];
        struct error err;
        assert_ok(split_documents(cases[i].weights, cases[i].n, bounds, &err), err);
        for (int p = 0; p < 4; p++)
            assert_int_equal(bounds[p], cases[i].bounds[p]);
    }
}

static void test_split__senseless_weights_are_refused(void **state)
{
    (void)state;
    static const double cases[][3] = {{0, 0, 0},
                                      {1, -1, 1},
                                      {(double)NAN, 1, 1},
                                      {(double)INFINITY, 1, 1},
                                      {1e308, 1e308, 1e308}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t bounds[4];
        struct error err;
        assert_int_equal(split_documents(cases[i], 10, bounds, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_says(err, "dataset.split");
    }
}

static void check_shuffle(uint32_t seed, int64_t n, const int64_t *expected)
{
    struct np_random random;
    int64_t values[64];
    for (int64_t i = 0; i < n; i++)
        values[i] = i;
    np_random_init(&random, seed);
    np_random_shuffle(&random, values, n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(values[i], expected[i]);
}

static void test_np_random__shuffles_are_numpys(void **state)
{
    (void)state;
    check_shuffle(1024, 16,
                  (int64_t[]){4, 10, 7, 6, 2, 3, 8, 15, 0, 13, 9, 5, 12, 14, 1, 11});
    check_shuffle(0, 10, (int64_t[]){2, 8, 4, 9, 1, 6, 7, 3, 0, 5});
    check_shuffle(42, 10, (int64_t[]){8, 1, 5, 0, 7, 2, 9, 4, 3, 6});
}

/* Long enough for many blocks of the generator. */
static void test_np_random__a_long_shuffle_is_numpys(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const int64_t first[] = {85117, 19600, 4648, 56853};
    static const int64_t last[] = {14260, 44103, 16674, 27043};
    struct np_random random;
    int64_t *values = malloc(N * sizeof *values);
    for (int64_t i = 0; i < N; i++)
        values[i] = i;
    np_random_init(&random, UINT32_MAX);
    np_random_shuffle(&random, values, N);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(values[i], first[i]);
        assert_int_equal(values[N - 4 + i], last[i]);
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split__vectors_of_fleetx),
        cmocka_unit_test(test_split__senseless_weights_are_refused),
        cmocka_unit_test(test_np_random__shuffles_are_numpys),
        cmocka_unit_test(test_np_random__a_long_shuffle_is_numpys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
