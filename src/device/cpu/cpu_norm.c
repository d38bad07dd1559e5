/*
 * Layer norm. A row is read three times, from cache after the first: mean, variance
 * about the mean, output. Gradients of gain and bias are sums over rows; each chunk of
 * KERNEL_ROW_CHUNK rows has its own partial sums.
 */
#include "device/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-5F

static float row_variance(const float *x, float mean, int64_t C)
{
    float lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] = fused(x[c + i] - mean, x[c + i] - mean, lane[i]);
    for (int i = 0; c + i < C; i++)
        lane[i] = fused(x[c + i] - mean, x[c + i] - mean, lane[i]);
    return lanes_sum(lane) / (float)C;
}

static void normalise_row(float *restrict y, const float *restrict x, float mean,
                          float rstd, const float *restrict g, const float *restrict b,
                          int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        y[c] = fused((x[c] - mean) * rstd, g[c], b[c]);
}

void K(layernorm_fwd)(struct stream *s, const struct layernorm *ln)
{
    int64_t C = ln->C;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < ln->N; n++) {
        const float *x_n = ln->x + n * C;
        float mean = lanes_total(x_n, C) / (float)C;
        float rstd = 1.0F / sqrtf(row_variance(x_n, mean, C) + EPSILON);
        ln->mean[n] = mean;
        ln->rstd[n] = rstd;
        normalise_row(ln->y + n * C, x_n, mean, rstd, ln->g, ln->b, C);
    }
}

void K(layernorm_again)(struct stream *s, const struct layernorm *ln)
{
    int64_t C = ln->C;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < ln->N; n++)
        normalise_row(ln->y + n * C, ln->x + n * C, ln->mean[n], ln->rstd[n], ln->g,
                      ln->b, C);
}

/* The averages over the row of h and of h * xhat, h = dy * g. */
static void row_averages(float avg[2], const float *dy, const float *x, const float *g,
                         float mean, float rstd, int64_t C)
{
    vec sum_h[LANES / VEC] = {{0}}, sum_hx[LANES / VEC] = {{0}};
    float lane_h[LANES] = {0}, lane_hx[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            vec h = vecs(dy + c)[i] * vecs(g + c)[i];
            sum_h[i] += h;
            sum_hx[i] = vec_fused(h, (vecs(x + c)[i] - mean) * rstd, sum_hx[i]);
        }
    lanes_store(lane_h, sum_h);
    lanes_store(lane_hx, sum_hx);
    for (int i = 0; c + i < C; i++) {
        float h = dy[c + i] * g[c + i];
        lane_h[i] += h;
        lane_hx[i] = fused(h, (x[c + i] - mean) * rstd, lane_hx[i]);
    }
    avg[0] = lanes_sum(lane_h) / (float)C;
    avg[1] = lanes_sum(lane_hx) / (float)C;
}

static void row_bwd(float *restrict dx, float *restrict dg, float *restrict db,
                    const float *restrict dy, const float *restrict x,
                    const float *restrict g, float mean, float rstd, int64_t C)
{
    float avg[2];
    row_averages(avg, dy, x, g, mean, rstd, C);
    float avg_h = avg[0], avg_hx = avg[1];
    for (int64_t c = 0; c < C; c++) {
        float xhat = (x[c] - mean) * rstd;
        dg[c] = fused(dy[c], xhat, dg[c]);
        db[c] += dy[c];
        float h = fused(-xhat, avg_hx, fused(dy[c], g[c], -avg_h));
        dx[c] = fused(rstd, h, dx[c]);
    }
}

void K(layernorm_bwd)(struct stream *s, const struct layernorm_bwd *ln)
{
    int64_t N = ln->N, C = ln->C, n_chunks = kernel_partials(N, 1);
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        float *dg_part = ln->partial + chunk * 2 * C;
        int64_t end = i64_min(N, (chunk + 1) * KERNEL_ROW_CHUNK);
        memset(dg_part, 0, (size_t)(2 * C) * sizeof *dg_part);
        for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < end; n++)
            row_bwd(ln->dx + n * C, dg_part, dg_part + C, ln->dy + n * C, ln->x + n * C,
                    ln->g, ln->mean[n], ln->rstd[n], C);
    }
    if (!ln->dg)
        return;
    K(add_partials)(s, ln->dg, ln->partial, N, 2 * C, C);
    K(add_partials)(s, ln->db, ln->partial + C, N, 2 * C, C);
}
