/*
 * gpu - the language that kernels for GPUs are written in: the C that CUDA and a host
 * compiler have in common.
 *
 * A .cu file is compiled by nvcc, and by the host compiler as C for the emulated device
 * (emulated/block.h). It uses CUDA's own names (threadIdx, blockIdx, blockDim, gridDim,
 * __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __shfl_down_sync) and for what
 * CUDA has no name in C the functions below. What C++ and C do not share stays out: no
 * templates, references, overloads, designated initialisers or compound literals.
 *
 *   - A kernel takes one struct by value, see gpu_args.h, and is one-dimensional in
 *     its threads.
 *   - Files whose kernels depend on the model's storage type are compiled once per type:
 *     T is that type and N(name) gives each compilation's kernels their own name.
 *   - Shared memory is one struct of the kernel, dynamic: SHARED(struct tile, sh).
 *   - No atomics: sums have a fixed order, whatever block or thread computes them.
 *   - fmaf() where a fused multiply-add is meant; both compilers are told to make none
 *     of their own. exp and log are our own (gpu_math.h), so that a kernel without mma
 *     has the same bits emulated and on every GPU.
 */
#ifndef DEVICE_GPU_GPU_H
#define DEVICE_GPU_GPU_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define GPU_WARP 32
#define GPU_ALL_LANES 0xFFFFFFFFu

#if defined(__CUDACC__)
#include "device/cuda/cuda_dialect.h"
#else
#include "device/emulated/emulated_dialect.h"
#endif

/*
 * Both define:
 *
 *   GPU_KERNEL(name, n_threads, type, a)   the head of a kernel of at most n_threads
 *                                          threads; `a` is its struct type
 *   GPU_FN                                 the head of a function that kernels call
 *   SHARED(type, name)                     type *name: the block's shared memory
 *
 *   check_aligned(x, bytes)                before so many bytes at x are moved at once: x
 *                                          is a multiple of them, or a GPU faults. The
 *                                          emulated device tells
 *
 *   float    half_bits_to_float(uint16_t)    and back, by round to nearest, ties to even;
 *   uint16_t float_to_half_bits(float)       the same for bfloat16
 *   float    bf16_bits_to_float(uint16_t)
 *   uint16_t float_to_bf16_bits(float)
 *
 *   copy_async_16(shared, global)            16 bytes to shared memory, there after
 *   copy_async_commit()                      copy_async_wait(n) left at most n groups
 *   copy_async_wait(n)                       under way, and a barrier. Before sm_80: at
 *                                            once
 *   load_matrix_4(r, row), load_matrix_4_transposed(r, row)
 *                                            ldmatrix .x4: four 8 x 8 matrices of 16-bit
 *                                            elements; lane i gives the address of row
 *                                            i % 8 of matrix i / 8
 *   mma_16x8x16_f16(c, a, b), mma_16x8x16_bf16(c, a, b)
 *                                            c[4] += a[4] b[2]: fragments as PTX has
 *                                            them for mma.m16n8k16, sums in float. On
 *                                            sm_75 that of f16 is two of k8
 */

/* -- the storage type ---------------------------------------------------------------- */

#if defined(GPU_DTYPE)
#if GPU_DTYPE == 0
typedef float T;
#define N(name) gpu_##name##_f32
GPU_FN float widen(T x)
{
    return x;
}
GPU_FN T narrow(float x)
{
    return x;
}
#elif GPU_DTYPE == 1
typedef uint16_t T;
#define N(name) gpu_##name##_f16
GPU_FN float widen(T x)
{
    return half_bits_to_float(x);
}
GPU_FN T narrow(float x)
{
    return float_to_half_bits(x);
}
#else
typedef uint16_t T;
#define N(name) gpu_##name##_bf16
GPU_FN float widen(T x)
{
    return bf16_bits_to_float(x);
}
GPU_FN T narrow(float x)
{
    return float_to_bf16_bits(x);
}
#endif
#endif

#endif
