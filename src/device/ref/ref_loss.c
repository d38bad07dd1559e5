#include "device/ref/ref.h"

#include <math.h>

void ref_xent_max(struct stream *s, const struct xent *x)
{
    for (int64_t r = 0; r < x->R; r++) {
        const float *row = x->logits + r * x->V;
        x->row_max[r] = row[0];
        for (int64_t c = 1; c < x->V; c++)
            if (row[c] > x->row_max[r])
                x->row_max[r] = row[c];
    }
}

void ref_xent_exp(struct stream *s, const struct xent *x)
{
    for (int64_t r = 0; r < x->R; r++) {
        float *row = x->logits + r * x->V, max = x->row_max[r];
        bool target_is_here = x->targets[r] >= 0 && x->targets[r] < x->V;
        x->target_logit[r] = target_is_here ? row[x->targets[r]] - max : 0.0F;

        double sum = 0;
        for (int64_t c = 0; c < x->V; c++) {
            double e = exp((double)row[c] - (double)max);
            row[c] = (float)e;
            sum += e;
        }
        x->row_sum[r] = (float)sum;
    }
}

/* A row of a smaller type is written over the same row, behind what is still to be read. */
void ref_xent_grad(struct stream *s, const struct xent *x)
{
    for (int64_t r = 0; r < x->R; r++) {
        float *row = x->logits + r * x->V, weight = x->mask[r] * x->weight;
        for (int64_t c = 0; c < x->V; c++) {
            double logit = (double)ref_element(row, DTYPE_F32, c);
            double one_hot = c == x->targets[r] ? 1.0 : 0.0;
            double p = logit / (double)x->row_sum[r];
            ref_set(s, row, c, (p - one_hot) * (double)weight);
        }
    }
}

void ref_xent_top(struct stream *s, const struct xent *x)
{
    for (int64_t r = 0; r < x->R; r++) {
        x->column[r] = -1;
        for (int64_t c = x->V - 1; c >= 0; c--)
            if (x->logits[r * x->V + c] == x->row_max[r])
                x->column[r] = (int32_t)c;
    }
}
