#include "device/ref/ref.h"

#include <math.h>

void ref_xent_max(float *row_max, const float *logits, int64_t R, int64_t V)
{
    for (int64_t r = 0; r < R; r++) {
        const float *row = logits + r * V;
        row_max[r] = row[0];
        for (int64_t c = 1; c < V; c++)
            if (row[c] > row_max[r])
                row_max[r] = row[c];
    }
}

void ref_xent_exp(float *row_sum, float *target_logit, float *logits,
                  const float *row_max, const int32_t *targets, int64_t R, int64_t V)
{
    for (int64_t r = 0; r < R; r++) {
        float *row = logits + r * V;
        bool target_is_here = targets[r] >= 0 && targets[r] < V;
        target_logit[r] = target_is_here ? row[targets[r]] - row_max[r] : 0.0F;

        double sum = 0;
        for (int64_t c = 0; c < V; c++) {
            double e = exp((double)row[c] - (double)row_max[r]);
            row[c] = (float)e;
            sum += e;
        }
        row_sum[r] = (float)sum;
    }
}

void ref_xent_grad(float *logits, const float *row_sum, const int32_t *targets,
                   const float *weight, int64_t R, int64_t V)
{
    for (int64_t r = 0; r < R; r++) {
        float *row = logits + r * V;
        for (int64_t c = 0; c < V; c++) {
            double one_hot = c == targets[r] ? 1.0 : 0.0;
            double p = (double)row[c] / (double)row_sum[r];
            row[c] = (float)((p - one_hot) * (double)weight[r]);
        }
    }
}
