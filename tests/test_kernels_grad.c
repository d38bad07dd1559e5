/*
 * The kernels judged by mathematics: a scalar function of the inputs is written here in
 * double, and its central differences are the gradient that the backward kernels must
 * give. Forward must give the value of the function.
 *
 * The scalar is the weighted sum of a kernel's outputs, so that the weights are dy.
 */
#include "kernel_test.h"

#define MAX_PARAMS 256
#define DIFFERENCE 1e-5 // error of a central difference: about 1e-10

struct problem {
    const char *name;
    int64_t n_params;
    double rate; // of dropout
    double (*value)(const double *x, const struct dropout *drop);
    /* The same from a table's kernels; grad (zero on entry) gets the gradient. */
    double (*kernels)(const struct kernels *k, const float *x, float *grad,
                      const struct dropout *drop);
};

/* A fixed weight of output i, as irregular as one likes. */
static double weight(int64_t i)
{
    return sin(1.0 + 1.7 * (double)i);
}

static void weights_f32(float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = (float)weight(i);
}

static double weighted_sum(const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += weight(i) * (double)y[i];
    return sum;
}

/* -- layer norm: x (3, 7), g (7), b (7) ---------------------------------------------- */

enum { LN_N = 3, LN_C = 7, LN_NC = LN_N * LN_C };

static double layernorm_value(const double *p, const struct dropout *drop)
{
    (void)drop;
    const double *g = p + LN_NC, *b = g + LN_C;
    double sum = 0;
    for (int n = 0; n < LN_N; n++) {
        const double *x = p + n * LN_C;
        double mean = 0, variance = 0;
        for (int c = 0; c < LN_C; c++)
            mean += x[c] / LN_C;
        for (int c = 0; c < LN_C; c++)
            variance += (x[c] - mean) * (x[c] - mean) / LN_C;
        for (int c = 0; c < LN_C; c++)
            sum += weight(n * LN_C + c) *
                   (g[c] * (x[c] - mean) / sqrt(variance + 1e-5) + b[c]);
    }
    return sum;
}

static double layernorm_kernels(const struct kernels *k, const float *p, float *grad,
                                const struct dropout *drop)
{
    (void)drop;
    float y[LN_NC], dy[LN_NC], mean[LN_N], rstd[LN_N], partial[2 * LN_C];
    const float *g = p + LN_NC, *b = g + LN_C;
    assert_true(kernel_partials(LN_N, 2 * LN_C) <= (int64_t)ARRAY_LEN(partial));
    weights_f32(dy, LN_NC);
    layernorm_fwd(k, y, mean, rstd, p, g, b, LN_N, LN_C);
    layernorm_bwd(k, grad, grad + LN_NC, grad + LN_NC + LN_C, dy, p, g, mean, rstd,
                  partial, LN_N, LN_C);
    return weighted_sum(y, LN_NC);
}

/* -- GELU: x (3, 7), b (7) ----------------------------------------------------------- */

static double gelu_value(const double *p, const struct dropout *drop)
{
    (void)drop;
    double sum = 0;
    for (int i = 0; i < LN_NC; i++) {
        double z = p[i] + p[LN_NC + i % LN_C];
        sum += weight(i) * 0.5 * z * (1 + erf(z / sqrt(2.0)));
    }
    return sum;
}

static double gelu_tanh_value(const double *p, const struct dropout *drop)
{
    (void)drop;
    double sum = 0;
    for (int i = 0; i < LN_NC; i++) {
        double z = p[i] + p[LN_NC + i % LN_C];
        double inner = sqrt(2.0 / M_PI) * (z + 0.044715 * pow(z, 3));
        sum += weight(i) * 0.5 * z * (1 + tanh(inner));
    }
    return sum;
}

