/*
 * Small kernels that tests of the emulated device launch: right ones, and wrong ones that
 * have to be found out.
 */
#ifndef TESTS_EMULATED_EMULATED_KERNELS_H
#define TESTS_EMULATED_EMULATED_KERNELS_H

#include <stdint.h>

#define KERNEL_THREADS 64 // of a block, unless a test says otherwise

struct vector_args {
    float *y;
    const float *x;
    int64_t n;
};

struct matrix_args {
    float *c;          // (16, 8)
    const uint16_t *a; // (16, 16)
    const uint16_t *b; // (16, 8)
    uint32_t *loaded;  // (32, 4): what load_matrix_4 gave each lane
    int32_t is_bf16;
    int32_t is_transposed;
};

#define EMULATED_TEST_KERNELS(X)                                                         \
    X(gpu_test_reverse)                                                                  \
    X(gpu_test_double)                                                                   \
    X(gpu_test_early_end)                                                                \
    X(gpu_test_shuffle)                                                                  \
    X(gpu_test_mma)                                                                      \
    X(gpu_test_load)                                                                     \
    X(gpu_test_copy)                                                                     \
    X(gpu_test_copy_unwaited)                                                            \
    X(gpu_test_warp)                                                                     \
    X(gpu_test_no_barrier)                                                               \
    X(gpu_test_no_warp_barrier)                                                          \
    X(gpu_test_two_barriers)                                                             \
    X(gpu_test_lost_lane)                                                                \
    X(gpu_test_two_shuffles)                                                             \
    X(gpu_test_too_far)                                                                  \
    X(gpu_test_unaligned)                                                                \
    X(gpu_test_unaligned_run)                                                            \
    X(gpu_test_blocks_meet)                                                              \
    X(gpu_test_unwritten)                                                                \
    X(gpu_test_past_shared)                                                              \
    X(gpu_test_write_same)                                                               \
    X(gpu_test_deep)

#define DECLARE(name) void name(void);
EMULATED_TEST_KERNELS(DECLARE)
#undef DECLARE

#endif
