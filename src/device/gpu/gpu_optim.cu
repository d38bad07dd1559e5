/*
 * The optimizer and sums of squares: bound by memory, one pass each, with the processor's
 * steps and orders of sums.
 */
#include "device/gpu/gpu_math.h"

#define THREADS 256
#define RUN 4

struct moments { // of a thread's elements
    float p[RUN], g[RUN], m[RUN], v[RUN];
};

GPU_FN void adam_step(struct moments *e, const struct gpu_update *a)
{
    for (int i = 0; i < RUN; i++) {
        float d = a->is_l2 ? fmaf(e->g[i], a->grad_scale, a->decay * e->p[i])
                           : e->g[i] * a->grad_scale;
        e->m[i] = fmaf(a->beta1, e->m[i], a->rest1 * d);
        e->v[i] = fmaf(a->beta2, e->v[i], a->rest2 * (d * d));
        float step = a->rate * e->m[i] / fmaf(sqrtf(e->v[i]), a->root_bias2, a->epsilon);
        e->p[i] = a->is_l2 ? e->p[i] - step : fmaf(e->p[i], a->keep, -step);
    }
}

GPU_KERNEL(gpu_adamw, THREADS, struct gpu_update, a)
{
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    for (; at < a.n; at += (int64_t)gridDim.x * blockDim.x * RUN) {
        struct moments e;
        int64_t n = a.n - at;
        load_run(e.p, RUN, a.master, at, n, DTYPE_F32);
        load_run(e.g, RUN, a.grad, at, n, a.grad_dtype);
        load_run(e.m, RUN, a.exp_avg, at, n, DTYPE_F32);
        load_run(e.v, RUN, a.exp_avg_sq, at, n, DTYPE_F32);
        adam_step(&e, &a);
        store_run(a.master, at, e.p, RUN, n, DTYPE_F32);
        store_run(a.exp_avg, at, e.m, RUN, n, DTYPE_F32);
        store_run(a.exp_avg_sq, at, e.v, RUN, n, DTYPE_F32);
        if (a.param)
            store_run(a.param, at, e.p, RUN, n, a.param_dtype);
    }
}

#define SQUARE_LANES 16 // sums of a chunk, each of every 16th element
#define SQUARE_CHUNKS (THREADS / SQUARE_LANES) // of a block, which writes them all

struct squares_shared {
    double lane[THREADS];
};

GPU_KERNEL(gpu_sum_squares, THREADS, struct gpu_squares, a)
{
    SHARED(struct squares_shared, sh);
    int64_t chunk = (int64_t)blockIdx.x * SQUARE_CHUNKS + threadIdx.x / SQUARE_LANES;
    int64_t first = chunk * KERNEL_SQUARE_CHUNK + threadIdx.x % SQUARE_LANES;
    double sum = 0;
    for (int64_t i = 0; i < KERNEL_SQUARE_CHUNK; i += SQUARE_LANES)
        if (first + i < a.n) {
            double x = (double)load_one(a.x, first + i, a.dtype);
            sum += x * x; // exact: fused or not, the sums are the same
        }
    sh->lane[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x % SQUARE_LANES == 0) {
        sum = 0;
        for (uint32_t j = 0; j < SQUARE_LANES; j++)
            sum += sh->lane[threadIdx.x + j];
        a.partial[chunk] = sum;
    }
}
