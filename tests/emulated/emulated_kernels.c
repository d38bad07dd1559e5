#include "emulated/emulated_kernels.h"

#include "device/gpu/gpu.h"

struct tile {
    float x[KERNEL_THREADS];
};

GPU_FN int64_t element(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* -- right ones ---------------------------------------------------------------------- */

/* Every block turns its part of x around. */
GPU_KERNEL(gpu_test_reverse, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    sh->x[threadIdx.x] = a.x[element()];
    __syncthreads();
    a.y[element()] = sh->x[blockDim.x - 1 - threadIdx.x];
}

/* Without a barrier, and of any number of elements. */
GPU_KERNEL(gpu_test_double, 1024, struct vector_args, a)
{
    for (int64_t i = element(); i < a.n; i += (int64_t)gridDim.x * blockDim.x)
        a.y[i] = 2 * a.x[i];
}

/* Some threads end early; the others still meet. */
GPU_KERNEL(gpu_test_early_end, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    if (threadIdx.x >= a.n)
        return;
    sh->x[threadIdx.x] = a.x[threadIdx.x];
    __syncthreads();
    a.y[threadIdx.x] = sh->x[a.n - 1 - threadIdx.x];
}

/* y: the sum over a warp; the lane's neighbour; what lane 3 has; of an int, and a
 * double. */
GPU_KERNEL(gpu_test_shuffle, 64, struct vector_args, a)
{
    float x = a.x[threadIdx.x], sum = x;
    int lane = (int)threadIdx.x % GPU_WARP;
    double wide = (double)x + 0.25;
    for (int d = GPU_WARP / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(GPU_ALL_LANES, sum, d);
    float *y = a.y + 5 * threadIdx.x;
    y[0] = sum;
    y[1] = __shfl_down_sync(GPU_ALL_LANES, x, 1);
    y[2] = __shfl_sync(GPU_ALL_LANES, x, 3);
    y[3] = (float)__shfl_xor_sync(GPU_ALL_LANES, -lane, 1);
    y[4] = (float)__shfl_sync(GPU_ALL_LANES, wide, 31);
}

GPU_KERNEL(gpu_test_mma, 32, struct matrix_args, x)
{
    uint32_t a[4], b[2];
    float c[4];
    int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        const uint16_t *row = x.a + 16 * (g + 8 * (i % 2)) + 8 * (i / 2) + 2 * t;
        a[i] = row[0] | (uint32_t)row[1] << 16;
        c[i] = x.c[8 * (g + 8 * (i / 2)) + 2 * t + i % 2];
    }
    for (int i = 0; i < 2; i++) {
        const uint16_t *column = x.b + 8 * (2 * t + 8 * i) + g;
        b[i] = column[0] | (uint32_t)column[8] << 16;
    }
    if (x.is_bf16)
        mma_16x8x16_bf16(c, a, b);
    else
        mma_16x8x16_f16(c, a, b);
    for (int i = 0; i < 4; i++)
        x.c[8 * (g + 8 * (i / 2)) + 2 * t + i % 2] = c[i];
}

struct rows {
    uint16_t x[32][8]; // four matrices, one below the other
};

GPU_KERNEL(gpu_test_load, 32, struct matrix_args, a)
{
    SHARED(struct rows, sh);
    uint32_t r[4];
    for (uint32_t i = 0; i < 8; i++)
        sh->x[threadIdx.x][i] = a.a[8 * threadIdx.x + i];
    __syncwarp();
    if (a.is_transposed)
        load_matrix_4_transposed(r, sh->x[threadIdx.x]);
    else
        load_matrix_4(r, sh->x[threadIdx.x]);
    for (uint32_t i = 0; i < 4; i++)
        a.loaded[4 * threadIdx.x + i] = r[i];
}

struct parts {
    float x[2][4 * KERNEL_THREADS];
};

/* Two groups of copies, used one after the other: y = x. */
GPU_KERNEL(gpu_test_copy, 64, struct vector_args, a)
{
    SHARED(struct parts, sh);
    int n = 4 * (int)blockDim.x, at = 4 * (int)threadIdx.x;
    for (int part = 0; part < 2; part++) {
        copy_async_16(&sh->x[part][at], a.x + part * n + at);
        copy_async_commit();
    }
    for (int part = 0; part < 2; part++) {
        copy_async_wait(1 - part);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
            a.y[part * n + i] = sh->x[part][i];
    }
}

/* Lanes pass on what they hold, through shared memory. */
GPU_KERNEL(gpu_test_warp, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    int first = (int)threadIdx.x / GPU_WARP * GPU_WARP, lane = (int)threadIdx.x - first;
    float x = a.x[threadIdx.x];
    for (int i = 0; i < 3; i++) {
        sh->x[threadIdx.x] = x;
        __syncwarp();
        x = sh->x[first + (lane + 1) % GPU_WARP];
        __syncwarp();
    }
    a.y[threadIdx.x] = x;
}

/* -- wrong ones ---------------------------------------------------------------------- */

GPU_KERNEL(gpu_test_no_barrier, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    sh->x[threadIdx.x] = a.x[element()];
    a.y[element()] = sh->x[blockDim.x - 1 - threadIdx.x];
}

/* What was read is overwritten by a lane that is ahead. */
GPU_KERNEL(gpu_test_no_warp_barrier, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    int first = (int)threadIdx.x / GPU_WARP * GPU_WARP, lane = (int)threadIdx.x - first;
    float x = a.x[threadIdx.x];
    for (int i = 0; i < 3; i++) {
        sh->x[threadIdx.x] = x;
        __syncwarp();
        x = sh->x[first + (lane + 1) % GPU_WARP];
    }
    a.y[threadIdx.x] = x;
}

GPU_KERNEL(gpu_test_two_barriers, 64, struct vector_args, a)
{
    if (threadIdx.x < GPU_WARP)
        __syncthreads();
    else
        __syncthreads();
    a.y[threadIdx.x] = 1;
}

GPU_KERNEL(gpu_test_lost_lane, 64, struct vector_args, a)
{
    if (threadIdx.x == 40)
        return;
    a.y[threadIdx.x] = __shfl_xor_sync(GPU_ALL_LANES, a.x[threadIdx.x], 1);
}

GPU_KERNEL(gpu_test_two_shuffles, 64, struct vector_args, a)
{
    float x = a.x[threadIdx.x];
    if (threadIdx.x % 2)
        x = __shfl_xor_sync(GPU_ALL_LANES, x, 1);
    else
        x = __shfl_xor_sync(GPU_ALL_LANES, x, 2);
    a.y[threadIdx.x] = x;
}

GPU_KERNEL(gpu_test_copy_unwaited, 64, struct vector_args, a)
{
    SHARED(struct parts, sh);
    int at = 4 * (int)threadIdx.x;
    copy_async_16(&sh->x[0][at], a.x + at);
    copy_async_commit();
    copy_async_wait(1); // for all but this one
    for (int i = 0; i < 4; i++)
        a.y[at + i] = sh->x[0][at + i];
}

/* No bound. */
GPU_KERNEL(gpu_test_too_far, 64, struct vector_args, a)
{
    a.y[element()] = 2 * a.x[element()];
}

/* Eight bytes at once, from n bytes on. */
GPU_KERNEL(gpu_test_unaligned, 64, struct vector_args, a)
{
    uint64_t *y = (uint64_t *)(void *)((char *)a.y + a.n);
    y[threadIdx.x] = threadIdx.x;
}

/* As kernels move runs of elements. */
GPU_KERNEL(gpu_test_unaligned_run, 64, struct vector_args, a)
{
    float x[4] = {0};
    const char *from = (const char *)a.x + a.n;
    check_aligned(from, sizeof x);
    for (int i = 0; i < 4; i++)
        x[i] = ((const float *)(const void *)from)[i];
    a.y[threadIdx.x] = x[threadIdx.x % 4];
}

/* Neighbours of other blocks. */
GPU_KERNEL(gpu_test_blocks_meet, 64, struct vector_args, a)
{
    a.y[element()] = 1;
    if (element() > 0 && threadIdx.x == 0)
        a.y[element() - 1] += 1;
}

GPU_KERNEL(gpu_test_unwritten, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    if (threadIdx.x != 7)
        sh->x[threadIdx.x] = 1;
    __syncthreads();
    a.y[threadIdx.x] = sh->x[threadIdx.x];
}

GPU_KERNEL(gpu_test_past_shared, 64, struct vector_args, a)
{
    SHARED(float, sh);
    sh[threadIdx.x + a.n] = 1;
    a.y[threadIdx.x] = 1;
}

GPU_KERNEL(gpu_test_write_same, 64, struct vector_args, a)
{
    SHARED(struct tile, sh);
    sh->x[0] = 1;
    __syncthreads();
    a.y[threadIdx.x] = sh->x[0];
}

/* More of the stack than there is. */
GPU_FN float deep(volatile const float *x, int64_t n)
{
    volatile float room[4096];
    room[n % 4096] = *x;
    return n > 0 ? deep(room, n - 1) + room[n % 4096] : *x;
}

GPU_KERNEL(gpu_test_deep, 64, struct vector_args, a)
{
    a.y[threadIdx.x] = deep(a.x, 1000);
}
