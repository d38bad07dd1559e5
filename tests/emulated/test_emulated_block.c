/* Blocks of the emulated device: barriers, shuffles, matrices, copies, and what is told. */
#include "emulated/emulated_test.h"

#include "base/dtype.h"

#define TILE_BYTES (KERNEL_THREADS * sizeof(float))

static const char *const orders[] = {"forward", "reverse", "random:1", "random:2",
                                     "random:3"};

static void fill_numbers(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((i * 37) % 101) - 50;
}

/* y of a kernel on n floats, by the order; y has n_out. */
static void run_kernel(struct launch_of of, const char *order, float *y, int n_out,
                       const float *x, int n)
{
    float *dx = device_floats(x, (size_t)n), *dy = device_floats(NULL, (size_t)n_out);
    assert_int_equal(emulated_order(order), 0);
    launch_vector(of, dy, dx, n);
    read_device(y, dy, (size_t)n_out * sizeof *y);
    gpu_free(dx, (size_t)n * sizeof *x);
    gpu_free(dy, (size_t)n_out * sizeof *y);
}

static void test_block__threads_meet_at_a_barrier_in_any_order(void **state)
{
    float x[4 * KERNEL_THREADS], y[4 * KERNEL_THREADS];
    (void)state;
    fill_numbers(x, 4 * KERNEL_THREADS);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        run_kernel(LAUNCH_OF(gpu_test_reverse, 4, KERNEL_THREADS, TILE_BYTES), orders[o],
                   y, 4 * KERNEL_THREADS, x, 4 * KERNEL_THREADS);
        for (int i = 0; i < 4 * KERNEL_THREADS; i++) {
            int block = i / KERNEL_THREADS * KERNEL_THREADS;
            assert_close(y[i], x[block + KERNEL_THREADS - 1 - (i - block)], 0);
        }
    }
}

/* On several threads of the system, too. */
static void test_block__blocks_without_barriers_run_in_any_order(void **state)
{
    enum { N = 100003 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    (void)state;
    assert_true(x && y);
    fill_numbers(x, N);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        memset(y, 0, N * sizeof *y);
        run_kernel(LAUNCH_OF(gpu_test_double, 17, 1024, 0), orders[o], y, N, x, N);
        for (int i = 0; i < N; i++)
            assert_close(y[i], 2 * x[i], 0);
    }
    free(x);
    free(y);
}

static void test_block__who_has_ended_is_not_waited_for(void **state)
{
    float x[40], y[40];
    (void)state;
    fill_numbers(x, 40);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        run_kernel(LAUNCH_OF(gpu_test_early_end, 1, KERNEL_THREADS, TILE_BYTES),
                   orders[o], y, 40, x, 40);
        for (int i = 0; i < 40; i++)
            assert_close(y[i], x[39 - i], 0);
    }
}

static void test_block__lanes_shuffle(void **state)
{
    float x[KERNEL_THREADS], y[5 * KERNEL_THREADS];
    (void)state;
    fill_numbers(x, KERNEL_THREADS);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        run_kernel(LAUNCH_OF(gpu_test_shuffle, 1, KERNEL_THREADS, 0), orders[o], y,
                   5 * KERNEL_THREADS, x, KERNEL_THREADS);
        for (int i = 0; i < KERNEL_THREADS; i++) {
            int first = i / 32 * 32, lane = i % 32;
            float sum = 0;
            for (int j = 0; j < 32; j++)
                sum += x[first + j];
            assert_close(y[5 * i], sum, 0);
            assert_close(y[5 * i + 1], lane < 31 ? x[i + 1] : x[i], 0);
            assert_close(y[5 * i + 2], x[first + 3], 0);
            assert_close(y[5 * i + 3], -(lane ^ 1), 0);
            assert_close(y[5 * i + 4], x[first + 31] + 0.25F, 0);
        }
    }
}

static void test_block__lanes_pass_on_through_shared_memory(void **state)
{
    float x[KERNEL_THREADS], y[KERNEL_THREADS];
    (void)state;
    fill_numbers(x, KERNEL_THREADS);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        run_kernel(LAUNCH_OF(gpu_test_warp, 1, KERNEL_THREADS, TILE_BYTES), orders[o], y,
                   KERNEL_THREADS, x, KERNEL_THREADS);
        for (int i = 0; i < KERNEL_THREADS; i++)
            assert_close(y[i], x[i / 32 * 32 + (i + 3) % 32], 0);
    }
}

