/*
 * Elementary functions: nearest to what long double gives, cases within 2^-19 of a tie as
 * 113 bits decide them, special values, and one sum over many results, which stands for
 * every compiler and processor.
 */
#include "test.h"

#include "base/real.h"

enum { N_POINTS = 40000 };

/* A sequence of words, by xorshift: no library's. */
static uint64_t next_word(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545F4914F6CDD1Du;
}

static double next_uniform(uint64_t *state) // (0, 1]
{
    return ((double)(next_word(state) >> 11) + 1) * 0x1p-53;
}

/* -- the functions, one argument each ------------------------------------------------ */

static double sine(double x)
{
    return real_sin_cos(x).sin;
}

static double cosine(double x)
{
    return real_sin_cos(x).cos;
}

static double power_1000(double x)
{
    return real_power(x, 1000);
}

static long double power_1000l(long double x)
{
    return powl(x, 1000);
}

struct function {
    const char *name;
    double (*own)(double);
    long double (*judge)(long double);
    double from, to;  // arguments, evenly
    bool is_exponent; // those are exponents of 2 instead
};

static const struct function functions[] = {
    {"log", real_log, logl, 0, 1, false},
    {"log", real_log, logl, 0.99, 1.01, false},
    {"log", real_log, logl, -1074, 1024, true},
    {"exp", real_exp, expl, -20, 0, false},
    {"exp", real_exp, expl, -745, 709, false},
    {"exp", real_exp, expl, -60, 0, true},
    {"sin", sine, sinl, 0, 6.283185307179586, false},
    {"cos", cosine, cosl, 0, 6.283185307179586, false},
    {"sin", sine, sinl, -8192, 8192, false},
    {"cos", cosine, cosl, -8192, 8192, false},
    {"sin", sine, sinl, -60, 0, true},
    {"power", power_1000, power_1000l, 0.5, 1, false},
    {"power", power_1000, power_1000l, 0.99, 1, false},
};

static double argument(const struct function *f, uint64_t *state)
{
    double at = fma(f->to - f->from, next_uniform(state), f->from);
    if (!f->is_exponent)
        return at;
    return ldexp(next_uniform(state) + 1, (int)at - 1);
}

/* -- nearest ------------------------------------------------------------------------- */

/* The judge's own error is below 2^-10 of the distance of two doubles. */
static void assert_nearest(const struct function *f, double x)
{
    double own = f->own(x);
    long double judge = f->judge((long double)x);
    double size = fabs(own);
    long double distance =
        (long double)nextafter(size, (double)INFINITY) - (long double)size;
    if (!(fabsl((long double)own - judge) <= distance * (0.5L + 0x1p-10L)))
        fail_msg("%s(%a) = %a, not %La", f->name, x, own, judge);
}

static void test_real__results_are_the_nearest_doubles(void **state)
{
    (void)state;
    uint64_t words = 2463534242;
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        for (int n = 0; n < N_POINTS; n++)
            assert_nearest(&functions[i], argument(&functions[i], &words));
}

/* Angles next to multiples of pi/2, where most of the argument cancels. */
static void test_real_sin_cos__is_the_nearest_where_the_argument_cancels(void **state)
{
    (void)state;
    const struct function *sin_row = &functions[6], *cos_row = &functions[7];
    for (int i = 1; i < 5000; i++)
        for (int side = -1; side <= 1; side++) {
            double x = i * 1.5707963267948966;
            x = side ? nextafter(x, side * 1e9) : x;
            assert_nearest(sin_row, x);
            assert_nearest(cos_row, x);
        }
}

struct hard {
    double (*own)(double);
    double x, result;
};

