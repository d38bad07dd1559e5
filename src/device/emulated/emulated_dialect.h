/*
 * emulated_dialect - the language of kernels (gpu.h) for the host's compiler, as C.
 *
 * A kernel becomes a function without arguments that a thread of an emulated block calls:
 * where it is, what its arguments and its shared memory are stands in `emulated_here`,
 * which the block sets before a thread goes on. Whatever other threads are waited for in
 * is a call of emulated_block.c or emulated_warp.c, with the line it stands in: threads
 * that meet have to stand in the same.
 */
#ifndef DEVICE_EMULATED_EMULATED_DIALECT_H
#define DEVICE_EMULATED_EMULATED_DIALECT_H

#include "base/dtype.h"

struct emulated_index {
    uint32_t x, y, z;
};

/* Of the thread of a block that the calling thread of the system is. */
struct emulated_here {
    struct emulated_index thread, block, n_threads, n_blocks;
    const char *kernel; // NULL: none runs
    char *shared;
    size_t shared_bytes;
    const char *args;
    size_t args_bytes;
    const char *stack; // of this thread of the block
    size_t stack_bytes;
};
extern _Thread_local struct emulated_here emulated_here;

#define threadIdx emulated_here.thread
#define blockIdx emulated_here.block
#define blockDim emulated_here.n_threads
#define gridDim emulated_here.n_blocks

/* -- heads --------------------------------------------------------------------------- */

#define GPU_FN static inline __attribute__((unused))

#define GPU_KERNEL(name, most_threads, type, a)                                          \
    EMULATED_KERNEL(name, most_threads, type, a)
#define EMULATED_KERNEL(name, most_threads, type, a)                                     \
    void name(void);                                                                     \
    static void name##_body(const type a);                                               \
    void name(void)                                                                      \
    {                                                                                    \
        name##_body(*(const type *)emulated_args(sizeof(type), most_threads));           \
    }                                                                                    \
    static void name##_body(const type a)

#define SHARED(type, name) type *name = (type *)emulated_shared(sizeof(type))

/* The block's; told are arguments of another size, more threads than the kernel was made
 * for, less shared memory than its struct. */
const void *emulated_args(size_t bytes, uint32_t most_threads);
void *emulated_shared(size_t bytes);

void emulated_tell_unaligned(const void *memory, size_t bytes);

GPU_FN void check_aligned(const void *memory, size_t bytes)
{
    if ((uintptr_t)memory % bytes != 0)
        emulated_tell_unaligned(memory, bytes);
}

/* -- meeting other threads ----------------------------------------------------------- */

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __syncthreads() emulated_barrier(__LINE__)
#define __syncwarp() emulated_sync_warp(__LINE__)
#define __shfl_sync(mask, x, lane) EMULATED_SHUFFLE(SHUFFLE_FROM, mask, x, lane)
#define __shfl_xor_sync(mask, x, lanes) EMULATED_SHUFFLE(SHUFFLE_XOR, mask, x, lanes)
#define __shfl_down_sync(mask, x, lanes) EMULATED_SHUFFLE(SHUFFLE_DOWN, mask, x, lanes)
// NOLINTEND(bugprone-reserved-identifier)

void emulated_barrier(int line);
void emulated_sync_warp(int line);

enum emulated_shuffle { SHUFFLE_FROM, SHUFFLE_XOR, SHUFFLE_DOWN };
uint64_t emulated_shuffle(enum emulated_shuffle how, uint32_t mask, uint64_t x, int lane,
                          int line);

#define EMULATED_SHUFFLE(how, mask, x, lane)                                             \
    _Generic((x), float                                                                  \
             : emulated_shuffle_float, double                                            \
             : emulated_shuffle_double, int                                              \
             : emulated_shuffle_int, unsigned                                            \
             : emulated_shuffle_unsigned, long                                           \
             : emulated_shuffle_long, long long                                          \
             : emulated_shuffle_long, unsigned long                                      \
             : emulated_shuffle_unsigned_long, unsigned long long                        \
             : emulated_shuffle_unsigned_long)(how, mask, x, (int)(lane), __LINE__)

GPU_FN float emulated_shuffle_float(enum emulated_shuffle how, uint32_t mask, float x,
                                    int lane, int line)
{
    return f32_from_bits((uint32_t)emulated_shuffle(how, mask, f32_bits(x), lane, line));
}

GPU_FN double emulated_shuffle_double(enum emulated_shuffle how, uint32_t mask, double x,
                                      int lane, int line)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = emulated_shuffle(how, mask, bits, lane, line);
    memcpy(&x, &bits, sizeof x);
    return x;
}

GPU_FN int emulated_shuffle_int(enum emulated_shuffle how, uint32_t mask, int x, int lane,
                                int line)
{
    return (int)emulated_shuffle(how, mask, (uint64_t)x, lane, line);
}

GPU_FN unsigned emulated_shuffle_unsigned(enum emulated_shuffle how, uint32_t mask,
                                          unsigned x, int lane, int line)
{
    return (unsigned)emulated_shuffle(how, mask, x, lane, line);
}

GPU_FN int64_t emulated_shuffle_long(enum emulated_shuffle how, uint32_t mask, int64_t x,
                                     int lane, int line)
{
    return (int64_t)emulated_shuffle(how, mask, (uint64_t)x, lane, line);
}

GPU_FN uint64_t emulated_shuffle_unsigned_long(enum emulated_shuffle how, uint32_t mask,
                                               uint64_t x, int lane, int line)
{
    return emulated_shuffle(how, mask, x, lane, line);
}

/* -- 16-bit numbers ------------------------------------------------------------------ */

GPU_FN float half_bits_to_float(uint16_t x)
{
    return f16_to_f32(x);
}

GPU_FN uint16_t float_to_half_bits(float x)
{
    return f32_to_f16(x);
}

GPU_FN float bf16_bits_to_float(uint16_t x)
{
    return bf16_to_f32(x);
}

GPU_FN uint16_t float_to_bf16_bits(float x)
{
    return f32_to_bf16(x);
}

/* -- tensor cores and asynchronous copies, emulated_warp.c --------------------------- */

#define load_matrix_4(r, row) emulated_load_matrix(r, row, false, __LINE__)
#define load_matrix_4_transposed(r, row) emulated_load_matrix(r, row, true, __LINE__)
#define mma_16x8x16_f16(c, a, b) emulated_mma(c, a, b, DTYPE_F16, __LINE__)
#define mma_16x8x16_bf16(c, a, b) emulated_mma(c, a, b, DTYPE_BF16, __LINE__)

void emulated_load_matrix(uint32_t r[4], const void *row, bool is_transposed, int line);
void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], enum dtype dtype,
                  int line);

void copy_async_16(void *shared, const void *global);
void copy_async_commit(void);
void copy_async_wait(int n);

#endif
