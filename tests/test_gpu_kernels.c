/*
 * Every kernel of the emulated GPU in every type, over the cases of kernel_cases.h, at the
 * sizes where blocks, warps, tiles and vectors begin and end:
 *   - near the reference, and the same bits whether threads and blocks run forward, in
 *     reverse or in a random order, and wherever tensors lie, with a page behind them that
 *     nobody may touch;
 *   - the bits of the processor's kernels where that is promised;
 *   - the same bits in place, and for a sample whatever its neighbours.
 */
#define TEST_INNER_UNITS 8 // its orders of sums are not those that the reference follows

#include "device_table.h"
#include "kernel_judge.h"

#include "device/emulated/emulated_options.h"
#include "device/kernel_sets.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* -- shapes -------------------------------------------------------------------------- */

/* Rows of one element up to more than a block takes at once; more rows than a chunk of a
 * sum has; columns that no vector, warp or block divides, and such that they do. */
static const int64_t gpu_rows[][3] = { // B, S, C
    {1, 1, 1},    {1, 1, 3},    {2, 65, 7},  {1, 130, 129}, {1, 64, 128}, {2, 3, 768},
    {1, 3, 1000}, {2, 1, 1028}, {400, 1, 8}, {1, 2, 4101},  {3, 5, 36},   {1, 67, 260}};
static const int64_t gpu_products[][3] = { // rows, k, columns
    {1, 1, 1},   {5, 33, 17}, {65, 64, 40}, {17, 257, 7}, {3, 8, 130},
    {9, 16, 24}, {8, 96, 33}, {2, 1000, 5}, {70, 12, 3}};
static const int64_t gpu_attention[][5] = { // B, S, heads, heads of keys, size of a head
    {1, 300, 1, 1, 8},  {2, 7, 4, 2, 5},    {1, 63, 1, 1, 8},   {1, 64, 2, 2, 64},
    {1, 1, 1, 1, 1},    {1, 70, 2, 1, 136}, {1, 66, 1, 1, 300}, {1, 65, 4, 1, 40},
    {1, 128, 1, 1, 16}, {1, 129, 2, 1, 80}, {2, 130, 2, 2, 64}, {1, 66, 1, 1, 128},
    {3, 17, 2, 2, 24},  {1, 200, 1, 1, 32}, {1, 9, 2, 2, 12}};
static const int64_t gpu_losses[][2] = { // rows, words
    {1, 1}, {3, 2}, {5, 17}, {2, 1000}, {1, 1025}, {3, 4099}, {2, 50257}, {70, 33}};
static const int64_t gpu_counts[] = {1,    2,    3,    15,   17,   1000,
                                     1023, 1024, 1025, 5001, 20483};

static int64_t gpu_shapes_of(enum family family)
{
    switch (family) {
    case ROWS:
        return ARRAY_LEN(gpu_rows);
    case PRODUCT:
        return ARRAY_LEN(gpu_products);
    case ATTENTION:
        return ARRAY_LEN(gpu_attention);
    case LOSS:
        return ARRAY_LEN(gpu_losses);
    case FLAT:
        return ARRAY_LEN(gpu_counts);
    }
    return 0;
}

static struct shape gpu_shape_at(enum family family, int64_t i, enum dtype dtype)
{
    struct shape s = {.dtype = dtype,
                      .B = 1,
                      .S = 1,
                      .C = 1,
                      .A = 1,
                      .A_kv = 1,
                      .D = 1,
                      .rate = rates[(i + dtype) % 3],
                      .first_sample = 11};
    switch (family) {
    case ROWS:
        s.B = gpu_rows[i][0];
        s.S = gpu_rows[i][1];
        s.C = gpu_rows[i][2];
        break;
    case PRODUCT:
        s.B = gpu_products[i][0];
        s.C = gpu_products[i][1];
        s.D = gpu_products[i][2];
        break;
    case ATTENTION:
        s.B = gpu_attention[i][0];
        s.S = gpu_attention[i][1];
        s.A = gpu_attention[i][2];
        s.A_kv = gpu_attention[i][3];
        s.D = gpu_attention[i][4];
        break;
    case LOSS:
        s.B = gpu_losses[i][0];
        s.C = gpu_losses[i][1];
        break;
    case FLAT:
        s.C = gpu_counts[i];
        break;
    }
    return s;
}

static void for_each_gpu_shape(int64_t stride, void (*check)(const struct kernel_case *kc,
                                                             const struct shape *s,
                                                             const struct set *inputs))
{
    stride *= TEST_SHAPE_STEP;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            for (int64_t i = first_shape(c + d, stride);
                 i < gpu_shapes_of(cases[c].family); i += stride) {
                struct shape s = gpu_shape_at(cases[c].family, i, dtypes[d]);
                struct set inputs;
                set_open_filled(&inputs, &cases[c], &s);
                check(&cases[c], &s, &inputs);
                set_close(&inputs, &cases[c]);
            }
}

