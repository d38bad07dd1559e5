/*
 * Biases, GELU, dropout, residuals: one pass over memory each. Threads share rows; a sum
 * over rows goes through partial sums of fixed chunks of rows.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_convert.h"
#include "device/device.h"

#include <string.h>

void K(add_partials)(struct stream *s, float *out, const float *partial, int64_t N,
                     int64_t stride, int64_t C)
{
    for (int64_t chunk = 0; chunk < kernel_partials(N, 1); chunk++) {
        const float *p = partial + chunk * stride;
        for (int64_t c = 0; c < C; c++)
            out[c] += p[c];
    }
}

/* -- bias ---------------------------------------------------------------------------- */

static void add_row(float *restrict x, const float *restrict b, int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        x[c] += b[c];
}

void K(bias_add)(struct stream *s, float *x, const float *b, int64_t N, int64_t C)
{
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        add_row(x + n * C, b, C);
}

void K(bias_grad)(struct stream *s, float *db, const float *dy, float *partial, int64_t N,
                  int64_t C)
{
    int64_t n_chunks = kernel_partials(N, 1);
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        float *part = partial + chunk * C;
        int64_t end = i64_min(N, (chunk + 1) * KERNEL_ROW_CHUNK);
        memset(part, 0, (size_t)C * sizeof *part);
        for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < end; n++)
            add_row(part, dy + n * C, C);
    }
    K(add_partials)(s, db, partial, N, C, C);
}

/* -- GELU ---------------------------------------------------------------------------- */

/* gelu(x) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form with one
 * exponential. */
#define GELU_A 0.7978845608028654F
#define GELU_B 0.044715F

/* exp(-2u); the gate is 1 / (1 + that), and one minus the gate is that times the gate. */
static inline float gelu_exp(float x)
{
    return fast_exp(-2.0F * GELU_A * fused(GELU_B * x * x, x, x));
}

static void gelu_row(float *y, const float *x, const float *restrict b, int64_t C)
{
    for (int64_t c = 0; c < C; c++) {
        float t = x[c] + b[c];
        y[c] = t * (1.0F / (1.0F + gelu_exp(t)));
    }
}

/* Elements [at, at + n) of x, or of what is stashed, widened. */
static const float *input_run(struct stream *s, const float *x, const void *stash,
                              int64_t at, int64_t n, float widened[CONVERT_RUN])
{
    if (x || s->dev->dtype == DTYPE_F32)
        return (x ? x : (const float *)stash) + at;
    widen(widened, (const uint16_t *)stash + at, s->dev->dtype, n);
    return widened;
}

void K(activation_fwd)(struct stream *s, const struct activation_fwd *a)
{
    int64_t C = a->C;
    CHECK(a->act == ACTIVATION_GELU, "activation %d", (int)a->act);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < a->N; n++)
        for (int64_t c = 0; c < C; c += CONVERT_RUN) {
            float widened[CONVERT_RUN];
            int64_t at = n * C + c, run = i64_min(CONVERT_RUN, C - c);
            gelu_row(a->y + at, input_run(s, a->x, a->stash, at, run, widened), a->b + c,
                     run);
        }
}

static void gelu_row_bwd(float *dx, float *y, float *restrict db, const float *dy,
                         const float *x, const float *restrict b, int64_t C)
{
    for (int64_t c = 0; c < C; c++) {
        float t = x[c] + b[c];
        float e = gelu_exp(t);
        float gate = 1.0F / (1.0F + e);
        float du = GELU_A * fused(3.0F * GELU_B * t, t, 1.0F);
        float d = dy[c] * fused(2.0F * t * gate * (e * gate), du, gate);
        y[c] = t * gate;
        dx[c] = d;
        db[c] += d;
    }
}

void K(activation_bwd)(struct stream *s, const struct activation_bwd *a)
{
    int64_t N = a->N, C = a->C, n_chunks = kernel_partials(N, 1);
    CHECK(a->act == ACTIVATION_GELU, "activation %d", (int)a->act);
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        float *part = a->partial + chunk * C;
        int64_t end = i64_min(N, (chunk + 1) * KERNEL_ROW_CHUNK);
        memset(part, 0, (size_t)C * sizeof *part);
        for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < end; n++)
            for (int64_t c = 0; c < C; c += CONVERT_RUN) {
                float widened[CONVERT_RUN], unwanted[CONVERT_RUN];
                int64_t at = n * C + c, run = i64_min(CONVERT_RUN, C - c);
                gelu_row_bwd(a->dx + at, a->y ? a->y + at : unwanted, part + c,
                             a->dy + at, input_run(s, a->x, a->stash, at, run, widened),
                             a->b + c, run);
            }
    }
    if (a->db)
        K(add_partials)(s, a->db, a->partial, N, C, C);
}

