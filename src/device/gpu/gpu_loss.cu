/*
 * Cross-entropy over rows of logits: a block takes a row. Its threads take runs of RUN
 * elements in turn; the number of threads, and with it the order of the sum, depends on V
 * alone.
 */
#include "device/gpu/gpu_math.h"

#define THREADS 256
#define RUN 4

struct loss_shared {
    float sum[GPU_WARPS_MOST];
    int32_t most[GPU_WARPS_MOST];
};

GPU_FN float *row_of(const struct gpu_xent *a)
{
    return a->logits + (int64_t)blockIdx.x * a->V;
}

/* The first element of this thread, and from one to the next. */
GPU_FN int64_t first_run(void)
{
    return (int64_t)threadIdx.x * RUN;
}

GPU_FN int64_t run_step(void)
{
    return (int64_t)blockDim.x * RUN;
}

/* Floats as whole numbers of the same order, which is one of NaNs as well; and back. */
GPU_FN int32_t ordered(float x)
{
    int32_t bits = (int32_t)bits_of_float(x);
    return bits ^ (bits >> 31 & INT32_MAX);
}

GPU_FN float float_of_ordered(int32_t bits)
{
    return float_of_bits((uint32_t)(bits ^ (bits >> 31 & INT32_MAX)));
}

GPU_KERNEL(gpu_xent_max, THREADS, struct gpu_xent, a)
{
    SHARED(struct loss_shared, sh);
    const float *row = row_of(&a);
    int32_t most = INT32_MIN;
    for (int64_t c = first_run(); c < a.V; c += run_step()) {
        float x[RUN];
        load_run(x, RUN, row, c, a.V - c, DTYPE_F32);
        for (int i = 0; i < RUN; i++)
            if (c + i < a.V && ordered(x[i]) > most)
                most = ordered(x[i]);
    }
    most = block_max(most, sh->most);
    if (threadIdx.x == 0)
        a.row_max[blockIdx.x] = float_of_ordered(most);
}

GPU_KERNEL(gpu_xent_exp, THREADS, struct gpu_xent, a)
{
    SHARED(struct loss_shared, sh);
    float *row = row_of(&a);
    float sum = 0, row_max = a.row_max[blockIdx.x];
    int64_t target = a.targets[blockIdx.x];
    for (int64_t c = first_run(); c < a.V; c += run_step()) {
        float x[RUN];
        load_run(x, RUN, row, c, a.V - c, DTYPE_F32);
        for (int i = 0; i < RUN; i++) {
            x[i] -= row_max;
            if (c + i == target) // behind the row: 0 comes after it
                a.target_logit[blockIdx.x] = x[i];
            x[i] = gpu_exp(x[i]);
            sum += c + i < a.V ? x[i] : 0.0F;
        }
        store_run(row, c, x, RUN, a.V - c, DTYPE_F32);
    }
    sum = block_sum(sum, sh->sum);
    if (threadIdx.x == 0) {
        a.row_sum[blockIdx.x] = sum;
        if (target < 0 || target >= a.V)
            a.target_logit[blockIdx.x] = 0;
    }
}

/*
 * In place: 16-bit gradients lie where the row began. All threads have loaded a part of
 * the row before any of them writes its gradients, which take the place of what was
 * loaded then or before: of parts of S elements, part p is written over elements p S / 2
 * to (p + 1) S / 2.
 */
GPU_KERNEL(gpu_xent_grad, THREADS, struct gpu_xent, a)
{
    float *row = row_of(&a);
    float weight = a.mask[blockIdx.x] * a.weight, scale = weight / a.row_sum[blockIdx.x];
    int64_t target = a.targets[blockIdx.x];
    for (int64_t part = 0; part < a.V; part += 2 * run_step()) {
        float x[2][RUN];
        for (int k = 0; k < 2; k++) {
            int64_t c = part + k * run_step() + first_run();
            load_run(x[k], RUN, row, c, a.V - c, DTYPE_F32);
            for (int i = 0; i < RUN; i++)
                x[k][i] = x[k][i] * scale - (c + i == target ? weight : 0.0F);
        }
        if (a.dtype != DTYPE_F32)
            __syncthreads();
        for (int k = 0; k < 2; k++) {
            int64_t c = part + k * run_step() + first_run();
            store_run(row, c, x[k], RUN, a.V - c, a.dtype);
        }
    }
}

GPU_KERNEL(gpu_xent_top, THREADS, struct gpu_xent, a)
{
    SHARED(struct loss_shared, sh);
    const float *row = row_of(&a);
    float row_max = a.row_max[blockIdx.x];
    int32_t most = INT32_MIN; // of minus the column
    for (int64_t c = first_run(); c < a.V && most == INT32_MIN; c += run_step()) {
        float x[RUN];
        load_run(x, RUN, row, c, a.V - c, DTYPE_F32);
        for (int i = 0; i < RUN; i++)
            if (c + i < a.V && x[i] == row_max && most == INT32_MIN)
                most = -(int32_t)(c + i);
    }
    most = block_max(most, sh->most);
    if (threadIdx.x == 0)
        a.column[blockIdx.x] = most == INT32_MIN ? -1 : -most;
}
