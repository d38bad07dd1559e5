#include "device/ref/ref.h"

#include <math.h>

#define SQRT_2_OVER_PI 0.79788456080286535588
#define GELU_CUBIC 0.044715

void ref_bias_add(float *x, const float *b, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            x[n * C + c] += b[c];
}

void ref_bias_grad(float *db, const float *dy, float *partial, int64_t N, int64_t C)
{
    (void)partial; // sums one column at a time, in double
    for (int64_t c = 0; c < C; c++) {
        double sum = (double)db[c];
        for (int64_t n = 0; n < N; n++)
            sum += (double)dy[n * C + c];
        db[c] = (float)sum;
    }
}

/* -- GELU, tanh form: 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))) ---------------- */

static double gelu_tanh(double z)
{
    return tanh(SQRT_2_OVER_PI * (z + GELU_CUBIC * z * z * z));
}

static double gelu(double z)
{
    return 0.5 * z * (1.0 + gelu_tanh(z));
}

static double gelu_derivative(double z)
{
    double t = gelu_tanh(z);
    double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * z * z);
    return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * inner;
}

void ref_bias_gelu_fwd(float *y, const float *x, const float *b, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            y[n * C + c] = (float)gelu((double)x[n * C + c] + (double)b[c]);
}

void ref_bias_gelu_bwd(float *dx, float *y, float *db, const float *dy, const float *x,
                       const float *b, float *partial, int64_t N, int64_t C)
{
    (void)partial; // sums one column at a time, in double
    for (int64_t c = 0; c < C; c++) {
        double sum = (double)db[c];
        for (int64_t n = 0; n < N; n++) {
            int64_t i = n * C + c;
            // both read before either is written: y may be x, dx may be dy
            double z = (double)x[i] + (double)b[c];
            double d = (double)dy[i] * gelu_derivative(z);
            y[i] = (float)gelu(z);
            dx[i] = (float)d;
            sum += d;
        }
        db[c] = (float)sum;
    }
}

/* -- dropout on the way into the residual stream ------------------------------------- */

void ref_bias_dropout_residual(float *y, const float *res, const float *x, const float *b,
                               int64_t B, int64_t S, int64_t C,
                               const struct dropout *drop)
{
    for (int64_t n = 0; n < B * S; n++) {
        for (int64_t c = 0; c < C; c++) {
            double factor = (double)dropout_factor(drop, n / S, n % S, C, c);
            double z = (double)x[n * C + c] + (double)b[c];
            y[n * C + c] = (float)((double)res[n * C + c] + factor * z);
        }
    }
}

const float *ref_dropout_bwd(float *dx, const float *dy, int64_t B, int64_t S, int64_t C,
                             const struct dropout *drop)
{
    if (drop->threshold == 0)
        return dy;
    for (int64_t n = 0; n < B * S; n++)
        for (int64_t c = 0; c < C; c++)
            dx[n * C + c] = dy[n * C + c] * dropout_factor(drop, n / S, n % S, C, c);
    return dx;
}
