/*
 * cuda_dialect - what gpu.h lists, for nvcc.
 *
 * Instructions that an architecture lacks are computed from those it has, slowly, with
 * the same contract: ldmatrix and mma before sm_75. (Kernels of bfloat16 are compiled for
 * sm_80 and later, and an older GPU is refused for it.)
 */
#ifndef DEVICE_CUDA_CUDA_DIALECT_H
#define DEVICE_CUDA_CUDA_DIALECT_H

#define GPU_KERNEL(name, n_threads, type, a)                                             \
    extern "C" __global__ void __launch_bounds__(n_threads)                              \
        name(const __grid_constant__ type a)
#define GPU_FN static __device__ __forceinline__
#define SHARED(type, name)                                                               \
    extern __shared__ __align__(128) unsigned char gpu_shared_bytes[];                   \
    type *name = (type *)gpu_shared_bytes
#define check_aligned(x, bytes) ((void)0) // the GPU does

#if defined(__CUDA_ARCH__)
#define CUDA_HAS(sm) (__CUDA_ARCH__ >= 10 * (sm))
#else
#define CUDA_HAS(sm) 0 // the host's half of a compilation, which runs no kernel
#endif

/* -- conversions --------------------------------------------------------------------- */

GPU_FN float half_bits_to_float(uint16_t x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

GPU_FN uint16_t float_to_half_bits(float x)
{
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

GPU_FN float bf16_bits_to_float(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

GPU_FN uint16_t float_to_bf16_bits(float x)
{
#if CUDA_HAS(80)
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    uint32_t bits = __float_as_uint(x);
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : rounded);
#endif
}

/* -- copies to shared memory --------------------------------------------------------- */

GPU_FN uint32_t cuda_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

GPU_FN void copy_async_16(void *shared, const void *global)
{
#if CUDA_HAS(80)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(cuda_shared_address(shared)),
        "l"(global)
        : "memory");
#else
    *(uint4 *)shared = *(const uint4 *)global;
#endif
}

GPU_FN void copy_async_commit(void)
{
#if CUDA_HAS(80)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* n is a constant, which is why this is no function. */
#if CUDA_HAS(80)
#define copy_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define copy_async_wait(n) ((void)(n))
#endif

/* -- matrices from shared memory ----------------------------------------------------- */

#if CUDA_HAS(75)
GPU_FN void load_matrix_4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cuda_shared_address(row))
                 : "memory");
}

GPU_FN void load_matrix_4_transposed(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cuda_shared_address(row))
                 : "memory");
}
#else
/* Where row i of the 32 begins, which lane i alone knows. */
GPU_FN const uint16_t *cuda_row_of(const void *row, unsigned i)
{
    return (const uint16_t *)(uintptr_t)__shfl_sync(
        GPU_ALL_LANES, (unsigned long long)(uintptr_t)row, (int)i);
}

GPU_FN void load_matrix_4(uint32_t r[4], const void *row)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    for (unsigned m = 0; m < 4; m++) {
        const uint16_t *x = cuda_row_of(row, 8 * m + lane / 4);
        r[m] = x[2 * (lane % 4)] | (uint32_t)x[2 * (lane % 4) + 1] << 16;
    }
}

GPU_FN void load_matrix_4_transposed(uint32_t r[4], const void *row)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    for (unsigned m = 0; m < 4; m++) {
        const uint16_t *x = cuda_row_of(row, 8 * m + 2 * (lane % 4));
        const uint16_t *y = cuda_row_of(row, 8 * m + 2 * (lane % 4) + 1);
        r[m] = x[lane / 4] | (uint32_t)y[lane / 4] << 16;
    }
}
#endif

/* -- products of matrices ------------------------------------------------------------ */

GPU_FN float cuda_widen(uint16_t bits, bool is_bf16)
{
    return is_bf16 ? bf16_bits_to_float(bits) : half_bits_to_float(bits);
}

/*
 * Without tensor cores: lane 4g + t has rows g and g + 8 and columns 2t and 2t + 1 of c.
 * Of a (16, 16) it has in a[0] and a[2] row g, in a[1] and a[3] row g + 8, of columns 2t,
 * 2t + 1 and those 8 further; of b (16, 8) in b[0] rows 2t, 2t + 1 of column g, in b[1]
 * those 8 further.
 */
static __device__ __noinline__ __attribute__((unused)) void
cuda_mma_by_lanes(float c[4], const uint32_t a[4], const uint32_t b[2], bool is_bf16)
{
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4;
    for (unsigned k = 0; k < 8; k++) { // pairs of k
        int of_a = (int)(4 * g + k % 4);
        uint32_t upper = __shfl_sync(GPU_ALL_LANES, a[k / 4 * 2], of_a);
        uint32_t lower = __shfl_sync(GPU_ALL_LANES, a[k / 4 * 2 + 1], of_a);
        for (unsigned n = 0; n < 2; n++) {
            int of_b = (int)(4 * (2 * t + n) + k % 4);
            uint32_t by = __shfl_sync(GPU_ALL_LANES, b[k / 4], of_b);
            for (unsigned bit = 0; bit < 32; bit += 16) {
                float x = cuda_widen((uint16_t)(by >> bit), is_bf16);
                c[n] = fmaf(cuda_widen((uint16_t)(upper >> bit), is_bf16), x, c[n]);
                c[n + 2] =
                    fmaf(cuda_widen((uint16_t)(lower >> bit), is_bf16), x, c[n + 2]);
            }
        }
    }
}

GPU_FN void mma_16x8x16_f16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if CUDA_HAS(80)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif CUDA_HAS(75)
    for (unsigned half = 0; half < 2; half++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#else
    cuda_mma_by_lanes(c, a, b, false);
#endif
}

GPU_FN void mma_16x8x16_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if CUDA_HAS(80)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    cuda_mma_by_lanes(c, a, b, true);
#endif
}

#endif
