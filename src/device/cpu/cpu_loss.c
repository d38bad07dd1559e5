/*
 * Cross-entropy over rows of logits. A row is one thread's; sums run over fixed lanes.
 */
#include "device/cpu/cpu.h"

void K(xent_max)(float *row_max, const float *logits, int64_t R, int64_t V)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++)
        row_max[r] = lanes_max(logits + r * V, V);
}

void K(xent_exp)(float *row_sum, float *target_logit, float *logits, const float *row_max,
                 const int32_t *targets, int64_t R, int64_t V)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float *x = logits + r * V;
        bool is_here = targets[r] >= 0 && targets[r] < V;
        target_logit[r] = is_here ? x[targets[r]] - row_max[r] : 0.0F;
        row_sum[r] = lanes_exp(x, V, 1.0F, row_max[r]);
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
