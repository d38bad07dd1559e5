/*
 * Layer norm. A row is read three times, from cache after the first: mean, variance
 * about the mean, output. Gradients of gain and bias are sums over rows; each chunk of
 * KERNEL_ROW_CHUNK rows has its own partial sums.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define EPSILON 1e-5F
#define FEW 4096    // elements that one thread computes sooner than it wakes another
#define COLUMNS 256 // of a chunk that a thread takes when there are more than chunks
#define SPREAD 2048 // rows at a time then, whose averages are known before

/* -- forward ------------------------------------------------------------------------- */

/* The n < LANES last elements of a row, as floats. */
INLINE void load_rest(float rest[LANES], const void *x, int64_t at, int64_t n,
                      enum dtype dtype)
{
    for (int i = 0; i < LANES && i < n; i += VEC)
        *(vec *)(rest + i) = vec_load(x, at + i, i64_min(VEC, n - i), dtype);
}

INLINE float row_mean(const void *x, int64_t at, int64_t C, enum dtype dtype)
{
    float lane[LANES], rest[LANES] = {0};
    vec sum[LANES / VEC] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES / VEC; i++)
            sum[i] += vec_load(x, at + c + i * VEC, VEC, dtype);
    lanes_store(lane, sum);
    load_rest(rest, x, at + c, C - c, dtype);
    for (int i = 0; c + i < C; i++)
        lane[i] += rest[i];
    return lanes_sum(lane) / (float)C;
}

INLINE float row_variance(const void *x, int64_t at, float mean, int64_t C,
                          enum dtype dtype)
{
    float lane[LANES], rest[LANES] = {0};
    vec sum[LANES / VEC] = {{0}};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            vec d = vec_load(x, at + c + i * VEC, VEC, dtype) - mean;
            sum[i] = vec_fused(d, d, sum[i]);
        }
    lanes_store(lane, sum);
    load_rest(rest, x, at + c, C - c, dtype);
    for (int i = 0; c + i < C; i++)
        lane[i] = fused(rest[i] - mean, rest[i] - mean, lane[i]);
    return lanes_sum(lane) / (float)C;
}

INLINE void normalise_step(const struct layernorm *ln, int64_t n, int64_t c, int64_t here,
                           enum dtype dtype)
{
    int64_t at = n * ln->C + c;
    vec xhat = (vec_load(ln->x, at, here, dtype) - ln->mean[n]) * ln->rstd[n];
    vec y = vec_fused(xhat, vec_load(ln->g, c, here, DTYPE_F32),
                      vec_load(ln->b, c, here, DTYPE_F32));
    vec_store(ln->y, at, y, here, dtype);
}

INLINE void normalise_row(const struct layernorm *ln, int64_t n, enum dtype dtype)
{
    int64_t c = 0;
    for (; c + VEC <= ln->C; c += VEC)
        normalise_step(ln, n, c, VEC, dtype);
    if (c < ln->C)
        normalise_step(ln, n, c, ln->C - c, dtype);
}

INLINE void row_fwd(const struct layernorm *ln, int64_t n, enum dtype dtype)
{
    int64_t at = n * ln->C;
    float mean = row_mean(ln->x, at, ln->C, dtype);
    ln->mean[n] = mean;
    ln->rstd[n] = 1.0F / sqrtf(row_variance(ln->x, at, mean, ln->C, dtype) + EPSILON);
    normalise_row(ln, n, dtype);
}

void K(layernorm_fwd)(struct stream *s, const struct layernorm *ln)
{
#pragma omp parallel for schedule(static) if (ln->N * ln->C > FEW)
    for (int64_t n = 0; n < ln->N; n++)
        TYPED(s->dev->dtype, row_fwd, ln, n);
}

void K(layernorm_again)(struct stream *s, const struct layernorm *ln)
{
#pragma omp parallel for schedule(static) if (ln->N * ln->C > FEW)
    for (int64_t n = 0; n < ln->N; n++)
        TYPED(s->dev->dtype, normalise_row, ln, n);
}

/* -- backward ------------------------------------------------------------------------ */

/* The averages over a row of h and of h * xhat, h = dy * g. */
struct averages {
    float h, hx;
};

INLINE void row_averages(struct averages *avg, const struct layernorm_bwd *ln, int64_t n,
                         enum dtype dtype)
{
    vec sum_h[LANES / VEC] = {{0}}, sum_hx[LANES / VEC] = {{0}};
    float lane_h[LANES], lane_hx[LANES], rest_dy[LANES] = {0}, rest_x[LANES] = {0};
    float mean = ln->mean[n], rstd = ln->rstd[n];
    int64_t C = ln->C, at = n * C, c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            vec dy = vec_load(ln->dy, at + c + i * VEC, VEC, dtype);
            vec x = vec_load(ln->x, at + c + i * VEC, VEC, dtype);
            vec h = dy * vecs(ln->g + c)[i];
            sum_h[i] += h;
            sum_hx[i] = vec_fused(h, (x - mean) * rstd, sum_hx[i]);
        }
    lanes_store(lane_h, sum_h);
    lanes_store(lane_hx, sum_hx);
    load_rest(rest_dy, ln->dy, at + c, C - c, dtype);
    load_rest(rest_x, ln->x, at + c, C - c, dtype);
    for (int i = 0; c + i < C; i++) {
        float h = rest_dy[i] * ln->g[c + i];
        lane_h[i] += h;
        lane_hx[i] = fused(h, (rest_x[i] - mean) * rstd, lane_hx[i]);
    }
    avg->h = lanes_sum(lane_h) / (float)C;
    avg->hx = lanes_sum(lane_hx) / (float)C;
}

