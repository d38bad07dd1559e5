#include "test.h"

#include "train/shares.h"

static void test_shares__few_ranks_have_an_entry_each(void **state)
{
    (void)state;
    const double x[] = {3, 1, 2};
    double out[SHARES_MOST_ENTRIES];
    assert_int_equal(shares_condense(x, 3, 1, false, out), 1);
    assert_memory_equal(out, x, sizeof x);
}

static void test_shares__many_ranks_share_entries(void **state)
{
    (void)state;
    enum { N = 2 * SHARES_MOST_ENTRIES + 2, EACH = 3 };
    double x[2 * N], most[SHARES_MOST_ENTRIES], mean[SHARES_MOST_ENTRIES];
    for (int i = 0; i < N; i++) {
        x[2 * i] = i;
        x[2 * i + 1] = -1; // of another figure
    }
    assert_int_equal(shares_condense(x, N, 2, false, most), EACH);
    assert_int_equal(shares_condense(x, N, 2, true, mean), EACH);
    assert_close(most[0], 2, 0);
    assert_close(mean[0], 1, 0);
    assert_close(most[N / EACH - 1], N / EACH * EACH - 1, 0);
    assert_close(mean[N / EACH - 1], N / EACH * EACH - 2, 0);
    assert_close(most[N / EACH], N - 1, 0); // alone in the last one
}

static void test_shares__what_is_waited_is_not_computed(void **state)
{
    (void)state;
    struct comm *world;
    struct shares s;
    struct error err;
    double figures[SHARES_FIGURES];
    assert_ok(comm_world_open(&world, &err), err);
    assert_ok(shares_open(&s, world, &err), err);
    shares_end(&s, shares_begin(&s), SHARE_COMPUTE); // of an evaluation
    assert_close(s.own[SHARE_COMPUTE], 0, 0);
    shares_start_step(&s);
    shares_end(&s, (struct share_span){.start = s.mark, .waited = -0.5}, SHARE_READER);
    assert_close(s.own[SHARE_WAITING], 0.5, 0);
    assert_true(s.own[SHARE_READER] < 0);
    shares_give(&s, figures);
    figures[SHARE_COMPUTE] = 3;
    figures[N_SHARES] = 4;
    shares_take(&s, figures, false);
    assert_close(s.mean[SHARE_COMPUTE], 0.75, 0);
    assert_close(s.own[SHARE_WAITING], 0.5, 0);
    shares_take(&s, figures, true);
    assert_close(s.own[SHARE_WAITING], 0, 0);
    shares_end_step(&s);
    shares_close(&s);
    comm_world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares__few_ranks_have_an_entry_each),
        cmocka_unit_test(test_shares__many_ranks_share_entries),
        cmocka_unit_test(test_shares__what_is_waited_is_not_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
