/*
 * gpu_table - the kernels of kernels.h on a GPU. One table serves all types: which one
 * runs is the type that the stream's device was opened for.
 *
 * Every function here enqueues on its stream and returns: nothing waits for the device.
 * Shapes without elements are no launch.
 */
#ifndef DEVICE_GPU_GPU_TABLE_H
#define DEVICE_GPU_GPU_TABLE_H

#include "device/device.h"
#include "device/gpu/gpu_args.h"
#include "device/gpu/gpu_runtime.h"

const struct kernels *gpu_kernels(void);

/* -- launches ------------------------------------------------------------------------ */

/* A kernel that is compiled once for every type, declared at file level:
 * TYPED_KERNEL(norm_fwd); makes norm_fwd an array of kernels by enum dtype. */
#define TYPED_KERNEL(name)                                                               \
    extern gpu_kernel gpu_##name##_f32, gpu_##name##_f16, gpu_##name##_bf16;             \
    static gpu_kernel *const name[] = {gpu_##name##_f32, gpu_##name##_f16,               \
                                       gpu_##name##_bf16}

#define GPU_WARP_THREADS 32

/* Bytes of an array that the host passes with one launch: what every stream has room
 * for. */
#define GPU_ARRAY_BYTES 262144

struct gpu_grid {
    int64_t blocks, columns; // of the grid in x and y; none of either: no launch
    uint32_t threads;        // of a block
    size_t shared_bytes;
};

/* `name` is for errors and counters. */
void gpu_table_launch(struct stream *s, gpu_kernel *kernel, const char *name,
                      const struct gpu_grid *grid, const void *args, size_t args_bytes);

/* A grid over n elements in runs of four; and over N rows, where a row is n_runs threads'
 * in blocks of at most threads_most. Kernels go on where a grid is too small. */
struct gpu_grid gpu_grid_flat(int64_t n);
struct gpu_grid gpu_grid_rows(int64_t N, int64_t n_runs, int64_t threads_most);

/* n / unit, rounded up. */
static inline int64_t gpu_parts(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* -- the table, see kernels.h -------------------------------------------------------- */

#define GPU_TABLE_KERNEL(name, args)                                                     \
    void gpu_table_##name(struct stream *s, const struct args *a);
OPERATIONS(GPU_TABLE_KERNEL)
#undef GPU_TABLE_KERNEL

#endif
