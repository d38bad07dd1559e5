/*
 * Layer norm. A warp takes a row, which it reads again from the first cache for each of
 * its passes. A sum along a row is one per lane over every 32nd run of WIDE elements, and
 * then over the lanes by halves.
 *
 * Backward, averages of rows come first; then each thread has a few columns of a chunk of
 * KERNEL_ROW_CHUNK rows and goes down these in order, as the processor does: dg and db of
 * a chunk have its order of sums.
 */
#include "device/gpu/gpu_math.h"

#define NORM_THREADS 128
#define NORM_ROWS (NORM_THREADS / GPU_WARP) // a block's

/* The row of this thread's warp. */
GPU_FN int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * NORM_ROWS + threadIdx.x / GPU_WARP;
}

GPU_FN int64_t lane_column(void)
{
    return (int64_t)(threadIdx.x % GPU_WARP) * WIDE;
}

/* -- forward ------------------------------------------------------------------------- */

GPU_FN float row_mean(const struct gpu_norm *a, int64_t row)
{
    float sum = 0;
    for (int64_t c = lane_column(); c < a->C; c += GPU_WARP * WIDE) {
        float x[WIDE];
        load_run(x, WIDE, a->x, row + c, a->C - c, T_DTYPE);
        for (int i = 0; i < WIDE; i++)
            sum += x[i];
    }
    return warp_sum(sum) / (float)a->C;
}

GPU_FN float row_variance(const struct gpu_norm *a, int64_t row, float mean)
{
    float sum = 0;
    for (int64_t c = lane_column(); c < a->C; c += GPU_WARP * WIDE) {
        float x[WIDE];
        load_run(x, WIDE, a->x, row + c, a->C - c, T_DTYPE);
        for (int i = 0; i < WIDE; i++) {
            float d = c + i < a->C ? x[i] - mean : 0.0F;
            sum = fmaf(d, d, sum);
        }
    }
    return warp_sum(sum) / (float)a->C;
}

GPU_FN void normalise_row(const struct gpu_norm *a, int64_t row, float mean, float rstd)
{
    for (int64_t c = lane_column(); c < a->C; c += GPU_WARP * WIDE) {
        float x[WIDE], g[WIDE], b[WIDE];
        load_run(x, WIDE, a->x, row + c, a->C - c, T_DTYPE);
        load_run(g, WIDE, a->g, c, a->C - c, DTYPE_F32);
        load_run(b, WIDE, a->b, c, a->C - c, DTYPE_F32);
        for (int i = 0; i < WIDE; i++)
            x[i] = fmaf((x[i] - mean) * rstd, g[i], b[i]);
        store_run(a->y, row + c, x, WIDE, a->C - c, T_DTYPE);
    }
}

GPU_KERNEL(N(norm_fwd), NORM_THREADS, struct gpu_norm, a)
{
    int64_t n = warp_row(), row = n * a.C;
    if (n >= a.N)
        return;
    float mean = row_mean(&a, row);
    float rstd = 1.0F / sqrtf(row_variance(&a, row, mean) + a.epsilon);
    if (threadIdx.x % GPU_WARP == 0) {
        a.mean[n] = mean;
        a.rstd[n] = rstd;
    }
    normalise_row(&a, row, mean, rstd);
}

GPU_KERNEL(N(norm_again), NORM_THREADS, struct gpu_norm, a)
{
    int64_t n = warp_row();
    if (n < a.N)
        normalise_row(&a, n * a.C, a.mean[n], a.rstd[n]);
}

/* -- backward ------------------------------------------------------------------------ */

