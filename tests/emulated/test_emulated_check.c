/* What the checker of accesses (race_check.c) says of right and of wrong kernels. */
#include "emulated/emulated_test.h"

#define TILE_BYTES (KERNEL_THREADS * sizeof(float))

static void launch_checked(struct launch_of of, int64_t n, size_t n_elements)
{
    float x[1024] = {0};
    float *dx = device_floats(x, n_elements), *dy = device_floats(NULL, n_elements);
    launch_vector(of, dy, dx, n);
    gpu_synchronize(STREAM_COMPUTE);
    gpu_free(dx, n_elements * sizeof *x);
    gpu_free(dy, n_elements * sizeof *x);
}

static void test_check__right_kernels_pass(void **state)
{
    (void)state;
    launch_checked(LAUNCH_OF(gpu_test_reverse, 4, 64, TILE_BYTES), 256, 256);
    launch_checked(LAUNCH_OF(gpu_test_double, 3, 64, 0), 333, 333);
    launch_checked(LAUNCH_OF(gpu_test_early_end, 1, 64, TILE_BYTES), 40, 64);
    launch_checked(LAUNCH_OF(gpu_test_shuffle, 1, 64, 0), 64, 320);
    launch_checked(LAUNCH_OF(gpu_test_copy, 1, 64, 8 * TILE_BYTES), 512, 512);
    launch_checked(LAUNCH_OF(gpu_test_warp, 1, 64, TILE_BYTES), 64, 64);

    struct matrix_args a = {.c = gpu_alloc(512),
                            .a = gpu_alloc(512),
                            .b = gpu_alloc(256),
                            .loaded = gpu_alloc(512)};
    launch_on(STREAM_COMPUTE, LAUNCH_OF(gpu_test_mma, 1, 32, 0), &a, sizeof a);
    launch_on(STREAM_COMPUTE, LAUNCH_OF(gpu_test_load, 1, 32, 512), &a, sizeof a);
    gpu_synchronize(STREAM_COMPUTE);
    gpu_free(a.c, 512);
    gpu_free((void *)(uintptr_t)a.a, 512);
    gpu_free((void *)(uintptr_t)a.b, 256);
    gpu_free(a.loaded, 512);
}

static void no_barrier(void)
{
    launch_checked(LAUNCH_OF(gpu_test_no_barrier, 1, 64, TILE_BYTES), 64, 64);
}

static void no_barrier_forward(void) // in which it gives right results for some
{
    assert_int_equal(emulated_order("forward"), 0);
    no_barrier();
}

static void no_warp_barrier(void)
{
    launch_checked(LAUNCH_OF(gpu_test_no_warp_barrier, 1, 64, TILE_BYTES), 64, 64);
}

static void too_far(void) // by less than a page, and less than what is aligned
{
    launch_checked(LAUNCH_OF(gpu_test_too_far, 1, 64, 0), 63, 63);
}

static void unaligned(void)
{
    launch_checked(LAUNCH_OF(gpu_test_unaligned, 1, 64, 0), 8, 256); // as it has to be
    launch_checked(LAUNCH_OF(gpu_test_unaligned, 1, 64, 0), 4, 256);
}

static void blocks_meet(void)
{
    launch_checked(LAUNCH_OF(gpu_test_blocks_meet, 4, 64, 0), 256, 256);
}

static void unwritten(void)
{
    launch_checked(LAUNCH_OF(gpu_test_unwritten, 1, 64, TILE_BYTES), 64, 64);
}

static void past_shared(void)
{
    launch_checked(LAUNCH_OF(gpu_test_past_shared, 1, 64, TILE_BYTES), 1, 64);
}

static void write_same(void)
{
    launch_checked(LAUNCH_OF(gpu_test_write_same, 1, 64, TILE_BYTES), 64, 64);
}

static void copy_unwaited(void)
{
    launch_checked(LAUNCH_OF(gpu_test_copy_unwaited, 1, 64, 8 * TILE_BYTES), 512, 512);
}

static void test_check__wrong_kernels_are_told(void **state)
{
    (void)state;
    assert_dies(no_barrier, "kernel gpu_test_no_barrier, block (0, 0, 0), thread ");
    assert_dies(no_barrier_forward, " of shared memory, which nobody has written");
    assert_dies(no_warp_barrier, "nothing orders them");
    assert_dies(no_warp_barrier, "of shared memory, which ");
    assert_dies(too_far, " 4 bytes at ");
    assert_dies(too_far, "thread 63, ");
    assert_dies(unaligned, "moves 8 bytes at once at ");
    assert_dies(blocks_meet, "which another block wrote: nothing orders them");
    assert_dies(unwritten, "thread 7, reads byte 28 of shared memory, which nobody has");
    assert_dies(past_shared, "which are not its own");
    assert_dies(write_same, "writes byte 0 of shared memory, which thread ");
    assert_dies(copy_unwaited, "of shared memory, which is still being copied to");
}

