/* What runs over flat ranges of parameters and gradients, whatever their shape. */
#include "kernels/ref.h"

#include <math.h>

void ref_adamw(float *p, const float *g, float *m, float *v, int64_t n,
               const struct adamw *a)
{
    double lr = a->lr, beta1 = a->beta1, beta2 = a->beta2;
    for (int64_t i = 0; i < n; i++) {
        double grad = (double)g[i] * a->grad_scale;
        double m_i = beta1 * (double)m[i] + (1.0 - beta1) * grad;
        double v_i = beta2 * (double)v[i] + (1.0 - beta2) * grad * grad;
        double step = lr / a->bias1 * m_i;
        double root = sqrt(v_i / a->bias2) + a->epsilon;
        double decayed = (double)p[i] * (1.0 - lr * a->decay);
        p[i] = (float)(decayed - step / root);
        m[i] = (float)m_i;
        v[i] = (float)v_i;
    }
}

void ref_sum_squares(double *partial, const float *x, int64_t n)
{
    for (int64_t first = 0; first < n; first += KERNEL_SQUARE_CHUNK) {
        int64_t end = i64_min(first + KERNEL_SQUARE_CHUNK, n);
        double sum = 0;
        for (int64_t i = first; i < end; i++)
            sum += (double)x[i] * (double)x[i];
        partial[first / KERNEL_SQUARE_CHUNK] = sum;
    }
}

void ref_copy(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = y[i];
}

void ref_add(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

void ref_fill(float *x, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}
