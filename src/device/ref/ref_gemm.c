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

/* Element (row, column) of a weight. */
static double weight_at(const struct weight *w, int64_t row, int64_t column)
{
    return (double)ref_element(w->data, w->dtype, row * w->cols + column);
}

void ref_linear_fwd(struct stream *s, const struct linear *l)
{
    int64_t I = l->w->cols, O = l->w->rows, N = l->N;
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            double sum = 0;
            for (int64_t i = 0; i < I; i++)
                sum += ref_get(s, l->x, n * I + i) * weight_at(l->w, o, i);
            if (l->act == ACTIVATION_NONE && l->bias)
                sum += (double)l->bias[o];
            ref_set_element(l->y, l->y_dtype, n * O + o, (float)sum);
        }
    struct activation_fwd pass = {
        .act = l->act, .y = l->act_y, .x = l->y, .b = l->bias, .N = N, .C = O};
    if (l->act != ACTIVATION_NONE && l->act_y)
        ref_activation_fwd(s, &pass);
}

void ref_linear_bwd_input(struct stream *s, const struct linear_bwd_input *l)
{
    int64_t I = l->w->cols, O = l->w->rows;
    for (int64_t n = 0; n < l->N; n++)
        for (int64_t i = 0; i < I; i++) {
            double sum = 0;
            for (int64_t o = 0; o < O; o++)
                sum += ref_get(s, l->dy, n * l->dy_row + o) * weight_at(l->w, o, i);
            ref_set_element(l->dx, l->dx_dtype, n * I + i, (float)sum);
        }
}

void ref_linear_bwd_weight(struct stream *s, const struct linear_bwd_weight *l)
{
    const struct weight *dw = l->dw;
    int64_t I = dw->cols, O = dw->rows;
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++) {
            double sum = l->accumulate ? weight_at(dw, o, i) : 0;
            for (int64_t n = 0; n < l->N; n++)
                sum += ref_get(s, l->dy, n * l->dy_row + o) * ref_get(s, l->x, n * I + i);
            ref_set_element(dw->data, dw->dtype, o * I + i, (float)sum);
        }
}

void ref_matvec(struct stream *s, const struct matvec *m)
{
    int64_t I = m->w->cols, O = m->w->rows;
    for (int64_t r = 0; r < m->R; r++)
        for (int64_t o = 0; o < O; o++) {
            double sum = m->b ? (double)m->b[o] : 0.0;
            for (int64_t i = 0; i < I; i++)
                sum += weight_at(m->w, o, i) * ref_get(s, m->x, r * I + i);
            ref_set_element(m->y, m->y_dtype, r * O + o, (float)sum);
        }
}
