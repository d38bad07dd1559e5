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

/* -- the table, see kernels.h; attention and decoding: gpu_table_attention.h ------ */

void gpu_table_embedding_fwd(struct stream *s, float *x, const struct embedding *e);
void gpu_table_embedding_bwd(struct stream *s, const struct embedding_bwd *e);
void gpu_table_layernorm_fwd(struct stream *s, const struct layernorm *ln);
void gpu_table_layernorm_again(struct stream *s, const struct layernorm *ln);
void gpu_table_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln);
void gpu_table_bias_grad(struct stream *s, float *db, const void *dy, float *partial,
                         int64_t N, int64_t C);
void gpu_table_add_partials(struct stream *s, float *out, const float *partial, int64_t N,
                            int64_t stride, int64_t C);
void gpu_table_activation_fwd(struct stream *s, const struct activation_fwd *a);
void gpu_table_activation_bwd(struct stream *s, const struct activation_bwd *a);
void gpu_table_bias_dropout_residual(struct stream *s, const struct residual *r);
void gpu_table_dropout_fwd(struct stream *s, void *y, const float *x, int64_t B,
                           int64_t S, int64_t C, const struct dropout *drop);
const void *gpu_table_dropout_bwd(struct stream *s, void *dx, const void *dy, int64_t B,
                                  int64_t S, int64_t C, const struct dropout *drop);
void gpu_table_xent_max(struct stream *s, const struct xent *x);
void gpu_table_xent_exp(struct stream *s, const struct xent *x);
void gpu_table_xent_grad(struct stream *s, const struct xent *x);
void gpu_table_xent_top(struct stream *s, int32_t *column, const struct xent *x);
void gpu_table_reduce(struct stream *s, const struct reduction *r);
void gpu_table_adamw(struct stream *s, const struct update *u, const struct adamw *a);
void gpu_table_sum_squares(struct stream *s, double *partial, const void *x,
                           enum dtype dtype, int64_t n);
void gpu_table_load(struct stream *s, float *y, const void *x, enum dtype dtype,
                    int64_t n);
void gpu_table_store(struct stream *s, void *y, const float *x, enum dtype dtype,
                     int64_t n);
void gpu_table_store_add(struct stream *s, void *y, const float *x, enum dtype dtype,
                         int64_t n);
void gpu_table_add_stored(struct stream *s, void *y, const void *x, enum dtype dtype,
                          int64_t n);
void gpu_table_copy(struct stream *s, float *x, const float *y, int64_t n);
void gpu_table_add(struct stream *s, float *x, const float *y, int64_t n);
void gpu_table_add_rows(struct stream *s, float *x, const float *y, const int32_t *rows,
                        int64_t n, int64_t C);
void gpu_table_fill(struct stream *s, float *x, float value, int64_t n);

#endif