/* -- near the reference, whatever the order ------------------------------------------ */

static void set_order(const char *order)
{
    assert_int_equal(emulated_order(order), 0);
}

static void run_as(const char *order, enum placement placement,
                   const struct kernel_case *kc, const struct kernels *k,
                   const struct shape *s, const struct set *inputs, struct set *got)
{
    set_copy(got, inputs, kc, s);
    set_order(order);
    device_table_place(placement);
    kc->run(k, s, got->at);
    set_order("random:1");
    device_table_place(PLACED_FIRST);
}

static void check_orders(const struct kernel_case *kc, const struct shape *s,
                         const struct set *inputs)
{
    static const struct {
        const char *order;
        enum placement placement;
    } ways[] = {
        {"forward", PLACED_FIRST}, {"reverse", PLACED_LAST}, {"random:7", PLACED_LAST}};
    const struct kernels *k = all_tables().at[1];
    struct set want, got;
    run_as(ways[0].order, ways[0].placement, kc, k, s, inputs, &want);
    for (size_t i = 1; i < ARRAY_LEN(ways); i++) {
        run_as(ways[i].order, ways[i].placement, kc, k, s, inputs, &got);
        assert_same_sets(kc, k, s, &got, &want);
        set_close(&got, kc);
    }
    set_close(&want, kc);
}

static void test_gpu__order_of_threads_and_place_of_tensors_change_no_bit(void **state)
{
    (void)state;
    for_each_gpu_shape(1, check_orders);
}

static void test_gpu__agrees_with_the_reference(void **state)
{
    struct tables t = all_tables();
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
            struct tally tallies[MAX_TABLES][MAX_BUFFERS] = {{{0}}};
            for (int64_t i = 0; i < gpu_shapes_of(cases[c].family);
                 i += TEST_SHAPE_STEP) {
                struct shape s = gpu_shape_at(cases[c].family, i, dtypes[d]);
                check_shape(&cases[c], &s, &t, tallies);
            }
            assert_few_off(&cases[c], t.at[1], dtypes[d], tallies[1]);
        }
}

/* -- the processor's bits ------------------------------------------------------------ */

static const char *const with_bits_of_cpu[] = {
    "embedding_fwd", "embedding_bwd", "bias_grad", "bias_dropout_residual",
    "dropout_fwd",   "dropout_bwd",   "xent_max",  "xent_top",
    "adamw",         "load",          "store",     "store_add",
    "add_stored",    "reduce",        "copy",      "add",
    "fill",          "gelu_fwd",      "gelu_bwd",  "gelu_tanh_fwd",
    "gelu_tanh_bwd"};

static bool has_bits_of_cpu(const struct kernel_case *kc)
{
    for (size_t i = 0; i < ARRAY_LEN(with_bits_of_cpu); i++)
        if (strcmp(kc->name, with_bits_of_cpu[i]) == 0)
            return true;
    return false;
}

static void check_bits_of_cpu(const struct kernel_case *kc, const struct shape *s,
                              const struct set *inputs)
{
    const struct kernels *gpu = all_tables().at[1];
    struct set want, got;
    if (!has_bits_of_cpu(kc))
        return;
    set_copy(&want, inputs, kc, s);
    kc->run(kernel_set_table(KERNEL_SET_GENERIC), s, want.at);
    set_copy(&got, inputs, kc, s);
    kc->run(gpu, s, got.at);
    assert_same_sets(kc, gpu, s, &got, &want);
    set_close(&got, kc);
    set_close(&want, kc);
}

static void test_gpu__has_the_bits_of_the_processor_where_promised(void **state)
{
    (void)state;
    for_each_gpu_shape(1, check_bits_of_cpu);
}

/* -- in place, and alone ------------------------------------------------------------- */

static void test_gpu__in_place_gives_the_same_bits(void **state)
{
    (void)state;
    for_each_gpu_shape(2, check_in_place);
}

static void test_gpu__bits_of_a_sample_do_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    for_each_gpu_shape(3, check_samples_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu__order_of_threads_and_place_of_tensors_change_no_bit),
        cmocka_unit_test(test_gpu__agrees_with_the_reference),
        cmocka_unit_test(test_gpu__has_the_bits_of_the_processor_where_promised),
        cmocka_unit_test(test_gpu__in_place_gives_the_same_bits),
        cmocka_unit_test(test_gpu__bits_of_a_sample_do_not_depend_on_its_neighbours),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
