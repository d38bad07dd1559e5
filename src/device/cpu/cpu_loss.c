/*
 * Cross-entropy over rows of logits. A row is one thread's; sums run over fixed lanes.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

void K(xent_max)(struct stream *s, const struct xent *x)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x->R; r++)
        x->row_max[r] = lanes_max(x->logits + r * x->V, x->V);
}

void K(xent_exp)(struct stream *s, const struct xent *x)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x->R; r++) {
        float *row = x->logits + r * x->V;
        int32_t target = x->targets[r];
        bool is_here = target >= 0 && target < x->V;
        x->target_logit[r] = is_here ? row[target] - x->row_max[r] : 0.0F;
        x->row_sum[r] = lanes_exp(row, x->V, 1.0F, x->row_max[r]);
    }
}

/* In place: ascending, a row of fewer bytes never overtakes what is still to be read. */
INLINE void row_grad(const struct xent *x, int64_t r, enum dtype dtype)
{
    int64_t V = x->V, target = x->targets[r], c = 0;
    float *row = x->logits + r * V;
    float weight = x->mask[r] * x->weight, scale = weight / x->row_sum[r];
    bool is_here = target >= 0 && target < V;
    float at_target = is_here ? row[target] * scale - weight : 0.0F;
    for (; c + VEC <= V; c += VEC)
        vec_store(row, c, vec_load(row, c, VEC, DTYPE_F32) * scale, VEC, dtype);
    if (c < V)
        vec_store(row, c, vec_load(row, c, V - c, DTYPE_F32) * scale, V - c, dtype);
    if (is_here)
        vec_store(row, target, vec_of(at_target), 1, dtype);
}

void K(xent_grad)(struct stream *s, const struct xent *x)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x->R; r++)
        TYPED(s->dev->dtype, row_grad, x, r);
}

void K(xent_top)(struct stream *s, const struct xent *x)
{
    int64_t V = x->V;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x->R; r++) {
        const float *row = x->logits + r * V;
        int64_t c = 0;
        while (c < V && row[c] != x->row_max[r])
            c++;
        x->column[r] = c < V ? (int32_t)c : -1;
    }
}
