/*
 * The optimizer, sums of squares and plain copies: bound by memory, one pass each.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_convert.h"

#include <math.h>
#include <string.h>

#define BLOCK 16384    // elements a thread takes at a time
#define UPDATE_RUN 128 // converting so few overlaps with the divisions of others

static void adamw_block(float *restrict p, const float *restrict g, float *restrict m,
                        float *restrict v, int64_t n, const struct adamw_rule *a)
{
    float beta1 = (float)a->beta1, rest1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, rest2 = (float)(1.0 - a->beta2);
    float epsilon = (float)a->epsilon, grad_scale = (float)a->grad_scale;
    float keep = (float)(1.0 - a->lr * a->decay), rate = (float)(a->lr / a->bias1);
    float root_bias2 = (float)(1.0 / sqrt(a->bias2));
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * grad_scale;
        float m_i = fused(beta1, m[i], rest1 * d);
        float v_i = fused(beta2, v[i], rest2 * (d * d));
        m[i] = m_i;
        v[i] = v_i;
        float step = rate * m_i / fused(sqrtf(v_i), root_bias2, epsilon);
        p[i] = fused(p[i], keep, -step);
    }
}

/* The same with the decay in the gradient, and none of its own. */
static void adam_l2_block(float *restrict p, const float *restrict g, float *restrict m,
                          float *restrict v, int64_t n, const struct adamw_rule *a)
{
    float beta1 = (float)a->beta1, rest1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, rest2 = (float)(1.0 - a->beta2);
    float epsilon = (float)a->epsilon, grad_scale = (float)a->grad_scale;
    float decay = (float)a->decay, rate = (float)(a->lr / a->bias1);
    float root_bias2 = (float)(1.0 / sqrt(a->bias2));
    for (int64_t i = 0; i < n; i++) {
        float d = fused(g[i], grad_scale, decay * p[i]);
        float m_i = fused(beta1, m[i], rest1 * d);
        float v_i = fused(beta2, v[i], rest2 * (d * d));
        m[i] = m_i;
        v[i] = v_i;
        p[i] -= rate * m_i / fused(sqrtf(v_i), root_bias2, epsilon);
    }
}

/* Elements first .. first + n, of which a run at a time is widened, used and rounded. */
static void update_block(const struct adamw *u, int64_t first, int64_t n)
{
    bool has_param = u->param && u->param != u->master;
    for (int64_t i = first; i < first + n; i += UPDATE_RUN) {
        float widened[UPDATE_RUN];
        int64_t run = i64_min(UPDATE_RUN, first + n - i);
        const float *grad =
            u->grad_dtype == DTYPE_F32 ? (const float *)u->grad + i : widened;
        if (grad == widened)
            widen(widened, (const uint16_t *)u->grad + i, u->grad_dtype, run);
        (u->rule.is_l2 ? adam_l2_block : adamw_block)(u->master + i, grad, u->exp_avg + i,
                                                      u->exp_avg_sq + i, run, &u->rule);
        if (has_param)
            narrow((char *)u->param + (size_t)i * dtype_bytes(u->param_dtype),
                   u->master + i, u->param_dtype, run);
    }
}

void K(adamw)(struct stream *s, const struct adamw *u)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->n; i += BLOCK)
        update_block(u, i, i64_min(BLOCK, u->n - i));
}

/* Squares of floats are exact in double: fused or not, the sums are the same. */
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

void K(sum_squares)(struct stream *s, const struct sum_squares *a)
{
    int64_t n_chunks = i64_round_up(a->n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        float widened[KERNEL_SQUARE_CHUNK];
        int64_t start = chunk * KERNEL_SQUARE_CHUNK;
        int64_t n_here = i64_min(KERNEL_SQUARE_CHUNK, a->n - start);
        if (a->dtype == DTYPE_F32) {
            a->partial[chunk] = chunk_squares((const float *)a->x + start, n_here);
            continue;
        }
        widen(widened, (const uint16_t *)a->x + start, a->dtype, n_here);
        a->partial[chunk] = chunk_squares(widened, n_here);
    }
}

void K(copy)(struct stream *s, const struct floats *a)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < a->n; i += BLOCK)
        memcpy(a->y + i, a->x + i, (size_t)i64_min(BLOCK, a->n - i) * sizeof *a->y);
}

void K(add)(struct stream *s, const struct floats *a)
{
    float *y = a->y;
    const float *x = a->x;
    int64_t n = a->n;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void K(fill)(struct stream *s, const struct fill *a)
{
    float *y = a->y, value = a->value;
    int64_t n = a->n;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = value;
}

void K(add_rows)(struct stream *s, const struct add_rows *a)
{
    int64_t C = a->C;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < a->n; i++) {
        float *to = a->y + a->rows[i] * C;
        const float *from = a->x + i * C;
        for (int64_t c = 0; c < C; c++)
            to[c] += from[c];
    }
}
