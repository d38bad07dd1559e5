/*
 * Token and position embeddings. Backward, a block takes a row of the gradient and adds
 * what belongs to it in the order of the tokens, which the host has listed: no atomics,
 * and the processor's order of sums.
 */
#include "device/gpu/gpu_math.h"

#define THREADS 128
#define RUN 4
#define AHEAD 4 // rows that are loaded before they are added

GPU_KERNEL(N(embed), THREADS, struct gpu_embed, a)
{
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * WIDE;
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        int64_t token = a.tokens[n];
        float x[WIDE] = {0}, position[WIDE] = {0};
        if (token >= 0)
            load_run(x, WIDE, a.wte, token * a.H + c, a.H - c, T_DTYPE);
        if (a.wpe)
            load_run(position, WIDE, a.wpe, a.positions[n] * a.H + c, a.H - c, T_DTYPE);
        for (int i = 0; a.wpe && i < WIDE; i++)
            x[i] = token < 0 ? position[i] : x[i] + position[i];
        store_run(a.x, n * a.H + c, x, WIDE, a.H - c, DTYPE_F32);
    }
}

GPU_KERNEL(N(embed_bwd), THREADS, struct gpu_embed_bwd, a)
{
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * RUN;
    for (int64_t i = blockIdx.x; i < a.n_rows; i += gridDim.x) {
        int64_t at = a.rows[i] * a.H + c;
        int32_t k = a.starts[i], end = a.starts[i + 1];
        float sum[RUN];
        load_run(sum, RUN, a.dw, at, a.H - c, DTYPE_F32);
        for (; k + AHEAD <= end; k += AHEAD) {
            uint32_t raw[AHEAD][RUN];
            for (int r = 0; r < AHEAD; r++)
                load_raw(raw[r], RUN, a.dx, a.order[k + r] * a.H + c, a.H - c, T_DTYPE);
            for (int r = 0; r < AHEAD; r++) {
                float dx[RUN];
                widen_raw(dx, raw[r], RUN, T_DTYPE);
                for (int j = 0; j < RUN; j++)
                    sum[j] += dx[j];
            }
        }
        for (; k < end; k++) {
            float dx[RUN];
            load_run(dx, RUN, a.dx, a.order[k] * a.H + c, a.H - c, T_DTYPE);
            for (int j = 0; j < RUN; j++)
                sum[j] += dx[j];
        }
        store_run(a.dw, at, sum, RUN, a.H - c, DTYPE_F32);
    }
}
