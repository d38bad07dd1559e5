/* What runs over flat ranges of parameters and gradients, whatever their shape. */
#include "device/ref/ref.h"

#include <math.h>

static void update_element(const struct adamw *u, int64_t i)
{
    const struct adamw_rule *a = &u->rule;
    double beta1 = a->beta1, beta2 = a->beta2, p = (double)u->master[i];
    double grad = (double)ref_element(u->grad, u->grad_dtype, i) * a->grad_scale;
    if (a->is_l2)
        grad += a->decay * p;
    else
        p *= 1.0 - a->lr * a->decay;
    double m = beta1 * (double)u->exp_avg[i] + (1.0 - beta1) * grad;
    double v = beta2 * (double)u->exp_avg_sq[i] + (1.0 - beta2) * grad * grad;
    double root = sqrt(v / a->bias2) + a->epsilon;
    u->master[i] = (float)(p - a->lr / a->bias1 * m / root);
    u->exp_avg[i] = (float)m;
    u->exp_avg_sq[i] = (float)v;
    if (u->param)
        ref_set_element(u->param, u->param_dtype, i, u->master[i]);
}

void ref_adamw(struct stream *s, const struct adamw *u)
{
    for (int64_t i = 0; i < u->n; i++)
        update_element(u, i);
}

void ref_sum_squares(struct stream *s, const struct sum_squares *a)
{
    for (int64_t first = 0; first < a->n; first += KERNEL_SQUARE_CHUNK) {
        int64_t end = i64_min(first + KERNEL_SQUARE_CHUNK, a->n);
        double sum = 0;
        for (int64_t i = first; i < end; i++) {
            double x_i = (double)ref_element(a->x, a->dtype, i);
            sum += x_i * x_i;
        }
        a->partial[first / KERNEL_SQUARE_CHUNK] = sum;
    }
}

void ref_copy(struct stream *s, const struct floats *a)
{
    for (int64_t i = 0; i < a->n; i++)
        a->y[i] = a->x[i];
}

void ref_add(struct stream *s, const struct floats *a)
{
    for (int64_t i = 0; i < a->n; i++)
        a->y[i] += a->x[i];
}

void ref_fill(struct stream *s, const struct fill *a)
{
    for (int64_t i = 0; i < a->n; i++)
        a->y[i] = a->value;
}

/* The one sum here that is kept in float: its order, that of the ranks, is the contract. */
void ref_reduce(struct stream *s, const struct reduction *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        float sum = ref_element(r->parts[0], r->dtype, i);
        for (int p = 1; p < r->n_parts; p++) {
            float part = ref_element(r->parts[p], r->dtype, i);
            if (r->op == REDUCE_SUM)
                sum += part;
            else
                sum = sum > part || isnan(sum) ? sum : part;
        }
        ref_set_element(r->x, r->dtype, i, sum);
    }
}

void ref_add_rows(struct stream *s, const struct add_rows *a)
{
    for (int64_t i = 0; i < a->n * a->C; i++)
        a->y[a->rows[i / a->C] * a->C + i % a->C] += a->x[i];
}
