#include "device/ref/ref.h"

void ref_gemm(const struct gemm *g)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const float *a = g->a + i * g->a_row;
            const float *b = g->b + j * g->b_col;
            float *c = g->c + i * g->c_row + j * g->c_col;
            double sum = g->accumulate ? (double)*c : 0.0;
            for (int64_t p = 0; p < g->k; p++)
                sum += (double)a[p * g->a_col] * (double)b[p * g->b_row];
            *c = (float)sum;
        }
    }
}

void ref_linear_bias(const struct gemm *g, const float *bias)
{
    ref_gemm(g);
    ref_bias_add(g->c, bias, g->m, g->n);
}

void ref_linear_bias_gelu(const struct gemm *g, const float *bias, float *y)
{
    ref_gemm(g);
    ref_bias_gelu_fwd(y, g->c, bias, g->m, g->n);
}

void ref_matvec(float *y, const void *w, enum dtype dtype, const float *x, const float *b,
                int64_t R, int64_t O, int64_t I)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < O; o++) {
            double sum = b ? (double)b[o] : 0.0;
            for (int64_t i = 0; i < I; i++)
                sum += (double)ref_element(w, dtype, o * I + i) * (double)x[r * I + i];
            y[r * O + o] = (float)sum;
        }
}
