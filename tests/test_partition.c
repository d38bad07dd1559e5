/*
 * Which layers a stage holds: the cuts that the original systems print, the even deal
 * with its remainder on the last stages, and the refusals.
 */
#include "test.h"

#include "base/base.h"
#include "parallel/partition.h"

static struct partition make(int64_t L, int64_t pp, int64_t chunks)
{
    struct partition p;
    struct error err;
    assert_ok(partition_init(&p, L, pp, chunks, &err), err);
    return p;
}

static void test_partition__boundaries_are_those_of_the_published_logs(void **state)
{
    (void)state;
    static const struct {
        int64_t L, pp, chunks, n;
        int64_t boundaries[20];
    } cases[] = {
        {4, 2, 1, 3, {0, 3, 7}},
        {96,
         16,
         1,
         17,
         {0, 7, 13, 19, 25, 31, 37, 43, 49, 55, 61, 67, 73, 79, 85, 91, 99}},
        {8, 2, 2, 5, {0, 3, 5, 7, 11}},
        {48, 2, 1, 3, {0, 25, 51}},
        {24, 1, 1, 2, {0, 27}},
        {1, 1, 1, 2, {0, 4}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct partition p = make(cases[i].L, cases[i].pp, cases[i].chunks);
        int64_t boundaries[20] = {0};
        assert_int_equal(partition_n_boundaries(&p), cases[i].n);
        partition_boundaries(&p, boundaries);
        for (int64_t j = 0; j < cases[i].n; j++)
            assert_int_equal(boundaries[j], cases[i].boundaries[j]);
    }
}

static void test_partition__remainder_goes_to_the_last_stages(void **state)
{
    (void)state;
    static const struct {
        int64_t L, pp, chunks;
        int64_t sizes[8]; // of chunk 0 of each stage
    } cases[] = {
        {12, 5, 1, {2, 2, 2, 3, 3}}, {10, 4, 1, {2, 2, 3, 3}},
        {12, 5, 2, {1, 1, 1, 1, 2}}, {5, 2, 1, {2, 3}},
        {48, 2, 2, {12, 12}},        {3, 3, 1, {1, 1, 1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct partition p = make(cases[i].L, cases[i].pp, cases[i].chunks);
        for (int stage = 0; stage < p.pp; stage++) {
            int64_t first, end;
            partition_range(&p, stage, 0, &first, &end);
            assert_int_equal(end - first, cases[i].sizes[stage]);
        }
    }
}

static void test_partition__chunks_are_placed_in_rounds(void **state)
{
    (void)state;
    static const int64_t expected[5][2][2] = {{{0, 1}, {6, 7}},
                                              {{1, 2}, {7, 8}},
                                              {{2, 3}, {8, 9}},
                                              {{3, 4}, {9, 10}},
                                              {{4, 6}, {10, 12}}};
    struct partition p = make(12, 5, 2);
    for (int stage = 0; stage < 5; stage++)
        for (int chunk = 0; chunk < 2; chunk++) {
            int64_t first, end;
            partition_range(&p, stage, chunk, &first, &end);
            assert_int_equal(first, expected[stage][chunk][0]);
            assert_int_equal(end, expected[stage][chunk][1]);
        }
}

/* All pieces in the order of the data: no gap, none empty, one first and one last. */
static void check_whole(const struct partition *p)
{
    int64_t at = 0;
    int n_first = 0, n_last = 0;
    for (int chunk = 0; chunk < p->chunks; chunk++)
        for (int stage = 0; stage < p->pp; stage++) {
            int64_t first, end;
            partition_range(p, stage, chunk, &first, &end);
            assert_int_equal(first, at);
            assert_true(end > first);
            at = end;
            n_first += partition_is_first(p, stage, chunk);
            n_last += partition_is_last(p, stage, chunk);
        }
    assert_int_equal(at, p->L);
    assert_int_equal(n_first, 1);
    assert_int_equal(n_last, 1);
    assert_true(partition_is_first(p, 0, 0));
    assert_true(partition_is_last(p, p->pp - 1, p->chunks - 1));
}

static void test_partition__a_head_worth_blocks_relieves_the_last_stage(void **state)
{
    (void)state;
    static const struct {
        int64_t L, pp, head_blocks, last_first; // where the last stage begins
    } cases[] = {
        {12, 2, 0, 6},  {12, 2, 5, 8},  {12, 2, 1, 6}, {12, 2, 100, 11},
        {12, 5, 5, 11}, {24, 4, 4, 21}, {4, 4, 9, 3},  {1, 1, 7, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct partition p;
        struct error err;
        int64_t first, end;
        assert_ok(partition_init(&p, cases[i].L, cases[i].pp, 1, &err), err);
        partition_balance(&p, cases[i].head_blocks);
        check_whole(&p);
        partition_range(&p, p.pp - 1, 0, &first, &end);
        assert_int_equal(first, cases[i].last_first);
        assert_int_equal(end, cases[i].L);
    }
}

static void test_partition__every_block_is_held_once(void **state)
{
    (void)state;
    int n_accepted = 0;
    for (int64_t L = 1; L <= 60; L++)
        for (int64_t pp = 1; pp <= 17; pp++)
            for (int64_t chunks = 1; chunks <= 6; chunks++) {
                struct partition p;
                struct error err;
                int rc = partition_init(&p, L, pp, chunks, &err);
                bool fits =
                    chunks == 1 ? pp <= L : pp > 1 && L % chunks == 0 && L / chunks >= pp;
                assert_int_equal(rc, fits ? 0 : -1);
                if (rc)
                    continue;
                check_whole(&p);
                n_accepted++;
            }
    assert_true(n_accepted > 1000);
}

static void test_partition__a_refusal_says_what_would_do(void **state)
{
    (void)state;
    static const struct {
        int64_t L, pp, chunks;
        const char *says;
    } cases[] = {
        {3, 4, 1, "pp_degree must be between 1 and 3"},
        {4, 1000000000, 1, "pp_degree must be between 1 and 4"},
        {4, 0, 1, "pp_degree must be between 1 and 4"},
        {4, -1, 1, "pp_degree must be between 1 and 4"},
        {4, 2, 0, "virtual_pp_degree must be at least 1"},
        {8, 2, 3, "virtual_pp_degree 1, 2 or 4 would do"},
        {8, 2, 8, "too few for 2 stages"},
        {7, 2, 2, "virtual_pp_degree 1 would do"},
        {8, 1, 2, "use 1 chunk, or 2 stages or more"},
        {8, 2, INT64_MAX, "virtual_pp_degree 1, 2 or 4 would do"},
        {8, INT64_MIN, 1, "pp_degree must be between 1 and 8"},
        {0, 1, 1, "num_layers must be between 1"},
        {INT64_MAX, 2, 1, "num_layers must be between 1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct partition p;
        struct error err;
        assert_int_equal(
            partition_init(&p, cases[i].L, cases[i].pp, cases[i].chunks, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition__boundaries_are_those_of_the_published_logs),
        cmocka_unit_test(test_partition__remainder_goes_to_the_last_stages),
        cmocka_unit_test(test_partition__chunks_are_placed_in_rounds),
        cmocka_unit_test(test_partition__a_head_worth_blocks_relieves_the_last_stage),
        cmocka_unit_test(test_partition__every_block_is_held_once),
        cmocka_unit_test(test_partition__a_refusal_says_what_would_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
