/* Layouts in words, what they promise, and that a broken promise is seen. */
#include "test.h"
#include "cli/selftest_layout.h"

static struct selftest_layout parse(const char *words)
{
    struct selftest_layout layout;
    struct error err;
    assert_ok(selftest_layout_parse(&layout, words, strlen(words), &err), err);
    return layout;
}

static void test_layout__is_read_from_words(void **state)
{
    (void)state;
    struct selftest_layout l = parse("  dp2   mp3 pp4 v5 fthenb ");
    assert_string_equal(l.name, "dp2 mp3 pp4 v5 fthenb");
    assert_int_equal(l.dp, 2);
    assert_int_equal(l.mp, 3);
    assert_int_equal(l.pp, 4);
    assert_int_equal(l.chunks, 5);
    assert_int_equal(l.threads, 1);
    assert_true(l.f_then_b);
    assert_false(l.sequence_parallel);
    assert_int_equal(selftest_layout_processes(&l), 24);

    l = parse("1");
    assert_int_equal(selftest_layout_processes(&l), 1);
    l = parse("mp2 sp t3");
    assert_true(l.sequence_parallel);
    assert_int_equal(l.threads, 3);
}

static void test_layout__that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",    " ",   "dp",   "dp0",      "dp-1",    "dp2x",   "dp 2",
        "pp+", "qq2", "2",    "fthenb2",  "dp2,mp2", "dp1025", "dp99999999999999999",
        "DP2", "sp2", "mp2.", "dp64 mp64"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct selftest_layout layout;
        struct error err;
        if (selftest_layout_parse(&layout, wrong[i], strlen(wrong[i]), &err) == 0)
            fail_msg("'%s' was taken for a layout", wrong[i]);
        assert_int_equal(err.kind, ERROR_INPUT);
    }
    char many[400] = "";
    for (int i = 0; i < 80; i++)
        strcat(many, "pp2 ");
    struct selftest_layout layout;
    struct error err;
    assert_int_equal(selftest_layout_parse(&layout, many, strlen(many), &err), -1);
}

static void test_promise__is_bits_unless_sums_are_cut(void **state)
{
    (void)state;
    static const char *const same[] = {"1", "1 t2", "pp2", "pp3 v2", "pp2 fthenb"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct selftest_layout l = parse(same[i]);
        assert_true(selftest_promise(&l).first == 0);
        assert_true(selftest_promise(&l).later == 0);
    }
    struct selftest_layout dp = parse("dp2 pp2"), mp = parse("dp2 mp2 pp2");
    assert_true(selftest_promise(&dp).first == 0);
    assert_true(selftest_promise(&dp).later == 1e-4);
    assert_true(selftest_promise(&mp).first == 2e-6);
    assert_true(selftest_promise(&mp).later == 1e-4);
}

/* -- verdicts ------------------------------------------------------------------------ */

static const struct selftest_curve reference = {3, {5, 4, 3}, {1, 2, 3}};
static const struct selftest_promise bits = {0, 0}, data = {0, 1e-4}, near = {2e-6, 1e-4};

static struct selftest_curve with_loss(int step, double loss)
{
    struct selftest_curve c = reference;
    c.loss[step] = loss;
    return c;
}

static bool is_kept(struct selftest_promise promise, struct selftest_curve run)
{
    return selftest_judge(promise, &reference, &run).is_kept;
}

static void test_verdict__the_same_keeps_every_promise(void **state)
{
    (void)state;
    struct selftest_verdict v = selftest_judge(bits, &reference, &reference);
    assert_true(v.is_kept);
    assert_true(v.is_same);
    assert_true(v.largest == 0);
    assert_true(is_kept(near, reference));
}

static void test_verdict__one_digit_breaks_a_promise_of_bits(void **state)
{
    (void)state;
    assert_false(is_kept(bits, with_loss(2, 3.00000001)));
    struct selftest_curve c = reference;
    c.grad_norm[1] = 2.00000001;
    assert_false(is_kept(bits, c));
    assert_false(selftest_judge(near, &reference, &c).is_same);
    assert_true(is_kept(near, c));
}

static void test_verdict__nearness_is_relative_and_tighter_at_first(void **state)
{
    (void)state;
    assert_true(is_kept(near, with_loss(0, 5 * (1 + 1.9e-6))));
    assert_false(is_kept(near, with_loss(0, 5 * (1 + 2.1e-6))));
    assert_false(is_kept(data, with_loss(0, 5.00000001)));
    assert_true(is_kept(near, with_loss(2, 3 * (1 - 0.9e-4))));
    assert_false(is_kept(near, with_loss(2, 3 * (1 - 1.1e-4))));
    struct selftest_curve c = with_loss(1, 4 * (1 + 3e-5));
    assert_close(selftest_judge(near, &reference, &c).largest, 3e-5, 1e-12);
}

static void test_verdict__no_number_and_no_step_keep_nothing(void **state)
{
    (void)state;
    assert_false(is_kept(near, with_loss(1, (double)NAN)));
    assert_false(is_kept(near, with_loss(1, HUGE_VAL)));
    struct selftest_curve c = reference;
    c.grad_norm[2] = (double)NAN;
    assert_false(is_kept(near, c));
    c = reference;
    c.n_steps = 2;
    assert_false(is_kept(near, c));
    c.n_steps = 0;
    assert_false(selftest_judge(near, &c, &c).is_kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__is_read_from_words),
        cmocka_unit_test(test_layout__that_is_none_is_refused),
        cmocka_unit_test(test_promise__is_bits_unless_sums_are_cut),
        cmocka_unit_test(test_verdict__the_same_keeps_every_promise),
        cmocka_unit_test(test_verdict__one_digit_breaks_a_promise_of_bits),
        cmocka_unit_test(test_verdict__nearness_is_relative_and_tighter_at_first),
        cmocka_unit_test(test_verdict__no_number_and_no_step_keep_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
