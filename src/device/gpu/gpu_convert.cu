/* Flat ranges: conversions between storage types, sums of two, fills; and sums by rows. */
#include "device/gpu/gpu_math.h"

#define THREADS 256
#define RUN 4

/* The first element of this thread, and from one to the next. */
GPU_FN int64_t first_run(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * RUN;
}

GPU_FN int64_t run_step(void)
{
    return (int64_t)gridDim.x * blockDim.x * RUN;
}

GPU_KERNEL(gpu_convert, THREADS, struct gpu_convert, a)
{
    for (int64_t at = first_run(); at < a.n; at += run_step()) {
        float x[RUN], y[RUN];
        load_run(x, RUN, a.x, at, a.n - at, a.x_dtype);
        if (a.is_added) {
            load_run(y, RUN, a.y, at, a.n - at, a.y_dtype);
            for (int i = 0; i < RUN; i++)
                x[i] = y[i] + x[i];
        }
        store_run(a.y, at, x, RUN, a.n - at, a.y_dtype);
    }
}

GPU_KERNEL(gpu_fill_floats, THREADS, struct gpu_fill, a)
{
    float x[RUN];
    for (int i = 0; i < RUN; i++)
        x[i] = a.value;
    for (int64_t at = first_run(); at < a.n; at += run_step())
        store_run(a.x, at, x, RUN, a.n - at, DTYPE_F32);
}

/* Rows differ: no two blocks add to the same one. */
GPU_KERNEL(gpu_add_rows, THREADS, struct gpu_add_rows, a)
{
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * RUN;
    for (int64_t i = blockIdx.x; i < a.n; i += gridDim.x) {
        float x[RUN], y[RUN];
        int64_t to = a.rows[i] * a.C + c;
        load_run(x, RUN, a.x, to, a.C - c, DTYPE_F32);
        load_run(y, RUN, a.y, i * a.C + c, a.C - c, DTYPE_F32);
        for (int j = 0; j < RUN; j++)
            x[j] += y[j];
        store_run(a.x, to, x, RUN, a.C - c, DTYPE_F32);
    }
}