/* Columns [c, c + here) of row n; dg, db: partial sums of its chunk. */
INLINE void bwd_step(const struct layernorm_bwd *ln, const struct averages *avg,
                     float *dg, float *db, int64_t n, int64_t c, int64_t here,
                     enum dtype dtype)
{
    int64_t at = n * ln->C + c;
    vec dy = vec_load(ln->dy, at, here, dtype);
    vec xhat = (vec_load(ln->x, at, here, dtype) - ln->mean[n]) * ln->rstd[n];
    vec h = vec_fused(dy, vec_load(ln->g, c, here, DTYPE_F32), vec_of(-avg->h));
    h = vec_fused(-xhat, vec_of(avg->hx), h);
    vec dg_c = vec_fused(dy, xhat, vec_load(dg, c, here, DTYPE_F32));
    vec db_c = vec_load(db, c, here, DTYPE_F32) + dy;
    vec dx = vec_fused(vec_of(ln->rstd[n]), h, vec_load(ln->dx, at, here, dtype));
    vec_store(dg, c, dg_c, here, DTYPE_F32);
    vec_store(db, c, db_c, here, DTYPE_F32);
    vec_store(ln->dx, at, dx, here, dtype);
}

/* Columns [first, end) of the rows of a chunk. avg: of its rows, or NULL: not known. */
INLINE void chunk_bwd(const struct layernorm_bwd *ln, int64_t chunk,
                      const struct averages *avg, int64_t first, int64_t end,
                      enum dtype dtype)
{
    float *dg = ln->partial + chunk * 2 * ln->C, *db = dg + ln->C;
    int64_t from = chunk * KERNEL_ROW_CHUNK;
    int64_t to = i64_min(ln->N, from + KERNEL_ROW_CHUNK);
    memset(dg + first, 0, (size_t)(end - first) * sizeof *dg);
    memset(db + first, 0, (size_t)(end - first) * sizeof *db);
    for (int64_t n = from; n < to; n++) {
        struct averages here;
        int64_t c = first;
        if (avg)
            here = avg[n - from];
        else
            row_averages(&here, ln, n, dtype);
        for (; c + VEC <= end; c += VEC)
            bwd_step(ln, &here, dg, db, n, c, VEC, dtype);
        if (c < end)
            bwd_step(ln, &here, dg, db, n, c, end - c, dtype);
    }
}

static void typed_averages(struct averages *avg, const struct layernorm_bwd *ln,
                           int64_t n, enum dtype dtype)
{
    TYPED(dtype, row_averages, avg, ln, n);
}

static void typed_chunk_bwd(const struct layernorm_bwd *ln, int64_t chunk,
                            const struct averages *avg, int64_t first, int64_t end,
                            enum dtype dtype)
{
    TYPED(dtype, chunk_bwd, ln, chunk, avg, first, end);
}

/* With fewer chunks than threads these share columns, too: after the averages, which
 * take whole rows. */
static void spread_bwd(const struct layernorm_bwd *ln, int64_t first, int64_t rows,
                       enum dtype dtype)
{
    struct averages avg[SPREAD];
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t n = first; n < first + rows; n++)
            typed_averages(avg + n - first, ln, n, dtype);
#pragma omp for collapse(2) schedule(static)
        for (int64_t n = 0; n < rows; n += KERNEL_ROW_CHUNK)
            for (int64_t c = 0; c < ln->C; c += COLUMNS)
                typed_chunk_bwd(ln, (first + n) / KERNEL_ROW_CHUNK, avg + n, c,
                                i64_min(ln->C, c + COLUMNS), dtype);
    }
}

void K(layernorm_bwd)(struct stream *s, const struct layernorm_bwd *ln)
{
    int64_t N = ln->N, C = ln->C, n_chunks = kernel_partials(N, 1);
    bool is_spread = N * C > FEW && n_chunks < 2 * omp_get_max_threads() &&
                     n_chunks % omp_get_max_threads() != 0;
    for (int64_t n = 0; is_spread && n < N; n += SPREAD)
        spread_bwd(ln, n, i64_min(SPREAD, N - n), s->dev->dtype);
#pragma omp parallel for schedule(static) if (N * C > FEW && !is_spread)
    for (int64_t chunk = 0; chunk < (is_spread ? 0 : n_chunks); chunk++)
        typed_chunk_bwd(ln, chunk, NULL, 0, C, s->dev->dtype);
    if (!ln->dg)
        return;
    K(add_partials)(s, ln->dg, ln->partial, N, 2 * C, C);
    K(add_partials)(s, ln->db, ln->partial + C, N, 2 * C, C);
}
