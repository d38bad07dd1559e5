/*
 * The optimizer, sums of squares and plain copies: bound by memory, one pass each.
 */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define BLOCK 16384 // elements a thread takes at a time

static void adamw_block(float *restrict p, const float *restrict g, float *restrict m,
                        float *restrict v, int64_t n, const struct adamw *a)
{
    float beta1 = (float)a->beta1, rest1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, rest2 = (float)(1.0 - a->beta2);
    float epsilon = (float)a->epsilon, grad_scale = (float)a->grad_scale;
    float keep = (float)(1.0 - a->lr * a->decay), rate = (float)(a->lr / a->bias1);
    float root_bias2 = (float)(1.0 / sqrt(a->bias2));
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * grad_scale;
        float m_i = beta1 * m[i] + rest1 * d;
        float v_i = beta2 * v[i] + rest2 * (d * d);
        m[i] = m_i;
        v[i] = v_i;
        p[i] = p[i] * keep - rate * m_i / (sqrtf(v_i) * root_bias2 + epsilon);
    }
}

void K(adamw)(float *p, const float *g, float *m, float *v, int64_t n,
              const struct adamw *a)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK)
        adamw_block(p + i, g + i, m + i, v + i, i64_min(BLOCK, n - i), a);
}

static double chunk_squares(const float *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

void K(sum_squares)(double *partial, const float *x, int64_t n)
{
    int64_t n_chunks = i64_round_up(n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        int64_t start = chunk * KERNEL_SQUARE_CHUNK;
        partial[chunk] =
            chunk_squares(x + start, i64_min(KERNEL_SQUARE_CHUNK, n - start));
    }
}

void K(copy)(float *x, const float *y, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK)
        memcpy(x + i, y + i, (size_t)i64_min(BLOCK, n - i) * sizeof *x);
}

void K(add)(float *x, const float *y, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

void K(fill)(float *x, float value, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}