static double activation_kernels(const struct kernels *k, enum activation act,
                                 const float *p, float *grad)
{
    float y[LN_NC], dy[LN_NC], partial[LN_C];
    assert_true(kernel_partials(LN_N, LN_C) <= (int64_t)ARRAY_LEN(partial));
    weights_f32(dy, LN_NC);
    gelu_bwd(k, act, grad, y, grad + LN_NC, dy, p, p + LN_NC, partial, LN_N, LN_C);
    return weighted_sum(y, LN_NC);
}

static double gelu_kernels(const struct kernels *k, const float *p, float *grad,
                           const struct dropout *drop)
{
    (void)drop;
    return activation_kernels(k, ACTIVATION_GELU, p, grad);
}

static double gelu_tanh_kernels(const struct kernels *k, const float *p, float *grad,
                                const struct dropout *drop)
{
    (void)drop;
    return activation_kernels(k, ACTIVATION_GELU_TANH, p, grad);
}

/* -- attention: qkv (2, 5, 3, 2, 3) -------------------------------------------------- */

enum { AT_B = 2, AT_S = 5, AT_A = 2, AT_D = 3, AT_H = AT_A * AT_D };
enum { AT_QKV = AT_B * AT_S * 3 * AT_H, AT_OUT = AT_B * AT_S * AT_H };

/* Row s of q (which = 0), k (1) or v (2) of head h of sample b. */
static const double *qkv_row(const double *qkv, int b, int s, int which, int h)
{
    return qkv + ((b * AT_S + s) * 3 + which) * AT_H + h * AT_D;
}

static double score(const double *qkv, int b, int h, int q, int key)
{
    const double *q_row = qkv_row(qkv, b, q, 0, h), *k_row = qkv_row(qkv, b, key, 1, h);
    double sum = 0;
    for (int d = 0; d < AT_D; d++)
        sum += q_row[d] * k_row[d];
    return sum / sqrt(AT_D);
}

/* The weighted sum of one row of out. */
static double attention_row(const double *qkv, const struct dropout *drop, int b, int h,
                            int q)
{
    double total = 0, sum = 0;
    for (int key = 0; key <= q; key++)
        total += exp(score(qkv, b, h, q, key));
    for (int key = 0; key <= q; key++) {
        double p = exp(score(qkv, b, h, q, key)) / total;
        double factor = (double)dropout_factor(drop, b, h * AT_S + q, AT_S, key);
        const double *v = qkv_row(qkv, b, key, 2, h);
        for (int d = 0; d < AT_D; d++)
            sum += weight(((b * AT_S + q) * AT_A + h) * AT_D + d) * factor * p * v[d];
    }
    return sum;
}

static double attention_value(const double *qkv, const struct dropout *drop)
{
    double sum = 0;
    for (int b = 0; b < AT_B; b++)
        for (int h = 0; h < AT_A; h++)
            for (int q = 0; q < AT_S; q++)
                sum += attention_row(qkv, drop, b, h, q);
    return sum;
}

static double attention_kernels(const struct kernels *k, const float *qkv, float *grad,
                                const struct dropout *drop)
{
    float out[AT_OUT], dout[AT_OUT];
    float lse[AT_B * AT_A * AT_S], delta[AT_B * AT_A * AT_S];
    struct attention_bwd at = {.fwd = {.B = AT_B,
                                       .S = AT_S,
                                       .A = AT_A,
                                       .D = AT_D,
                                       .out = out,
                                       .lse = lse,
                                       .drop = *drop},
                               .dout = dout,
                               .delta = delta};
    weights_f32(dout, AT_OUT);
    attention_fwd(k, at.fwd, qkv);
    attention_bwd(k, at, qkv, grad);
    return weighted_sum(out, AT_OUT);
}

/* -- cross-entropy: logits (4, 9), one target in no column --------------------------- */

enum { XE_R = 4, XE_V = 9 };
static const int32_t xent_targets[XE_R] = {3, 0, -1, 8};