static void test_real__results_next_to_a_tie_are_the_nearest(void **state)
{
    (void)state;
    static const struct hard cases[] = {
        {real_log, 0x1.10ccb29109d75p-1, -0x1.42593fc371573p-1},
        {real_log, 0x1.380190060e828p-3, -0x1.e1b04a74e3ab3p+0},
        {real_log, 0x1.a985a350459dfp-547, -0x1.7aa4b3cc630ebp+8},
        {real_log, 0x1.550a68p+1, 0x1.f5bed0219248cp-1},
        {real_log, 0x1.4eec7ap+14, 0x1.3f210ff94f3b1p+3},
        {real_exp, -0x1.1bb5c4b65e19bp+2, 0x1.8541a859271c5p-7},
        {real_exp, 0x1.7ee1ffffdffdp-38, 0x1.0000000005fb8p+0},
        {real_exp, -0x1.3c125181b2d09p+4, 0x1.6a1e836655d51p-29},
        {real_exp, -0x1.600d6097017b1p+9, 0x1.246c630880df7p-1016},
        {sine, 0x1.f3cab6559bfdep-2, 0x1.e02ef6bb18946p-2},
        {sine, 0x1.eda0184a8f7ap+1, -0x1.4f9eca066c41p-1},
        {sine, 0x1.c0d5f0d46bbe2p+1, -0x1.6d74845d9f72cp-2},
        {sine, 0x1.dd8b0167cb2afp+0, 0x1.e9f0f9d933e6fp-1},
        {sine, -0x1.1f67fba737e5cp-21, -0x1.1f67fba737d6bp-21},
        {cosine, 0x1.f6dda1f831a5fp+0, -0x1.88a5ae44da62ep-2},
        {cosine, 0x1.d3a05cd0d5c64p+9, 0x1.2d3c593323bebp-1},
        {cosine, 0x1.3059a890c464p+2, 0x1.60d45bd70cb86p-5},
        {cosine, 0x1.448465c70c316p+2, 0x1.66fed55ec5d27p-2},
        {cosine, 0x1.32206674b1d94p+1, -0x1.76a1cf81a33bap-1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (cases[i].own(cases[i].x) != cases[i].result)
            fail_msg("case %zu: %a gives %a, not %a", i, cases[i].x,
                     cases[i].own(cases[i].x), cases[i].result);
}

/* -- special values ------------------------------------------------------------------ */

static void assert_same_bits(double a, double b)
{
    if (memcmp(&a, &b, sizeof a) != 0)
        fail_msg("%a is not %a", a, b);
}

static void test_real_log__of_special_values(void **state)
{
    (void)state;
    assert_same_bits(real_log(1), 0.0);
    assert_same_bits(real_log(0.0), -(double)INFINITY);
    assert_same_bits(real_log(-0.0), -(double)INFINITY);
    assert_same_bits(real_log((double)INFINITY), (double)INFINITY);
    assert_same_bits(real_log(0x1p-1074), -0x1.74385446d71c3p+9);
    assert_true(isnan(real_log(-1)));
    assert_true(isnan(real_log(-(double)INFINITY)));
    assert_true(isnan(real_log((double)NAN)));
}

static void test_real_exp__of_special_values(void **state)
{
    (void)state;
    assert_same_bits(real_exp(0.0), 1);
    assert_same_bits(real_exp(-0.0), 1);
    assert_same_bits(real_exp(1), 0x1.5bf0a8b145769p+1);
    assert_same_bits(real_exp(-(double)INFINITY), 0.0);
    assert_same_bits(real_exp((double)INFINITY), (double)INFINITY);
    assert_same_bits(real_exp(709.782712893384 + 0x1p-43), (double)INFINITY);
    assert_same_bits(real_exp(709.782712893384), 0x1.fffffffffff2ap+1023);
    assert_same_bits(real_exp(-745.1332191019411), 0x1p-1074);
    assert_same_bits(real_exp(-745.1332191019412), 0.0);
    assert_true(isnan(real_exp((double)NAN)));
}

static void test_real_power__of_special_values(void **state)
{
    (void)state;
    assert_same_bits(real_power(0, 0), 1);
    assert_same_bits(real_power(0, 1), 0.0);
    assert_same_bits(real_power(0.9, 1), 0.9);
    assert_same_bits(real_power(1, INT64_MAX), 1);
    assert_same_bits(real_power(0.5, 1074), 0x1p-1074);
    assert_same_bits(real_power(0.5, 1075), 0.0);
    assert_same_bits(real_power(2, 1023), 0x1p1023);
    assert_same_bits(real_power(2, 1024), (double)INFINITY);
    assert_same_bits(real_power(0.999, INT64_MAX), 0.0);
    assert_same_bits(real_power(0x1p-1074, INT64_MAX), 0.0);
    assert_same_bits(real_power(1.001, INT64_MAX), (double)INFINITY);
    assert_same_bits(real_power((double)INFINITY, 2), (double)INFINITY);
    // a square of 54 bits, in the middle of two doubles: to the even one
    assert_same_bits(real_power(0x1.0000002p+0, 2), 0x1.0000004p+0);
    assert_same_bits(real_power(0x1.8000002p+0, 2), 0x1.2000003p+1);
    assert_true(isnan(real_power(-0.5, 2)));
    assert_true(isnan(real_power((double)NAN, 2)));
}

static void test_real_sin_cos__of_special_values(void **state)
{
    (void)state;
    assert_same_bits(sine(0.0), 0.0);
    assert_same_bits(sine(-0.0), -0.0);
    assert_same_bits(cosine(0.0), 1);
    assert_same_bits(sine(3.141592653589793), 0x1.1a62633145c07p-53);
    assert_same_bits(cosine(3.141592653589793), -1);
    assert_same_bits(cosine(1.5707963267948966), 0x1.1a62633145c07p-54);
    assert_same_bits(sine(0x1p-1074), 0x1p-1074);
    assert_same_bits(sine(-1e-300), -1e-300);
    assert_true(!isnan(sine(REAL_ANGLE_MOST)));
    assert_true(isnan(sine(8193)));
    assert_true(isnan(cosine(-8193)));
    assert_true(isnan(cosine((double)INFINITY)));
    assert_true(isnan(cosine((double)NAN)));
}

/* -- the same everywhere ------------------------------------------------------------- */

static void test_real__bits_are_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t words = 88172645463325252, sum = 0xCBF29CE484222325;
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        for (int n = 0; n < N_POINTS; n++) {
            double result = functions[i].own(argument(&functions[i], &words));
            uint64_t bits;
            memcpy(&bits, &result, sizeof bits);
            sum = (sum ^ bits) * 0x100000001B3;
        }
    assert_int_equal(sum, 0x1476E0E0F693BA88);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real__results_are_the_nearest_doubles),
        cmocka_unit_test(test_real_sin_cos__is_the_nearest_where_the_argument_cancels),
        cmocka_unit_test(test_real__results_next_to_a_tie_are_the_nearest),
        cmocka_unit_test(test_real_log__of_special_values),
        cmocka_unit_test(test_real_exp__of_special_values),
        cmocka_unit_test(test_real_power__of_special_values),
        cmocka_unit_test(test_real_sin_cos__of_special_values),
        cmocka_unit_test(test_real__bits_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
