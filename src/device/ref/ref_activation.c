#include "device/ref/ref.h"

#include <math.h>

#define SQRT_2_OVER_PI 0.79788456080286535588
#define SQRT_1_OVER_2_PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

/* One column at a time, in double: no partial sums. */
void ref_bias_grad(struct stream *s, const struct bias_grad *a)
{
    for (int64_t c = 0; c < a->C; c++) {
        double sum = (double)a->db[c];
        for (int64_t n = 0; n < a->N; n++)
            sum += ref_get(s, a->dy, n * a->C + c);
        a->db[c] = (float)sum;
    }
}

/* -- GELU ---------------------------------------------------------------------------- */

/* 0.5 z (1 + erf(z / sqrt(2))); by tanh, erf(z / sqrt(2)) is replaced by
 * tanh(sqrt(2/pi) (z + 0.044715 z^3)). */
static double gelu_tanh(double z)
{
    return tanh(SQRT_2_OVER_PI * (z + GELU_CUBIC * z * z * z));
}

static double normal_density(double z)
{
    return SQRT_1_OVER_2_PI * exp(-0.5 * z * z);
}

/* The probability of values below z: near 0 by the series z + z^3/3 + z^5/(3 5) + ..., and in
 * the tails by the continued fraction 1/(z + 1/(z + 2/(z + 3/(z + ...)))). */
static double normal_probability(double z)
{
    double x = fabs(z);
    if (x < 2.5) {
        double term = z, sum = z;
        for (int k = 3; k < 120; k += 2) {
            term *= z * z / k;
            sum += term;
        }
        return 0.5 + normal_density(z) * sum;
    }
    double below = x;
    for (int k = 150; k > 0; k--)
        below = x + k / below;
    double tail = isinf(x) ? 0.0 : normal_density(z) / below;
    return z < 0 ? tail : 1.0 - tail;
}

static double gelu(enum activation act, double z)
{
    return act == ACTIVATION_GELU ? z * normal_probability(z)
                                  : 0.5 * z * (1.0 + gelu_tanh(z));
}

static double gelu_derivative(enum activation act, double z)
{
    if (act == ACTIVATION_GELU)
        return normal_probability(z) + z * normal_density(z);
    double t = gelu_tanh(z);
    double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * z * z);
    return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * inner;
}

static void check_kind(enum activation act)
{
    CHECK(act == ACTIVATION_GELU || act == ACTIVATION_GELU_TANH, "activation %d",
          (int)act);
}

void ref_activation_fwd(struct stream *s, const struct activation_fwd *a)
{
    check_kind(a->act);
    for (int64_t n = 0; n < a->N; n++)
        for (int64_t c = 0; c < a->C; c++)
            ref_set(s, a->y, n * a->C + c,
                    gelu(a->act, ref_get(s, a->x, n * a->C + c) + (double)a->b[c]));
}

/* The sums of all chunks but the first are zero when they stay in `partial`. */
void ref_activation_bwd(struct stream *s, const struct activation_bwd *a)
{
    int64_t C = a->C;
    check_kind(a->act);
    ref_clear_partials(a->partial, a->N, C);
    for (int64_t c = 0; c < C; c++) {
        double sum = a->db ? (double)a->db[c] : 0.0;
        for (int64_t n = 0; n < a->N; n++) {
            int64_t i = n * C + c;
            // both read before either is written: y may be x, dx may be dy
            double z = ref_get(s, a->x, i) + (double)a->b[c];
            double d = ref_rounded(s, ref_get(s, a->dy, i) * gelu_derivative(a->act, z));
            if (a->y)
                ref_set(s, a->y, i, gelu(a->act, z));
            ref_set(s, a->dx, i, d);
            sum += d;
        }
        (a->db ? a->db : a->partial)[c] = (float)sum;
    }
}

void ref_clear_partials(float *partial, int64_t N, int64_t C)
{
    for (int64_t i = 0; i < kernel_partials(N, C); i++)
        partial[i] = 0.0F;
}

void ref_add_partials(struct stream *s, const struct add_partials *a)
{
    for (int64_t c = 0; c < a->C; c++) {
        double sum = (double)a->out[c];
        for (int64_t i = 0; i < kernel_partials(a->N, 1); i++)
            sum += (double)a->partial[i * a->stride + c];
        a->out[c] = (float)sum;
    }
}

/* -- dropout on the way into the residual stream ------------------------------------- */

void ref_bias_dropout_residual(struct stream *s, const struct residual *r)
{
    int64_t S = r->S, C = r->C;
    for (int64_t n = 0; n < r->B * S; n++) {
        for (int64_t c = 0; c < C; c++) {
            double factor = (double)dropout_factor(&r->drop, n / S, n % S, C, c);
            double z = (double)r->x[n * C + c] + (double)r->b[c];
            ref_set(s, r->y, n * C + c, ref_get(s, r->res, n * C + c) + factor * z);
        }
    }
}

static double factor_of(const struct dropped *d, int64_t i)
{
    int64_t n = i / d->C;
    return (double)dropout_factor(&d->drop, n / d->S, n % d->S, d->C, i % d->C);
}

void ref_dropout_fwd(struct stream *s, const struct dropped *d)
{
    const float *x = d->x;
    for (int64_t i = 0; i < d->B * d->S * d->C; i++)
        ref_set(s, d->y, i, (double)x[i] * factor_of(d, i));
}

void ref_dropout_bwd(struct stream *s, const struct dropped *d)
{
    for (int64_t i = 0; i < d->B * d->S * d->C; i++)
        ref_set(s, d->y, i, ref_get(s, d->x, i) * factor_of(d, i));
}
