/*
 * The processor is no part of a result. Every table of kernels has the bits of `generic`,
 * for every kernel, type, odd shape and number of threads, whatever the numbers are; and
 * products and attention of `generic` have the bits of the contract, which
 * kernel_contract.h writes out.
 */
#include "kernel_buffers.h"
#include "kernel_contract.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* -- every table against generic ----------------------------------------------------- */

/* Every table on as many threads as its turn is, against generic on one. */
static void check_tables(const struct kernel_case *kc, const struct shape *s,
                         enum numbers numbers, int64_t turn)
{
    static const int threads[] = {1, 2, 3, 8};
    struct tables t = emulated_tables_too();
    struct set inputs, want, got;
    assert_string_equal(t.at[1]->name, "generic");
    kernels_set_threads(1);
    set_open_numbers(&inputs, kc, s, numbers);
    set_copy(&want, &inputs, kc, s);
    kc->run(t.at[1], s, want.at);
    for (int i = 1; i < t.n; i++) {
        kernels_set_threads(threads[(turn + i) % (int64_t)ARRAY_LEN(threads)]);
        set_copy(&got, &inputs, kc, s);
        kc->run(t.at[i], s, got.at);
        assert_same_sets(kc, t.at[i], s, &got, &want);
        set_close(&got, kc);
    }
    kernels_set_threads(1);
    set_close(&want, kc);
    set_close(&inputs, kc);
}

/* Every most-th shape; of plain products every one. */
static void check_all_tables(enum numbers numbers, int64_t most)
{
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        bool is_each = numbers == NUMBERS_PLAIN && cases[c].family == PRODUCT;
        int64_t stride = (is_each ? 1 : most) * TEST_SHAPE_STEP;
        for (int64_t i = first_shape(c, stride); i < shapes_of(cases[c].family);
             i += stride) {
            struct shape s = shape_in_turn(c, i);
            check_tables(&cases[c], &s, numbers, i / stride);
        }
    }
}

static void test_sets__have_the_bits_of_generic(void **state)
{
    (void)state;
    check_all_tables(NUMBERS_PLAIN, 2);
}

static void test_sets__have_the_bits_of_generic_for_numbers_of_any_kind(void **state)
{
    (void)state;
    check_all_tables(NUMBERS_ANY, 7);
}

static void test_sets__have_the_bits_of_generic_where_some_are_no_numbers(void **state)
{
    (void)state;
    check_all_tables(NUMBERS_HOLES, 4);
}

static void test_sets__have_the_bits_of_generic_for_subnormal_products(void **state)
{
    (void)state;
    check_all_tables(NUMBERS_SMALL, 5);
}

/* -- many threads -------------------------------------------------------------------- */

static bool has_contract(const struct kernel_case *kc)
{
    return kc->family == PRODUCT
               ? strncmp(kc->name, "linear", 6) == 0
               : kc->family == ATTENTION && strcmp(kc->name, "attention_decode") != 0;
}

static void check_many_threads(const struct kernel_case *kc, const struct shape *s)
{
    static const int threads[] = {32, 128};
    struct tables t = emulated_tables_too();
    struct set inputs, want, got;
    kernels_set_threads(1);
    set_open_filled(&inputs, kc, s);
    set_copy(&want, &inputs, kc, s);
    kc->run(t.at[1], s, want.at);
    for (int i = 1; i < t.n; i++)
        for (size_t n = 0; n < ARRAY_LEN(threads); n++) {
            kernels_set_threads(threads[n]);
            set_copy(&got, &inputs, kc, s);
            kc->run(t.at[i], s, got.at);
            assert_same_sets(kc, t.at[i], s, &got, &want);
            set_close(&got, kc);
        }
    kernels_set_threads(1);
    set_close(&want, kc);
    set_close(&inputs, kc);
}

static void test_sets__have_the_bits_of_generic_on_many_threads(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        const struct kernel_case *kc = &cases[c];
        if (kc->family != PRODUCT && kc->family != ATTENTION)
            continue;
        struct shape s = {.B = 2,
                          .S = 300,
                          .A = 6,
                          .A_kv = 3,
                          .D = 32,
                          .rate = 0.1,
                          .dtype = dtypes[c % ARRAY_LEN(dtypes)]};
        if (kc->family == PRODUCT)
            s = (struct shape){.B = 150, .C = 270, .D = 210, .S = 1, .dtype = s.dtype};
        check_many_threads(kc, &s);
    }
}

/* -- generic against the contract ---------------------------------------------------- */

/* The sign of a sum that is zero is not written down: it depends on which zeros are left
 * out. All tables share it, as the tests above see. */
static void drop_signs_of_zeros(const struct kernel_case *kc, const struct shape *s,
                                struct set *set)
{
    for (int i = 0; i < MAX_BUFFERS && set->at[i]; i++) {
        const struct buffer *b = &kc->buffers[i];
        enum dtype dtype = b->type == OF_T ? s->dtype : DTYPE_F32;
        for (int64_t e = 0; is_output(b) && e < buffer_elements(b, s); e++)
            if (number_at(b, s, set->at[i], e) == 0)
                set_element(set->at[i], dtype, e, 0.0F);
    }
}

static void check_contract(const struct kernel_case *kc, const struct shape *s,
                           enum numbers numbers)
{
    struct set inputs, want, got;
    const struct kernels *generic = all_tables().at[1], *contract = contract_table();
    set_open_numbers(&inputs, kc, s, numbers);
    set_copy(&want, &inputs, kc, s);
    set_copy(&got, &inputs, kc, s);
    kc->run(contract, s, want.at);
    kc->run(generic, s, got.at);
    drop_signs_of_zeros(kc, s, &want);
    drop_signs_of_zeros(kc, s, &got);
    assert_same_sets(kc, generic, s, &got, &want);
    set_close(&want, kc);
    set_close(&got, kc);
    set_close(&inputs, kc);
}

static void check_contracts(enum numbers numbers, int64_t stride)
{
    stride *= TEST_SHAPE_STEP;
    kernels_set_threads(1);
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (int64_t i = first_shape(c, stride);
             has_contract(&cases[c]) && i < shapes_of(cases[c].family); i += stride) {
            struct shape s = shape_in_turn(c, i);
            check_contract(&cases[c], &s, numbers);
        }
}

static void test_generic__has_the_bits_of_the_contract(void **state)
{
    (void)state;
    check_contracts(NUMBERS_PLAIN, 2);
}

static void
test_generic__has_the_bits_of_the_contract_for_subnormal_products(void **state)
{
    (void)state;
    check_contracts(NUMBERS_SMALL, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets__have_the_bits_of_generic),
        cmocka_unit_test(test_sets__have_the_bits_of_generic_for_numbers_of_any_kind),
        cmocka_unit_test(test_sets__have_the_bits_of_generic_where_some_are_no_numbers),
        cmocka_unit_test(test_sets__have_the_bits_of_generic_for_subnormal_products),
        cmocka_unit_test(test_sets__have_the_bits_of_generic_on_many_threads),
        cmocka_unit_test(test_generic__has_the_bits_of_the_contract),
        cmocka_unit_test(
            test_generic__has_the_bits_of_the_contract_for_subnormal_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