/* Without its barriers a kernel is right in no order but one by chance. */
static void test_block__a_missing_barrier_shows_in_the_results(void **state)
{
    float x[KERNEL_THREADS], y[2][KERNEL_THREADS];
    (void)state;
    fill_numbers(x, KERNEL_THREADS);
    for (int i = 0; i < 2; i++)
        run_kernel(LAUNCH_OF(gpu_test_no_barrier, 1, KERNEL_THREADS, TILE_BYTES),
                   i ? "reverse" : "random:1", y[i], KERNEL_THREADS, x, KERNEL_THREADS);
    int n_wrong = 0;
    for (int i = 0; i < 2 * KERNEL_THREADS; i++) {
        float wanted = x[KERNEL_THREADS - 1 - i % KERNEL_THREADS];
        n_wrong += !(y[i / KERNEL_THREADS][i % KERNEL_THREADS] == wanted);
    }
    assert_in_range(n_wrong, KERNEL_THREADS / 2, 2 * KERNEL_THREADS);

    run_kernel(LAUNCH_OF(gpu_test_no_warp_barrier, 1, KERNEL_THREADS, TILE_BYTES),
               "random:1", y[0], KERNEL_THREADS, x, KERNEL_THREADS);
    n_wrong = 0;
    for (int i = 0; i < KERNEL_THREADS; i++)
        n_wrong += !(y[0][i] == x[i / 32 * 32 + (i + 3) % 32]);
    assert_in_range(n_wrong, 1, KERNEL_THREADS);
}

/* -- matrices ------------------------------------------------------------------------ */

static uint16_t half_of(float x, bool is_bf16)
{
    return is_bf16 ? f32_to_bf16(x) : f32_to_f16(x);
}

static void check_mma(bool is_bf16)
{
    uint16_t a[16][16], b[16][8];
    float c[16][8], wanted[16][8];
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            a[i][k] = half_of((float)((i * 5 + k * 3) % 23) - 11, is_bf16);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            b[k][j] = half_of((float)((k * 7 + j * 2) % 19) / 4, is_bf16);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            c[i][j] = wanted[i][j] = (float)(i - j);
            for (int k = 0; k < 16; k++) // exact in float
                wanted[i][j] += ((float)((i * 5 + k * 3) % 23) - 11) *
                                ((float)((k * 7 + j * 2) % 19) / 4);
        }
    struct matrix_args x = {.c = gpu_alloc(sizeof c),
                            .a = gpu_alloc(sizeof a),
                            .b = gpu_alloc(sizeof b),
                            .is_bf16 = is_bf16};
    gpu_copy(STREAM_COMPUTE, x.c, c, sizeof c, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, (void *)(uintptr_t)x.a, a, sizeof a, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, (void *)(uintptr_t)x.b, b, sizeof b, COPY_TO_DEVICE);
    launch_on(STREAM_COMPUTE, LAUNCH_OF(gpu_test_mma, 1, 32, 0), &x, sizeof x);
    read_device(c, x.c, sizeof c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            assert_close(c[i][j], wanted[i][j], 0);
    gpu_free(x.c, sizeof c);
    gpu_free((void *)(uintptr_t)x.a, sizeof a);
    gpu_free((void *)(uintptr_t)x.b, sizeof b);
}

static void test_block__tensor_cores_multiply(void **state)
{
    (void)state;
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        assert_int_equal(emulated_order(orders[o]), 0);
        check_mma(false);
        check_mma(true);
    }
}

/* As PTX says: lane l holds row l / 4, columns 2 (l % 4) and one more of each matrix. */
static void test_block__matrices_are_loaded(void **state)
{
    uint16_t rows[32][8];
    uint32_t r[32][4];
    (void)state;
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 8; j++)
            rows[i][j] = (uint16_t)(8 * i + j);
    for (int is_transposed = 0; is_transposed < 2; is_transposed++) {
        struct matrix_args x = {.a = gpu_alloc(sizeof rows),
                                .loaded = gpu_alloc(sizeof r),
                                .is_transposed = is_transposed};
        gpu_copy(STREAM_COMPUTE, (void *)(uintptr_t)x.a, rows, sizeof rows,
                 COPY_TO_DEVICE);
        launch_on(STREAM_COMPUTE, LAUNCH_OF(gpu_test_load, 1, 32, sizeof rows), &x,
                  sizeof x);
        read_device(r, x.loaded, sizeof r);
        for (int l = 0; l < 32; l++)
            for (int m = 0; m < 4; m++)
                for (int half = 0; half < 2; half++) {
                    int row = is_transposed ? 2 * (l % 4) + half : l / 4;
                    int column = is_transposed ? l / 4 : 2 * (l % 4) + half;
                    assert_int_equal(r[l][m] >> 16 * half & 0xFFFF,
                                     rows[8 * m + row][column]);
                }
        gpu_free((void *)(uintptr_t)x.a, sizeof rows);
        gpu_free(x.loaded, sizeof r);
    }
}

