/*
 * Sums that are begun elsewhere: over ranks, in their order, and over the chunks of rows
 * that other kernels have summed. The processor's order of sums.
 */
#include "device/gpu/gpu_math.h"

#define THREADS 256
#define RUN 4

GPU_FN const void *part_of(const struct gpu_reduce *a, int32_t p)
{
    return a->many ? a->many[p] : a->few[p];
}

/* x may be one of the parts: a thread has read its elements of all when it writes. */
GPU_KERNEL(gpu_reduce, THREADS, struct gpu_reduce, a)
{
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    for (; at < a.n; at += (int64_t)gridDim.x * blockDim.x * RUN) {
        float x[RUN], part[RUN];
        load_run(x, RUN, part_of(&a, 0), at, a.n - at, a.dtype);
        for (int32_t p = 1; p < a.n_parts; p++) {
            load_run(part, RUN, part_of(&a, p), at, a.n - at, a.dtype);
            for (int i = 0; i < RUN; i++)
                if (!a.is_max)
                    x[i] += part[i];
                else if (!(x[i] > part[i]) && !isnan(x[i]))
                    x[i] = part[i];
        }
        store_run(a.x, at, x, RUN, a.n - at, a.dtype);
    }
}

#define AHEAD 8 // chunks that are loaded before they are added
#define COLUMN_THREADS 64

GPU_KERNEL(gpu_add_partials, COLUMN_THREADS, struct gpu_partials, a)
{
    int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, chunk = 0;
    if (c >= a.C)
        return;
    float sum = a.out[c];
    for (; chunk + AHEAD <= a.n_chunks; chunk += AHEAD) {
        float part[AHEAD];
        for (int i = 0; i < AHEAD; i++)
            part[i] = a.partial[(chunk + i) * a.stride + c];
        for (int i = 0; i < AHEAD; i++)
            sum += part[i];
    }
    for (; chunk < a.n_chunks; chunk++)
        sum += a.partial[chunk * a.stride + c];
    a.out[c] = sum;
}