/* Averages over a row of h and of h * xhat, h = dy * g. */
GPU_KERNEL(N(norm_averages), NORM_THREADS, struct gpu_norm_bwd, a)
{
    int64_t n = warp_row(), row = n * a.C;
    float sum_h = 0, sum_hx = 0;
    if (n >= a.N)
        return;
    float mean = a.mean[n], rstd = a.rstd[n];
    for (int64_t c = lane_column(); c < a.C; c += GPU_WARP * WIDE) {
        uint32_t raw_x[WIDE], raw_dy[WIDE];
        float x[WIDE], dy[WIDE], g[WIDE];
        load_raw(raw_x, WIDE, a.x, row + c, a.C - c, T_DTYPE);
        load_raw(raw_dy, WIDE, a.dy, row + c, a.C - c, T_DTYPE);
        load_run(g, WIDE, a.g, c, a.C - c, DTYPE_F32);
        widen_raw(x, raw_x, WIDE, T_DTYPE);
        widen_raw(dy, raw_dy, WIDE, T_DTYPE);
        for (int i = 0; i < WIDE; i++) {
            float h = dy[i] * g[i]; // zero behind the row
            sum_h += h;
            sum_hx = fmaf(h, (x[i] - mean) * rstd, sum_hx);
        }
    }
    sum_h = warp_sum(sum_h) / (float)a.C;
    sum_hx = warp_sum(sum_hx) / (float)a.C;
    if (threadIdx.x % GPU_WARP == 0) {
        a.averages[2 * n] = sum_h;
        a.averages[2 * n + 1] = sum_hx;
    }
}

#define COLUMN_THREADS 64
#define RUN 4 // columns of a thread

struct norm_row { // a thread's columns of a row, as they are in memory
    uint32_t x[RUN], dy[RUN], dx[RUN];
    float mean, rstd, avg_h, avg_hx;
};

GPU_FN void load_row(struct norm_row *r, const struct gpu_norm_bwd *a, int64_t n,
                     int64_t c)
{
    int64_t at = n * a->C + c;
    load_raw(r->x, RUN, a->x, at, a->C - c, T_DTYPE);
    load_raw(r->dy, RUN, a->dy, at, a->C - c, T_DTYPE);
    load_raw(r->dx, RUN, a->dx, at, a->C - c, T_DTYPE);
    r->mean = a->mean[n];
    r->rstd = a->rstd[n];
    r->avg_h = a->averages[2 * n];
    r->avg_hx = a->averages[2 * n + 1];
}

/* A row is loaded while the one before is computed. */
GPU_KERNEL(N(norm_bwd), COLUMN_THREADS, struct gpu_norm_bwd, a)
{
    int64_t c = ((int64_t)blockIdx.y * COLUMN_THREADS + threadIdx.x) * RUN;
    int64_t chunk = blockIdx.x, n = chunk * KERNEL_ROW_CHUNK;
    int64_t end = n + KERNEL_ROW_CHUNK < a.N ? n + KERNEL_ROW_CHUNK : a.N;
    float g[RUN], dg[RUN] = {0}, db[RUN] = {0}, x[RUN], dy[RUN], dx[RUN];
    struct norm_row r, next;
    load_run(g, RUN, a.g, c, a.C - c, DTYPE_F32);
    load_row(&r, &a, n, c);
    for (; n < end; n++) {
        load_row(&next, &a, n + 1 < end ? n + 1 : n, c);
        widen_raw(x, r.x, RUN, T_DTYPE);
        widen_raw(dy, r.dy, RUN, T_DTYPE);
        widen_raw(dx, r.dx, RUN, T_DTYPE);
        for (int i = 0; i < RUN; i++) {
            float xhat = (x[i] - r.mean) * r.rstd;
            float h = fmaf(-xhat, r.avg_hx, fmaf(dy[i], g[i], -r.avg_h));
            dg[i] = fmaf(dy[i], xhat, dg[i]);
            db[i] += dy[i];
            dx[i] = fmaf(r.rstd, h, dx[i]);
        }
        store_run(a.dx, n * a.C + c, dx, RUN, a.C - c, T_DTYPE);
        r = next;
    }
    store_run(a.partial, chunk * 2 * a.C + c, dg, RUN, a.C - c, DTYPE_F32);
    store_run(a.partial, (chunk * 2 + 1) * a.C + c, db, RUN, a.C - c, DTYPE_F32);
}
