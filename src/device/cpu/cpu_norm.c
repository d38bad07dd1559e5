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

INLINE void normalise_step(const struct layernorm *ln, int64_t at, int64_t c, float mean,
                           float rstd, int64_t n, enum dtype dtype)
{
    vec xhat = (vec_load(ln->x, at + c, n, dtype) - mean) * rstd;
    vec y = vec_fused(xhat, vec_load(ln->g, c, n, DTYPE_F32),
                      vec_load(ln->b, c, n, DTYPE_F32));
    vec_store(ln->y, at + c, y, n, dtype);
}

/* What is computed with is copied: a store may be to anything, as far as the compiler
 * knows. */
INLINE void normalise_row(const struct layernorm *norm, int64_t n, enum dtype dtype)
{
    struct layernorm ln = *norm;
    float mean = ln.mean[n], rstd = ln.rstd[n];
    int64_t at = n * ln.C, c = 0;
    for (; c + VEC <= ln.C; c += VEC)
        normalise_step(&ln, at, c, mean, rstd, VEC, dtype);
    if (c < ln.C)
        normalise_step(&ln, at, c, mean, rstd, ln.C - c, dtype);
}

INLINE void row_fwd(const struct layernorm *ln, int64_t n, enum dtype dtype)
{
    int64_t at = n * ln->C;
    float mean = row_mean(ln->x, at, ln->C, dtype);
    ln->mean[n] = mean;
    ln->rstd[n] = 1.0F / sqrtf(row_variance(ln->x, at, mean, ln->C, dtype) + ln->epsilon);
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

/* A row of the backward pass, and the partial sums of its chunk. */
struct row_bwd {
    const void *dy, *x;
    void *dx;
    const float *g;
    float *dg, *db;
    float mean, rstd;
    struct averages avg;
    int64_t at; // its first element
};

INLINE void bwd_step(const struct row_bwd *r, int64_t c, int64_t n, enum dtype dtype)
{
    vec dy = vec_load(r->dy, r->at + c, n, dtype);
    vec xhat = (vec_load(r->x, r->at + c, n, dtype) - r->mean) * r->rstd;
    vec h = vec_fused(dy, vec_load(r->g, c, n, DTYPE_F32), vec_of(-r->avg.h));
    h = vec_fused(-xhat, vec_of(r->avg.hx), h);
    vec dg = vec_fused(dy, xhat, vec_load(r->dg, c, n, DTYPE_F32));
    vec db = vec_load(r->db, c, n, DTYPE_F32) + dy;
    vec dx = vec_fused(vec_of(r->rstd), h, vec_load(r->dx, r->at + c, n, dtype));
    vec_store(r->dg, c, dg, n, DTYPE_F32);
    vec_store(r->db, c, db, n, DTYPE_F32);
    vec_store(r->dx, r->at + c, dx, n, dtype);
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
        struct averages own;
        int64_t c = first;
        if (avg)
            own = avg[n - from];
        else
            row_averages(&own, ln, n, dtype);
        struct row_bwd r = {.dy = ln->dy,
                            .x = ln->x,
                            .dx = ln->dx,
                            .g = ln->g,
                            .dg = dg,
                            .db = db,
                            .mean = ln->mean[n],
                            .rstd = ln->rstd[n],
                            .avg = own,
                            .at = n * ln->C};
        for (; c + VEC <= end; c += VEC)
            bwd_step(&r, c, VEC, dtype);
        if (c < end)
            bwd_step(&r, c, end - c, dtype);
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
    K(add_partials)(s, &(struct add_partials){ln->dg, ln->partial, N, 2 * C, C});
    K(add_partials)(s, &(struct add_partials){ln->db, ln->partial + C, N, 2 * C, C});
}
