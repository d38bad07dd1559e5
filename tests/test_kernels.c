/*
 * Every kernel of every table in every type, over the table of kernel_cases.h:
 *   - against the reference, at odd sizes;
 *   - in place, where the contract allows that: the same bits as out of place;
 *   - between pages that may not be touched: the same bits;
 *   - with 1, 2, 3 and 5 threads: the same bits;
 *   - on all samples and on some of them: a sample's bits do not depend on the others.
 */
#include "kernel_judge.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* -- near the reference -------------------------------------------------------------- */

/* Calls `check` for every case and `stride`-th shape of its family, in one of the types,
 * with one thread unless `check` asks for more: small calls on a busy machine wait long for
 * a second. */
static void for_each_case(int64_t stride,
                          void (*check)(const struct kernel_case *kc,
                                        const struct shape *s, const struct set *inputs))
{
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (int64_t i = first_shape(c, stride * TEST_SHAPE_STEP);
             i < shapes_of(cases[c].family); i += stride * TEST_SHAPE_STEP) {
            struct shape s = shape_in_turn(c, i);
            struct set inputs;
            kernels_set_threads(1);
            set_open_filled(&inputs, &cases[c], &s);
            check(&cases[c], &s, &inputs);
            set_close(&inputs, &cases[c]);
        }
}

static void check_against_reference(const struct kernel_case *kc, enum dtype dtype)
{
    struct tables t = all_tables();
    struct tally tallies[MAX_TABLES][MAX_BUFFERS] = {{{0}}};
    int64_t stride = kc->family == ATTENTION && dtype != DTYPE_F32 ? 3 : 1;
    for (int64_t i = 0; i < shapes_of(kc->family); i += stride * TEST_SHAPE_STEP) {
        struct shape s = shape_at(kc->family, i, dtype);
        check_shape(kc, &s, &t, tallies);
    }
    for (int i = 1; i < t.n; i++)
        assert_few_off(kc, t.at[i], dtype, tallies[i]);
}

static void test_kernels__agree_with_the_reference_at_odd_sizes(void **state)
{
    (void)state;
    kernels_set_threads(1);
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            check_against_reference(&cases[c], dtypes[d]);
}

/* -- in place, and between fences ---------------------------------------------------- */

static void test_kernels__in_place_gives_the_same_bits(void **state)
{
    (void)state;
    for_each_case(1, check_in_place);
}

/* A read or write beside a buffer is a fault here. That the bits stay shows that no
 * alignment enters them either. */
static void check_fenced(const struct kernel_case *kc, const struct shape *s,
                         const struct set *inputs)
{
    struct tables t = all_tables();
    for (int i = 1; i < t.n; i++) {
        struct set want, got;
        set_copy(&want, inputs, kc, s);
        kc->run(t.at[i], s, want.at);
        for (enum fence f = FENCE_BEFORE; f <= FENCE_BEHIND; f++) {
            set_copy_fenced(&got, inputs, kc, s, f);
            kc->run(t.at[i], s, got.at);
            assert_same_sets(kc, t.at[i], s, &got, &want);
            set_close(&got, kc);
        }
        set_close(&want, kc);
    }
}

static void test_kernels__touch_nothing_beside_their_buffers(void **state)
{
    (void)state;
    for_each_case(2, check_fenced);
}

/* -- threads and samples ------------------------------------------------------------- */

static void check_threads(const struct kernel_case *kc, const struct shape *s,
                          const struct set *inputs)
{
    static const int more_threads[] = {2, 3, 5};
    struct tables t = all_tables();
    for (int i = 1; i < t.n; i++) { // the reference has one thread
        struct set want, got;
        kernels_set_threads(1);
        set_copy(&want, inputs, kc, s);
        kc->run(t.at[i], s, want.at);
        for (size_t n = 0; n < ARRAY_LEN(more_threads); n++) {
            kernels_set_threads(more_threads[n]);
            set_copy(&got, inputs, kc, s);
            kc->run(t.at[i], s, got.at);
            assert_same_sets(kc, t.at[i], s, &got, &want);
            set_close(&got, kc);
        }
        set_close(&want, kc);
    }
}

static void test_kernels__number_of_threads_does_not_change_a_bit(void **state)
{
    (void)state;
    for_each_case(3, check_threads);
}

static void test_kernels__bits_of_a_sample_do_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    for_each_case(2, check_samples_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels__agree_with_the_reference_at_odd_sizes),
        cmocka_unit_test(test_kernels__in_place_gives_the_same_bits),
        cmocka_unit_test(test_kernels__touch_nothing_beside_their_buffers),
        cmocka_unit_test(test_kernels__number_of_threads_does_not_change_a_bit),
        cmocka_unit_test(test_kernels__bits_of_a_sample_do_not_depend_on_its_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
