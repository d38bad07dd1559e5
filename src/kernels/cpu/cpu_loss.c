/*
 * Cross-entropy over rows of logits. A row is one thread's; sums run over fixed lanes.
 */
#include "kernels/cpu/cpu.h"

void K(xent_max)(float *row_max, const float *logits, int64_t R, int64_t V)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const float *x = logits + r * V;
        float lane[LANES];
        for (int i = 0; i < LANES; i++)
            lane[i] = x[0];
        int64_t c = 0;
        for (; c + LANES <= V; c += LANES)
            for (int i = 0; i < LANES; i++)
                lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
        for (int i = 0; c + i < V; i++)
            lane[i] = x[c + i] > lane[i] ? x[c + i] : lane[i];
        row_max[r] = lanes_max(lane);
    }
}

static float exp_row(float *x, float shift, int64_t V)
{
    float lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= V; c += LANES)
        for (int i = 0; i < LANES; i++) {
            float e = fast_exp(x[c + i] - shift);
            x[c + i] = e;
            lane[i] += e;
        }
    for (int i = 0; c + i < V; i++) {
        x[c + i] = fast_exp(x[c + i] - shift);
        lane[i] += x[c + i];
    }
    return lanes_sum(lane);
}

void K(xent_exp)(float *row_sum, float *target_logit, float *logits, const float *row_max,
                 const int32_t *targets, int64_t R, int64_t V)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float *x = logits + r * V;
        bool is_here = targets[r] >= 0 && targets[r] < V;
        target_logit[r] = is_here ? x[targets[r]] - row_max[r] : 0.0F;
        row_sum[r] = exp_row(x, row_max[r], V);
    }
}

void K(xent_grad)(float *logits, const float *row_sum, const int32_t *targets,
                  const float *weight, int64_t R, int64_t V)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float *x = logits + r * V;
        float scale = weight[r] / row_sum[r];
        for (int64_t c = 0; c < V; c++)
            x[c] *= scale;
        if (targets[r] >= 0 && targets[r] < V)
            x[targets[r]] -= weight[r];
    }
}