static double xent_value(const double *logits, const struct dropout *drop)
{
    (void)drop;
    double sum = 0;
    for (int r = 0; r < XE_R; r++) {
        const double *row = logits + r * XE_V;
        double total = 0;
        for (int c = 0; c < XE_V; c++)
            total += exp(row[c]);
        double target = xent_targets[r] < 0 ? 0 : row[xent_targets[r]];
        sum += weight(r) * (log(total) - target);
    }
    return sum;
}

static double xent_kernels(const struct kernels *k, const float *logits, float *grad,
                           const struct dropout *drop)
{
    (void)drop;
    float max[XE_R], total[XE_R], target[XE_R], w[XE_R];
    double sum = 0;
    weights_f32(w, XE_R);
    k->copy(stream_of(k), &(struct floats){grad, logits, XE_R * XE_V});
    xent_max(k, max, grad, XE_R, XE_V);
    xent_exp(k, total, target, grad, max, xent_targets, XE_R, XE_V);
    for (int r = 0; r < XE_R; r++) {
        double shift = xent_targets[r] < 0 ? (double)max[r] : 0; // no target to cancel it
        sum += weight(r) * (log((double)total[r]) + shift - (double)target[r]);
    }
    xent_grad(k, grad, total, xent_targets, w, XE_R, XE_V);
    return sum;
}

/* -- embedding: wte (4, 6), wpe (5, 6), tokens (2, 3) -------------------------------- */

enum { EM_V = 4, EM_P = 5, EM_B = 2, EM_S = 3, EM_H = 6, EM_N = EM_B * EM_S };
static const int32_t tokens[EM_N] = {2, 0, 2, 3, 2, 0};
static const int32_t positions[EM_N] = {0, 1, 2, 1, 4, 2};

static double embedding_value(const double *p, const struct dropout *drop)
{
    double sum = 0;
    for (int i = 0; i < EM_N * EM_H; i++) {
        int n = i / EM_H, c = i % EM_H;
        double x = p[tokens[n] * EM_H + c] + p[(EM_V + positions[n]) * EM_H + c];
        double factor = (double)dropout_factor(drop, n / EM_S, n % EM_S, EM_H, c);
        sum += weight(i) * factor * x;
    }
    return sum;
}

static double embedding_kernels(const struct kernels *k, const float *p, float *grad,
                                const struct dropout *drop)
{
    float x[EM_N * EM_H], dy[EM_N * EM_H], scratch[EM_N * EM_H];
    weights_f32(dy, EM_N * EM_H);
    embedding_fwd(k, x, p, p + EM_V * EM_H, tokens, positions, EM_B, EM_S, EM_H);
    k->dropout_fwd(stream_of(k), &(struct dropped){x, x, EM_B, EM_S, EM_H, *drop});
    k->dropout_bwd(stream_of(k), &(struct dropped){scratch, dy, EM_B, EM_S, EM_H, *drop});
    embedding_bwd(k, grad, grad + EM_V * EM_H, scratch, tokens, positions, EM_B, EM_S,
                  EM_H);
    return weighted_sum(x, EM_N * EM_H);
}

/* -- bias, dropout, residual: res (2, 3, 6), x (2, 3, 6), b (6) ---------------------- */

enum { RE_NC = EM_N * EM_H };

static double residual_value(const double *p, const struct dropout *drop)
{
    double sum = 0;
    for (int i = 0; i < RE_NC; i++) {
        int n = i / EM_H, c = i % EM_H;
        double factor = (double)dropout_factor(drop, n / EM_S, n % EM_S, EM_H, c);
        sum += weight(i) * (p[i] + factor * (p[RE_NC + i] + p[2 * RE_NC + c]));
    }
    return sum;
}