/* -- the order of operations --------------------------------------------------------- */

enum ordered { BY_NOTHING, BY_EVENT, BY_HOST, BY_STREAM };

/* y = 2 x on one stream, z = y on another. Eager, they run in the right order. */
static void double_and_copy(enum ordered by)
{
    float x[64] = {1}, *dx = device_floats(x, 64), *dy = device_floats(NULL, 64);
    float *dz = device_floats(NULL, 64);
    enum stream_name s = by == BY_STREAM ? STREAM_COMPUTE : STREAM_COPY;
    void *event = gpu_event_make();
    assert_int_equal(emulated_streams("eager"), 0);
    launch_vector(LAUNCH_OF(gpu_test_double, 1, 64, 0), dy, dx, 64);
    if (by == BY_EVENT) {
        gpu_record(event, STREAM_COMPUTE);
        gpu_wait(STREAM_COPY, event);
    }
    if (by == BY_HOST)
        gpu_synchronize(STREAM_COMPUTE);
    gpu_copy(s, dz, dy, sizeof x, COPY_ON_DEVICE);
    gpu_synchronize(s);
    gpu_event_free(event);
    gpu_free(dx, sizeof x);
    gpu_free(dy, sizeof x);
    gpu_free(dz, sizeof x);
}

static void copy_without_event(void)
{
    double_and_copy(BY_NOTHING);
}

/* It is written while a product may still read it. */
static void fill_without_event(void)
{
    float *x = device_floats(NULL, 64), *y = device_floats(NULL, 64);
    assert_int_equal(emulated_streams("eager"), 0);
    gpu_gemm(STREAM_COMPUTE, &(struct gemm){.m = 8,
                                            .n = 8,
                                            .k = 8,
                                            .a = x,
                                            .a_row = 8,
                                            .a_col = 1,
                                            .b = x,
                                            .b_row = 1,
                                            .b_col = 8,
                                            .c = y,
                                            .c_row = 8,
                                            .c_col = 1});
    gpu_fill(STREAM_COMM, x, 0, 256);
    gpu_synchronize(STREAM_COMM);
}

enum product { FORWARD, BY_INPUT, BY_WEIGHT };
static struct {
    enum product kind;
    int tensor; // of those below, the one that is filled
} filled;

/* A tensor of a product of weights is filled while it may still run. */
static void fill_beside_product(void)
{
    float *at[4]; // what goes in, the weight, what comes out, a bias
    for (int i = 0; i < 4; i++)
        at[i] = device_floats(NULL, 64);
    struct weight w = {.data = at[1], .rows = 8, .cols = 8, .version = 1};
    assert_int_equal(emulated_streams("eager"), 0);
    if (filled.kind == FORWARD)
        gpu_linear_fwd(
            STREAM_COMPUTE, DTYPE_F32,
            &(struct linear){.w = &w, .x = at[0], .y = at[2], .bias = at[3], .N = 8});
    else if (filled.kind == BY_INPUT)
        gpu_linear_bwd_input(STREAM_COMPUTE, DTYPE_F32,
                             &(struct linear_bwd_input){
                                 .w = &w, .dy = at[0], .dy_row = 8, .dx = at[2], .N = 8});
    else
        gpu_linear_bwd_weight(
            STREAM_COMPUTE, DTYPE_F32,
            &(struct linear_bwd_weight){
                .dw = &w, .dy = at[0], .dy_row = 8, .x = at[2], .N = 8});
    gpu_fill(STREAM_COMM, at[filled.tensor], 0, 32);
    gpu_synchronize(STREAM_COMM);
}

static void test_check__whatever_a_product_touches_is_seen(void **state)
{
    (void)state;
    for (int kind = FORWARD; kind <= BY_WEIGHT; kind++)
        for (int tensor = 0; tensor < (kind == FORWARD ? 4 : 3); tensor++) {
            filled.kind = (enum product)kind;
            filled.tensor = tensor;
            assert_dies(fill_beside_product,
                        "an operation of stream comm writes byte 0 of "
                        "256 bytes of device memory, which one of "
                        "stream compute ");
        }
}

static void test_check__operations_that_nothing_orders_are_told(void **state)
{
    (void)state;
    double_and_copy(BY_EVENT);
    double_and_copy(BY_HOST);
    double_and_copy(BY_STREAM);
    assert_dies(copy_without_event,
                "an operation of stream copy reads byte 0 of 256 bytes of device memory, "
                "which one of stream compute wrote: no event orders them");
    assert_dies(
        fill_without_event,
        "an operation of stream comm writes byte 0 of 256 bytes of device memory, "
        "which one of stream compute read: no event orders them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__right_kernels_pass),
        cmocka_unit_test(test_check__wrong_kernels_are_told),
        cmocka_unit_test(test_check__operations_that_nothing_orders_are_told),
        cmocka_unit_test(test_check__whatever_a_product_touches_is_seen),
    };
    return cmocka_run_group_tests(tests, start_device, stop_device);
}
