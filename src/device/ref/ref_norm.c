#include "device/ref/ref.h"

#include <math.h>

/* Row n from the stored, rounded statistics: forward and again share these bits. */
static void normalize_row(struct stream *s, const struct layernorm *ln, int64_t n)
{
    for (int64_t c = 0; c < ln->C; c++) {
        double x = ref_get(s, ln->x, n * ln->C + c);
        double xhat = (x - (double)ln->mean[n]) * (double)ln->rstd[n];
        ref_set(s, ln->y, n * ln->C + c, (double)ln->g[c] * xhat + (double)ln->b[c]);
    }
}

static double row_mean(struct stream *s, const struct layernorm *ln, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < ln->C; c++)
        sum += ref_get(s, ln->x, n * ln->C + c);
    return sum / (double)ln->C;
}

static double row_variance(struct stream *s, const struct layernorm *ln, int64_t n,
                           double mean)
{
    double sum = 0;
    for (int64_t c = 0; c < ln->C; c++) {
        double x = ref_get(s, ln->x, n * ln->C + c);
        sum += (x - mean) * (x - mean);
    }
    return sum / (double)ln->C;
}

void ref_layernorm_fwd(struct stream *s, const struct layernorm *ln)
{
    for (int64_t n = 0; n < ln->N; n++) {
        double exact_mean = row_mean(s, ln, n);
        double variance = row_variance(s, ln, n, exact_mean);
        ln->mean[n] = (float)exact_mean;
        ln->rstd[n] = (float)(1.0 / sqrt(variance + (double)ln->epsilon));
        normalize_row(s, ln, n);
    }
}

void ref_layernorm_again(struct stream *s, const struct layernorm *ln)
{
    for (int64_t n = 0; n < ln->N; n++)
        normalize_row(s, ln, n);
}

/* (x - mean) * rstd of row n, column c. */
static double xhat_at(struct stream *s, const struct layernorm_bwd *ln, int64_t n,
                      int64_t c)
{
    double x = ref_get(s, ln->x, n * ln->C + c);
    return (x - (double)ln->mean[n]) * (double)ln->rstd[n];
}

static void layernorm_bwd_row(struct stream *s, const struct layernorm_bwd *ln, int64_t n)
{
    int64_t C = ln->C;
    double avg_h = 0, avg_hx = 0;
    for (int64_t c = 0; c < C; c++) {
        double h = ref_get(s, ln->dy, n * C + c) * (double)ln->g[c];
        avg_h += h;
        avg_hx += h * xhat_at(s, ln, n, c);
    }
    avg_h /= (double)C;
    avg_hx /= (double)C;

    for (int64_t c = 0; c < C; c++) {
        double h = ref_get(s, ln->dy, n * C + c) * (double)ln->g[c];
        double d = (double)ln->rstd[n] * (h - avg_h - xhat_at(s, ln, n, c) * avg_hx);
        ref_set(s, ln->dx, n * C + c, ref_get(s, ln->dx, n * C + c) + d);
    }
}

/* The sums of all chunks but the first are zero when they stay in `partial`. */
void ref_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln)
{
    int64_t N = ln->N, C = ln->C;
    for (int64_t n = 0; n < N; n++)
        layernorm_bwd_row(s, ln, n);

    float *dg = ln->dg ? ln->dg : ln->partial, *db = ln->dg ? ln->db : ln->partial + C;
    if (!ln->dg)
        ref_clear_partials(ln->partial, N, 2 * C);
    for (int64_t c = 0; c < C; c++) {
        double sum_g = 0, sum_b = 0;
        for (int64_t n = 0; n < N; n++) {
            double dy = ref_get(s, ln->dy, n * C + c);
            sum_g += dy * xhat_at(s, ln, n, c);
            sum_b += dy;
        }
        dg[c] = (float)((double)dg[c] + sum_g);
        db[c] = (float)((double)db[c] + sum_b);
    }
}