static double residual_kernels(const struct kernels *k, const float *p, float *grad,
                               const struct dropout *drop)
{
    float y[RE_NC], dy[RE_NC], scratch[RE_NC], partial[EM_H];
    assert_true(kernel_partials(EM_N, EM_H) <= (int64_t)ARRAY_LEN(partial));
    weights_f32(dy, RE_NC);
    bias_dropout_residual(k, y, p, p + RE_NC, p + 2 * RE_NC, EM_B, EM_S, EM_H, drop);
    k->dropout_bwd(stream_of(k), &(struct dropped){scratch, dy, EM_B, EM_S, EM_H, *drop});
    k->copy(stream_of(k), &(struct floats){grad, dy, RE_NC});
    k->copy(stream_of(k), &(struct floats){grad + RE_NC, scratch, RE_NC});
    k->bias_grad(stream_of(k),
                 &(struct bias_grad){grad + 2 * RE_NC, scratch, partial, EM_N, EM_H});
    return weighted_sum(y, RE_NC);
}

/* -- the tests ----------------------------------------------------------------------- */

static const struct problem problems[] = {
    {"layernorm", LN_NC + 2 * LN_C, 0, layernorm_value, layernorm_kernels},
    {"gelu", LN_NC + LN_C, 0, gelu_value, gelu_kernels},
    {"gelu by tanh", LN_NC + LN_C, 0, gelu_tanh_value, gelu_tanh_kernels},
    {"attention", AT_QKV, 0, attention_value, attention_kernels},
    {"attention with dropout", AT_QKV, 0.5, attention_value, attention_kernels},
    {"cross-entropy", XE_R *XE_V, 0, xent_value, xent_kernels},
    {"embedding", (EM_V + EM_P) * EM_H, 0, embedding_value, embedding_kernels},
    {"embedding with dropout", (EM_V + EM_P) * EM_H, 0.5, embedding_value,
     embedding_kernels},
    {"residual", 2 * RE_NC + EM_H, 0, residual_value, residual_kernels},
    {"residual with dropout", 2 * RE_NC + EM_H, 0.5, residual_value, residual_kernels},
};

static double central_difference(const struct problem *pr, double *x, int64_t i,
                                 const struct dropout *drop)
{
    double at = x[i];
    x[i] = at + DIFFERENCE;
    double above = pr->value(x, drop);
    x[i] = at - DIFFERENCE;
    double below = pr->value(x, drop);
    x[i] = at;
    return (above - below) / (2 * DIFFERENCE);
}

/* Allowed: 2e-6 of an element's size plus 2e-6, the typical gradient being 1. */
static void check_problem(const struct problem *pr, const struct kernels *k)
{
    double x[MAX_PARAMS];
    float x_f32[MAX_PARAMS], grad[MAX_PARAMS] = {0};
    struct rng r = {77};
    struct dropout drop = pr->rate > 0
                              ? dropout_init(pr->rate, 5, PHILOX_DROP_MLP_OUT, 1, 9, 2)
                              : dropout_none();
    assert_in_range(pr->n_params, 1, MAX_PARAMS);
    floats_bell(x_f32, pr->n_params, &r);
    for (int64_t i = 0; i < pr->n_params; i++)
        x[i] = (double)x_f32[i];

    double want = pr->value(x, &drop), got = pr->kernels(k, x_f32, grad, &drop);
    if (!(fabs(got - want) <= 2e-6 * (1 + fabs(want))))
        fail_msg("%s of %s: value %.9g, not %.9g", pr->name, k->name, got, want);
    for (int64_t i = 0; i < pr->n_params; i++) {
        double slope = central_difference(pr, x, i, &drop);
        if (!(fabs((double)grad[i] - slope) <= 2e-6 * (1 + fabs(slope))))
            fail_msg("%s of %s: gradient %lld is %.9g, the slope is %.9g", pr->name,
                     k->name, (long long)i, (double)grad[i], slope);
    }
}

static void test_kernels__gradients_are_the_slopes_of_the_function(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (size_t p = 0; p < ARRAY_LEN(problems); p++)
        for (int i = 0; i < t.n; i++)
            check_problem(&problems[p], t.at[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels__gradients_are_the_slopes_of_the_function),
    };
    kernels_set_threads(1); // small calls on a busy machine wait long for a second
    return cmocka_run_group_tests(tests, NULL, NULL);
}
