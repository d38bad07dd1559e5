#include "device/ref/ref.h"

#include <math.h>

#define LAYERNORM_EPSILON 1e-5

/* One row from the stored, rounded statistics: forward and again share these bits. */
static void normalize_row(float *y, const float *x, float mean, float rstd,
                          const float *g, const float *b, int64_t C)
{
    for (int64_t c = 0; c < C; c++) {
        double xhat = ((double)x[c] - (double)mean) * (double)rstd;
        y[c] = (float)((double)g[c] * xhat + (double)b[c]);
    }
}

static double row_mean(const float *x, int64_t C)
{
    double sum = 0;
    for (int64_t c = 0; c < C; c++)
        sum += (double)x[c];
    return sum / (double)C;
}

static double row_variance(const float *x, double mean, int64_t C)
{
    double sum = 0;
    for (int64_t c = 0; c < C; c++)
        sum += ((double)x[c] - mean) * ((double)x[c] - mean);
    return sum / (double)C;
}

void ref_layernorm_fwd(struct stream *s, const struct layernorm *ln)
{
    int64_t C = ln->C;
    for (int64_t n = 0; n < ln->N; n++) {
        const float *x_n = ln->x + n * C;
        double exact_mean = row_mean(x_n, C);
        double variance = row_variance(x_n, exact_mean, C);
        ln->mean[n] = (float)exact_mean;
        ln->rstd[n] = (float)(1.0 / sqrt(variance + LAYERNORM_EPSILON));
        normalize_row(ln->y + n * C, x_n, ln->mean[n], ln->rstd[n], ln->g, ln->b, C);
    }
}

void ref_layernorm_again(struct stream *s, const struct layernorm *ln)
{
    int64_t C = ln->C;
    for (int64_t n = 0; n < ln->N; n++)
        normalize_row(ln->y + n * C, ln->x + n * C, ln->mean[n], ln->rstd[n], ln->g,
                      ln->b, C);
}

static void layernorm_bwd_row(float *dx, const float *dy, const float *x, const float *g,
                              double mean, double rstd, int64_t C)
{
    double avg_h = 0, avg_hx = 0;
    for (int64_t c = 0; c < C; c++) {
        double h = (double)dy[c] * (double)g[c];
        avg_h += h;
        avg_hx += h * ((double)x[c] - mean) * rstd;
    }
    avg_h /= (double)C;
    avg_hx /= (double)C;

    for (int64_t c = 0; c < C; c++) {
        double xhat = ((double)x[c] - mean) * rstd;
        double h = (double)dy[c] * (double)g[c];
        dx[c] = (float)((double)dx[c] + rstd * (h - avg_h - xhat * avg_hx));
    }
}

/* The sums of all chunks but the first are zero when they stay in `partial`. */
void ref_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln)
{
    int64_t N = ln->N, C = ln->C;
    const float *x = ln->x, *dy = ln->dy;
    for (int64_t n = 0; n < N; n++)
        layernorm_bwd_row(ln->dx + n * C, dy + n * C, x + n * C, ln->g,
                          (double)ln->mean[n], (double)ln->rstd[n], C);

    float *dg = ln->dg ? ln->dg : ln->partial, *db = ln->dg ? ln->db : ln->partial + C;
    if (!ln->dg)
        ref_clear_partials(ln->partial, N, 2 * C);
    for (int64_t c = 0; c < C; c++) {
        double sum_g = 0, sum_b = 0;
        for (int64_t n = 0; n < N; n++) {
            double xhat =
                ((double)x[n * C + c] - (double)ln->mean[n]) * (double)ln->rstd[n];
            sum_g += (double)dy[n * C + c] * xhat;
            sum_b += (double)dy[n * C + c];
        }
        dg[c] = (float)((double)dg[c] + sum_g);
        db[c] = (float)((double)db[c] + sum_b);
    }
}
