#include "device/ref/ref.h"

void ref_gemm(struct stream *s, const struct gemm *g)
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

void ref_linear(struct stream *s, const struct linear *l)
{
    const struct gemm *g = &l->product;
    ref_gemm(s, g);
    if (l->act == ACTIVATION_NONE)
        ref_bias_add(s, g->c, l->bias, g->m, g->n);
    else
        ref_activation_fwd(
            s,
            &(struct activation_fwd){
                .act = l->act, .y = l->y, .x = g->c, .b = l->bias, .N = g->m, .C = g->n});
}

void ref_matvec(struct stream *s, const struct matvec *m)
{
    int64_t I = m->I;
    for (int64_t r = 0; r < m->R; r++)
        for (int64_t o = 0; o < m->O; o++) {
            double sum = m->b ? (double)m->b[o] : 0.0;
            for (int64_t i = 0; i < I; i++)
                sum += (double)ref_element(m->w, m->dtype, o * I + i) *
                       (double)m->x[r * I + i];
            m->y[r * m->O + o] = (float)sum;
        }
}
