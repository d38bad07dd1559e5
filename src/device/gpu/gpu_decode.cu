/*
 * Decoding: one query against a cache of keys and values, and a few rows times a weight.
 * Both are bound by what they read, so that every element of the cache and of the weight
 * is read once.
 *
 * A score is one lane's sum over every 32nd column, then the lanes' sum by halves; an
 * output is a warp's sum over 32 of every 256 keys, then the warps' in their order; a
 * product likewise is a lane's over 8 of every 256 columns. None depends on how many
 * rows, heads or keys there are beside it.
 */
#include "device/gpu/gpu_attention_tile.h"

/* -- attention ----------------------------------------------------------------------- */

/* A warp has a quarter of the block's keys. */
GPU_KERNEL(N(decode_scores), DECODE_SCORE_THREADS, struct gpu_decode, a)
{
    const int n = DECODE_KEYS / (DECODE_SCORE_THREADS / GPU_WARP);
    int h = (int)blockIdx.y, lane = (int)threadIdx.x % GPU_WARP;
    int first = (int)blockIdx.x * DECODE_KEYS + (int)threadIdx.x / GPU_WARP * n;
    const T *q = (const T *)a.q + (int64_t)h * a.D;
    const T *keys = (const T *)a.keys + (int64_t)(h / (a.A / a.A_kv)) * a.D;
    for (int key = first; key < least_of(first + n, a.n_keys); key++) {
        float sum = 0.0F;
        for (int d = lane; d < a.D; d += GPU_WARP)
            sum = fmaf(widen(q[d]), widen(keys[key * a.kv_row + d]), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            a.scores[(int64_t)h * a.n_keys + key] = sum * a.scale;
    }
}

/* The largest score of the head, in every thread. */
GPU_FN float largest(const float *scores, int n_keys, struct gpu_decode_shared *sh)
{
    float top = -INFINITY;
    for (int i = (int)threadIdx.x; i < n_keys; i += DECODE_OUT_THREADS)
        top = fmaxf(top, scores[i]);
    for (int step = GPU_WARP / 2; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(GPU_ALL_LANES, top, step));
    if (threadIdx.x % GPU_WARP == 0)
        sh->tops[threadIdx.x / GPU_WARP] = top;
    __syncthreads();
    for (int w = 0; w < DECODE_WARPS; w++)
        top = fmaxf(top, sh->tops[w]);
    return top;
}

/* 32 columns of a head: a lane has one, a warp 32 of every 256 keys. */
GPU_KERNEL(N(decode_out), DECODE_OUT_THREADS, struct gpu_decode, a)
{
    SHARED(struct gpu_decode_shared, sh);
    int h = (int)blockIdx.y, thread = (int)threadIdx.x;
    int lane = thread % GPU_WARP, warp = thread / GPU_WARP;
    int column = (int)blockIdx.x * DECODE_COLUMNS + lane;
    const float *scores = a.scores + (int64_t)h * a.n_keys;
    const T *values = (const T *)a.values + (int64_t)(h / (a.A / a.A_kv)) * a.D + column;
    float top = largest(scores, a.n_keys, sh), total = 0.0F, sum = 0.0F;

    for (int k0 = 0; k0 < a.n_keys; k0 += DECODE_OUT_THREADS) {
        int begin = k0 + warp * GPU_WARP, end = least_of(begin + GPU_WARP, a.n_keys);
        float e = k0 + thread < a.n_keys ? gpu_exp(scores[k0 + thread] - top) : 0.0F;
        total += e;
        sh->p[thread] = widen(narrow(e));
        __syncwarp(); // a warp reads what it wrote
        for (int key = begin; key < end && column < a.D; key++)
            sum = fmaf(sh->p[key - k0], widen(values[key * a.kv_row]), sum);
        __syncwarp();
    }
    total = warp_sum(total);
    sh->sums[warp][lane] = sum;
    if (lane == 0)
        sh->totals[warp] = total;
    __syncthreads();
    if (warp > 0 || column >= a.D)
        return;
    sum = total = 0.0F;
    for (int w = 0; w < DECODE_WARPS; w++) {
        sum += sh->sums[w][lane];
        total += sh->totals[w];
    }
    ((T *)a.out)[(int64_t)h * a.D + column] = narrow(sum / total);
}

/* -- a few rows times a weight ------------------------------------------------------- */

/* Outputs o and o + 1 of rows r .. r + 7. */
GPU_FN void products(const struct gpu_matvec *a, int64_t o, int64_t r)
{
    int lane = (int)threadIdx.x % GPU_WARP;
    float sum[MATVEC_OUTPUTS][MATVEC_ROWS];
    GPU_UNROLL
    for (int i = 0; i < MATVEC_OUTPUTS * MATVEC_ROWS; i++)
        sum[i / MATVEC_ROWS][i % MATVEC_ROWS] = 0.0F;
    for (int64_t c = lane * 8; c < a->I; c += GPU_WARP * 8) {
        float w[MATVEC_OUTPUTS][8], x[8];
        GPU_UNROLL
        for (int i = 0; i < MATVEC_OUTPUTS; i++)
            load_run(w[i], 8, a->w, (o + i) * a->I + c, o + i < a->O ? a->I - c : 0,
                     a->w_dtype);
        GPU_UNROLL
        for (int j = 0; j < MATVEC_ROWS; j++) {
            if (r + j >= a->R)
                break;
            load_run(x, 8, a->x, (r + j) * a->I + c, a->I - c, T_DTYPE);
            GPU_UNROLL
            for (int i = 0; i < MATVEC_OUTPUTS * 8; i++)
                sum[i / 8][j] = fmaf(w[i / 8][i % 8], x[i % 8], sum[i / 8][j]);
        }
    }
    GPU_UNROLL
    for (int i = 0; i < MATVEC_OUTPUTS * MATVEC_ROWS; i++) {
        int64_t row = r + i % MATVEC_ROWS, output = o + i / MATVEC_ROWS;
        float y = warp_sum(sum[i / MATVEC_ROWS][i % MATVEC_ROWS]);
        if (lane == i && row < a->R && output < a->O)
            store_one(a->y, row * a->O + output, y + (a->b ? a->b[output] : 0.0F),
                      a->y_dtype);
    }
}

GPU_KERNEL(N(matvec), MATVEC_THREADS, struct gpu_matvec, a)
{
    int64_t warp =
        (int64_t)blockIdx.x * (MATVEC_THREADS / GPU_WARP) + threadIdx.x / GPU_WARP;
    if (warp * MATVEC_OUTPUTS >= a.O)
        return;
    for (int64_t r = 0; r < a.R; r += MATVEC_ROWS)
        products(&a, warp * MATVEC_OUTPUTS, r);
}