/* -- copies -------------------------------------------------------------------------- */

static void test_block__asynchronous_copies_come_when_they_are_waited_for(void **state)
{
    enum { N = 8 * KERNEL_THREADS };
    float x[N], y[N];
    (void)state;
    fill_numbers(x, N);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        run_kernel(LAUNCH_OF(gpu_test_copy, 1, KERNEL_THREADS, sizeof x), orders[o], y, N,
                   x, N);
        assert_memory_equal(x, y, sizeof x);
    }
    run_kernel(LAUNCH_OF(gpu_test_copy_unwaited, 1, KERNEL_THREADS, sizeof x), "forward",
               y, N / 2, x, N);
    for (int i = 0; i < N / 2; i++)
        assert_true(isnan(y[i]));
}

static void test_shared__is_nothing_before_it_is_written(void **state)
{
    float x[KERNEL_THREADS] = {0}, y[KERNEL_THREADS];
    (void)state;
    run_kernel(LAUNCH_OF(gpu_test_reverse, 1, KERNEL_THREADS, TILE_BYTES), "forward", y,
               KERNEL_THREADS, x, KERNEL_THREADS);
    run_kernel(LAUNCH_OF(gpu_test_unwritten, 1, KERNEL_THREADS, TILE_BYTES), "forward", y,
               KERNEL_THREADS, x, KERNEL_THREADS);
    for (int i = 0; i < KERNEL_THREADS; i++)
        assert_true(i == 7 ? isnan(y[i]) : y[i] == 1);
}

/* -- what is told -------------------------------------------------------------------- */

static void launch_wrong(struct launch_of of, int64_t n)
{
    float x[1024] = {0};
    float *dx = device_floats(x, 1024), *dy = device_floats(NULL, 1024);
    launch_vector(of, dy, dx, n);
    gpu_synchronize(STREAM_COMPUTE);
}

static void two_barriers(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_two_barriers, 1, 64, 0), 0);
}

static void lost_lane(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_lost_lane, 2, 64, 0), 0);
}

static void two_shuffles(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_two_shuffles, 1, 64, 0), 0);
}

static void too_little_shared(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_reverse, 1, 64, TILE_BYTES - 4), 0);
}

static void too_many_threads(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_reverse, 1, 128, 2 * TILE_BYTES), 0);
}

static void past_shared(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_past_shared, 1, 64, TILE_BYTES), 64);
}

static void past_device(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_too_far, 17, 64, 0), 64);
}

static void unaligned_run(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_unaligned_run, 1, 64, 0), 8);
}

static void too_deep(void)
{
    launch_wrong(LAUNCH_OF(gpu_test_deep, 1, 64, 0), 64);
}

static void test_block__what_is_wrong_is_told(void **state)
{
    (void)state;
    assert_dies(two_barriers, "kernel gpu_test_two_barriers, block (0, 0, 0), thread 32, "
                              "waits in __syncthreads of line ");
    assert_dies(lost_lane, "waits in __shfl_xor_sync of line ");
    assert_dies(lost_lane, "thread 40, which it waits for, has ended");
    assert_dies(two_shuffles, "kernel gpu_test_two_shuffles, block (0, 0, 0), thread ");
    assert_dies(too_little_shared,
                "launched with 252 bytes of shared memory, it uses 256");
    assert_dies(too_many_threads, "launched with 128 threads, it was made for 64");
    assert_dies(past_shared, "kernel gpu_test_past_shared, block (0, 0, 0), thread ");
    assert_dies(past_device, "kernel gpu_test_too_far, block (16, 0, 0), thread ");
    assert_dies(unaligned_run, ", moves 16 bytes at once at 0x");
    assert_dies(too_deep, "kernel gpu_test_deep, block (0, 0, 0), thread ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block__threads_meet_at_a_barrier_in_any_order),
        cmocka_unit_test(test_block__blocks_without_barriers_run_in_any_order),
        cmocka_unit_test(test_block__who_has_ended_is_not_waited_for),
        cmocka_unit_test(test_block__lanes_shuffle),
        cmocka_unit_test(test_block__lanes_pass_on_through_shared_memory),
        cmocka_unit_test(test_block__a_missing_barrier_shows_in_the_results),
        cmocka_unit_test(test_block__tensor_cores_multiply),
        cmocka_unit_test(test_block__matrices_are_loaded),
        cmocka_unit_test(test_block__asynchronous_copies_come_when_they_are_waited_for),
        cmocka_unit_test(test_shared__is_nothing_before_it_is_written),
        cmocka_unit_test(test_block__what_is_wrong_is_told),
    };
    return cmocka_run_group_tests(tests, start_device, stop_device);
}
