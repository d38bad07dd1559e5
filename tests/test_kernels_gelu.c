/*
 * Both forms of GELU at extreme values, near 0 and of NaN; the accuracy of the exact form;
 * and the bits of backward.
 */
#include "kernel_test.h"

static const enum activation activations[] = {ACTIVATION_GELU, ACTIVATION_GELU_TANH};

/* Beyond +-30 the function is x or 0 and its slope 1 or 0, to the last bit of a float. */
static void check_extremes(const struct kernels *k, enum activation act)
{
    static const float x[] = {100, -100, 1e4F, -1e4F, 30, -30, 88, -88, 1e10F, -1e10F};
    enum { N = ARRAY_LEN(x) };
    float y[N], dx[N], y_again[N], dy[N], b[N], db[N], partial[N];
    floats_set(dy, N, 3);
    floats_set(b, N, 0);
    floats_set(db, N, 0);
    gelu_fwd(k, act, y, x, b, 1, N);
    gelu_bwd(k, act, dx, y_again, db, dy, x, b, partial, 1, N);
    for (int i = 0; i < N; i++) {
        assert_close(y[i], x[i] > 0 ? x[i] : 0, 1e-20);
        assert_close(dx[i], x[i] > 0 ? 3 : 0, 1e-6);
    }
}

static void check_gelu_extremes(const struct kernels *k)
{
    for (size_t i = 0; i < ARRAY_LEN(activations); i++)
        check_extremes(k, activations[i]);
}

static void test_gelu__is_identity_or_zero_far_from_zero(void **state)
{
    (void)state;
    for_each_table(check_gelu_extremes);
}

static void check_gelu_near_zero(const struct kernels *k)
{
    static const float x[] = {0, 1e-30F, -1e-30F, 1e-6F, -1e-6F};
    enum { N = ARRAY_LEN(x) };
    float y[N], b[N];
    floats_set(b, N, 0);
    for (size_t a = 0; a < ARRAY_LEN(activations); a++) {
        gelu_fwd(k, activations[a], y, x, b, 1, N);
        for (int i = 0; i < N; i++)
            assert_close(y[i], 0.5 * (double)x[i], 1e-6 * fabs((double)x[i]));
    }
}

static void test_gelu__halves_small_numbers(void **state)
{
    (void)state;
    for_each_table(check_gelu_near_zero);
}

/* Over both tails: the relative error is small as far as floats reach. */
static void check_exact_gelu(const struct kernels *k)
{
    enum { N = 2700 };
    static float x[N], y[N], dx[N], y_again[N], dy[N], b[N], db[N], partial[N];
    floats_set(dy, N, 1);
    floats_set(b, N, 0);
    floats_set(db, N, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.0091F + 1e-4F;
    gelu_fwd(k, ACTIVATION_GELU, y, x, b, 1, N);
    gelu_bwd(k, ACTIVATION_GELU, dx, y_again, db, dy, x, b, partial, 1, N);
    for (int i = 0; i < N; i++) {
        double z = (double)x[i], p = 0.5 * erfc(-z / sqrt(2.0));
        double density = exp(-0.5 * z * z) / sqrt(2.0 * 3.14159265358979324);
        assert_close(y[i], z * p, 7e-7 * fabs(z * p));
        assert_close(dx[i], p + z * density, 4e-7);
    }
}

static void test_gelu__that_is_exact_has_its_relative_accuracy_in_both_tails(void **state)
{
    (void)state;
    for_each_table(check_exact_gelu);
}

static void check_gelu_of_no_number(const struct kernels *k)
{
    float x[] = {NAN, 1, -NAN}, b[] = {0, NAN, 0}, dy[] = {1, 1, 1}, dx[3], y[3], db[3];
    float partial[3];
    floats_set(db, 3, 0);
    for (size_t a = 0; a < ARRAY_LEN(activations); a++) {
        gelu_bwd(k, activations[a], dx, y, db, dy, x, b, partial, 1, 3);
        for (int i = 0; i < 3; i++)
            assert_true(isnan(y[i]) && isnan(dx[i]) && isnan(db[i]));
    }
}

static void test_gelu__of_no_number_is_none(void **state)
{
    (void)state;
    for_each_table(check_gelu_of_no_number);
}

static const int64_t twin_columns[] = {1, 3, 7, 16, 17, 127, 129, 768, 1000};

static void check_twins(const struct kernels *k, enum activation act)
{
    enum { N = 66 };
    for (size_t i = 0; i < ARRAY_LEN(twin_columns); i++) {
        int64_t C = twin_columns[i];
        float *x = floats_new_bell(N * C, 1), *dy = floats_new_bell(N * C, 2);
        float *b = floats_new_bell(C, 3), *db = floats_new_set(C, 0);
        float *y = floats_new_set(N * C, NAN), *again = floats_new_set(N * C, NAN);
        float *partial = words_new(kernel_partials(N, C));
        gelu_fwd(k, act, y, x, b, N, C);
        gelu_bwd(k, act, dy, again, db, dy, x, b, partial, N, C);
        assert_same_floats(again, y, N * C, "gelu_bwd's y");
        float *all[] = {x, dy, b, db, y, again, partial};
        for (size_t f = 0; f < ARRAY_LEN(all); f++)
            free(all[f]);
    }
}

static void check_gelu_twins(const struct kernels *k)
{
    for (size_t i = 0; i < ARRAY_LEN(activations); i++)
        check_twins(k, activations[i]);
}

static void test_gelu__backward_gives_the_bits_of_forward_again(void **state)
{
    (void)state;
    for_each_table(check_gelu_twins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu__is_identity_or_zero_far_from_zero),
        cmocka_unit_test(test_gelu__halves_small_numbers),
        cmocka_unit_test(
            test_gelu__that_is_exact_has_its_relative_accuracy_in_both_tails),
        cmocka_unit_test(test_gelu__of_no_number_is_none),
        cmocka_unit_test(test_gelu__backward_gives_the_bits_of_forward_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