/* -- dropout ------------------------------------------------------------------------- */

/* The factors that the low and the high halves of DROPOUT_LANES words decide; without a
 * branch, which would be guessed wrong once in 1 / rate elements. */
static void decide(float *restrict factor, const uint32_t *restrict words,
                   const struct dropout *drop)
{
    int32_t threshold = (int32_t)drop->threshold;
    float *restrict high = factor + DROPOUT_LANES;
    for (int j = 0; j < DROPOUT_LANES; j++)
        factor[j] = (float)((int32_t)(words[j] & 0xFFFF) >= threshold) * drop->scale;
    for (int j = 0; j < DROPOUT_LANES; j++)
        high[j] = (float)((int32_t)(words[j] >> 16) >= threshold) * drop->scale;
}

/* Sixteen Philox blocks side by side, so that the compiler uses whole vectors. */
void K(dropout_group)(float factor[DROPOUT_GROUP], const struct dropout *drop,
                      uint32_t sample, uint64_t group)
{
    uint32_t c0[DROPOUT_LANES], c1[DROPOUT_LANES], c2[DROPOUT_LANES], c3[DROPOUT_LANES];
    uint32_t k0 = drop->key.k[0], k1 = drop->key.k[1];
    for (uint32_t j = 0; j < DROPOUT_LANES; j++) {
        c0[j] = (uint32_t)group * DROPOUT_LANES + j;
        c1[j] = sample;
        c2[j] = drop->step;
        c3[j] = drop->key.seed_high;
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < DROPOUT_LANES; j++) {
            uint64_t p0 = (uint64_t)PHILOX_M0 * c0[j];
            uint64_t p1 = (uint64_t)PHILOX_M1 * c2[j];
            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c1[j] = (uint32_t)p1;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c3[j] = (uint32_t)p0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    decide(factor, c0, drop);
    decide(factor + 2 * DROPOUT_LANES, c1, drop);
    decide(factor + 4 * DROPOUT_LANES, c2, drop);
    decide(factor + 6 * DROPOUT_LANES, c3, drop);
}

static void residual_row(float *y, const float *res, const float *x,
                         const float *restrict b, int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        y[c] = res[c] + (x[c] + b[c]);
}

static void dropped_residual_row(float *y, const float *res, const float *x,
                                 const float *restrict b, const float *restrict factor,
                                 int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] = fused(x[c] + b[c], factor[c], res[c]);
}

void K(bias_dropout_residual)(struct stream *s, const struct residual *r)
{
    const struct dropout *drop = &r->drop;
    const float *res = r->res, *x = r->x, *b = r->b;
    float *y = r->y;
    int64_t S = r->S, C = r->C;
    int64_t n_groups = i64_round_up(C, DROPOUT_GROUP) / DROPOUT_GROUP;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < r->B * S; n++) {
        int64_t at = n * C;
        if (drop->threshold == 0) {
            residual_row(y + at, res + at, x + at, b, C);
            continue;
        }
        uint32_t sample = drop->first_sample + (uint32_t)(n / S);
        for (int64_t i = 0; i < n_groups; i++) {
            float factor[DROPOUT_GROUP];
            int64_t c = i * DROPOUT_GROUP;
            K(dropout_group)
            (factor, drop, sample, (uint64_t)((drop->first_row + n % S) * n_groups + i));
            dropped_residual_row(y + at + c, res + at + c, x + at + c, b + c, factor,
                                 i64_min(DROPOUT_GROUP, C - c));
        }
    }
}

const float *K(dropout_bwd)(struct stream *s, float *dx, const float *dy, int64_t B,
                            int64_t S, int64_t C, const struct dropout *drop)
{
    if (drop->threshold == 0)
        return dy;
    int64_t n_groups = i64_round_up(C, DROPOUT_GROUP) / DROPOUT_GROUP;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < B * S; n++) {
        uint32_t sample = drop->first_sample + (uint32_t)(n / S);
        for (int64_t i = 0; i < n_groups; i++) {
            float factor[DROPOUT_GROUP];
            int64_t at = n * C + i * DROPOUT_GROUP;
            int64_t end = i64_min(DROPOUT_GROUP, C - i * DROPOUT_GROUP);
            K(dropout_group)
            (factor, drop, sample, (uint64_t)((drop->first_row + n % S) * n_groups + i));
            for (int64_t c = 0; c < end; c++)
                dx[at + c] = dy[at + c] * factor[c];
        }
    }
    return dx;
}
