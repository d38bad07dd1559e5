/*
 * Biases and GELU: one pass over memory each. Threads share rows and blocks of columns; a
 * sum over rows goes through partial sums of fixed chunks of rows.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <string.h>

#define COLUMNS 512 // a thread takes at a time
#define FEW 8192    // elements that one thread computes sooner than it wakes another

void K(add_partials)(struct stream *s, const struct add_partials *a)
{
    float *out = a->out;
    int64_t n_chunks = kernel_partials(a->N, 1), C = a->C;
#pragma omp parallel for schedule(static) if (n_chunks * C > FEW)
    for (int64_t first = 0; first < C; first += COLUMNS) {
        int64_t end = i64_min(C, first + COLUMNS);
        for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
            const float *p = a->partial + chunk * a->stride;
            for (int64_t c = first; c < end; c++)
                out[c] += p[c];
        }
    }
}

/* -- bias ---------------------------------------------------------------------------- */

/* sum[c] += the elements of a row that begins at element `at`. */
INLINE void add_row(float *sum, const void *x, int64_t at, int64_t C, enum dtype dtype)
{
    int64_t c = 0;
    for (; c + VEC <= C; c += VEC)
        *(vec *)(sum + c) += vec_load(x, at + c, VEC, dtype);
    if (c < C) {
        vec rest = vec_load(sum, c, C - c, DTYPE_F32);
        vec_store(sum, c, rest + vec_load(x, at + c, C - c, dtype), C - c, DTYPE_F32);
    }
}

static void add_typed_row(float *sum, const void *x, int64_t at, int64_t C,
                          enum dtype dtype)
{
    TYPED(dtype, add_row, sum, x, at, C);
}

void K(bias_grad)(struct stream *s, const struct bias_grad *a)
{
    int64_t N = a->N, C = a->C, n_chunks = kernel_partials(N, 1);
#pragma omp parallel for collapse(2) schedule(static) if (N * C > FEW)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++)
        for (int64_t c = 0; c < C; c += COLUMNS) {
            float *part = a->partial + chunk * C + c;
            int64_t end = i64_min(N, (chunk + 1) * KERNEL_ROW_CHUNK);
            int64_t here = i64_min(COLUMNS, C - c);
            memset(part, 0, (size_t)here * sizeof *part);
            for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < end; n++)
                add_typed_row(part, a->dy, n * C + c, here, s->dev->dtype);
        }
    K(add_partials)(s, &(struct add_partials){a->db, a->partial, N, C, C});
}

/* -- GELU ---------------------------------------------------------------------------- */

/*
 * Both forms are gelu(t) = t * gate(t) with one exponential e. The form is a constant
 * where these functions are inlined.
 *
 * tanh form: gate = sigmoid(2u), u = sqrt(2/pi) (t + 0.044715 t^3), e = exp(-2u); one
 * minus the gate is e times the gate.
 *
 * Exact form: gate = Phi(t), e = exp(-t^2 / 2). Phi(-a) = e S(u) / (a + 3) for a >= 0,
 * with u = (a - 3) / (a + 3) and a polynomial S, relative error 4.2e-8; so Phi has its
 * relative accuracy in the negative tail, too. gelu(t) is within 5e-7 of its size.
 */
#define GELU_A 0.7978845608028654F
#define GELU_B 0.044715F
#define GELU_STEP 4 // vectors at a time

#define PHI_MOST 14.0F // from here on e is 0
#define PHI_SHIFT 3.0F
#define PHI_DENSITY 0.3989422804014327F // 1 / sqrt(2 pi)

/* gate := sigmoid(2u), e := exp(-2u). */
INLINE void gate_by_tanh(vec *gate, vec *e, const vec *t, const int n)
{
    for (int i = 0; i < n; i++)
        e[i] = -2.0F * GELU_A * vec_fused(GELU_B * t[i] * t[i], t[i], t[i]);
    vec_exp(e, n);
    for (int i = 0; i < n; i++)
        gate[i] = 1.0F / (1.0F + e[i]);
}

/* gate := Phi(t), e := exp(-t^2 / 2). The rounding error of the square is corrected. */
INLINE void gate_exact(vec *gate, vec *e, const vec *t, const int n)
{
    const float factor[] = {-9.0902945e-4F, 1.0771200e-3F, 6.9278972e-3F,  -1.0479680e-2F,
                            -4.7256906e-2F, 2.3001929e-1F, -5.0933224e-1F, 7.2908366e-1F};
    vec a[EXP_MOST], inverse[EXP_MOST], u[EXP_MOST], tail[EXP_MOST];
    for (int i = 0; i < n; i++) {
        a[i] = vec_min((vec)((uvec)t[i] & 0x7FFFFFFFu), vec_of(PHI_MOST));
        inverse[i] = 1.0F / (a[i] + PHI_SHIFT);
        u[i] = vec_fused(vec_of(-2.0F * PHI_SHIFT), inverse[i], vec_of(1.0F));
        e[i] = -0.5F * (a[i] * a[i]);
        tail[i] = vec_of(-2.7063297e-4F);
    }
    for (size_t k = 0; k < ARRAY_LEN(factor); k++)
        for (int i = 0; i < n; i++)
            tail[i] = vec_fused(tail[i], u[i], vec_of(factor[k]));
    vec_exp(e, n);
    for (int i = 0; i < n; i++) {
        vec error = vec_fused(a[i], a[i], -(a[i] * a[i]));
        e[i] = vec_fused(-0.5F * error, e[i], e[i]);
        tail[i] = tail[i] * inverse[i] * e[i];
        gate[i] =
            (vec)uvec_select((uvec)(t[i] < 0.0F), (uvec)tail[i], (uvec)(1.0F - tail[i]));
    }
}

INLINE void gelu_gate(vec *gate, vec *e, const vec *t, const int n,
                      const enum activation act)
{
    if (act == ACTIVATION_GELU)
        gate_exact(gate, e, t, n);
    else
        gate_by_tanh(gate, e, t, n);
}

INLINE vec gelu_slope(vec t, vec gate, vec e, const enum activation act)
{
    if (act == ACTIVATION_GELU)
        return vec_fused(PHI_DENSITY * t, e, gate);
    vec du = GELU_A * vec_fused(3.0F * GELU_B * t, t, vec_of(1.0F));
    return vec_fused(2.0F * t * gate * (e * gate), du, gate);
}

static void check_kind(enum activation act)
{
    CHECK(act == ACTIVATION_GELU || act == ACTIVATION_GELU_TANH, "activation %d",
          (int)act);
}

/* `n` vectors, of which the last has `last` elements, at element `at` in column c. */
INLINE void gelu_step(const struct activation_fwd *a, int64_t at, int64_t c, const int n,
                      int64_t last, const enum activation act, enum dtype dtype)
{
    vec t[EXP_MOST], e[EXP_MOST], gate[EXP_MOST];
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        t[i] =
            vec_load(a->x, at + j, here, dtype) + vec_load(a->b, c + j, here, DTYPE_F32);
    }
    gelu_gate(gate, e, t, n, act);
    for (int i = 0; i < n; i++)
        t[i] *= gate[i];
    for (int i = 0; i < n; i++)
        vec_store(a->y, at + (int64_t)i * VEC, t[i], i < n - 1 ? VEC : last, dtype);
}

/* Columns [c, end) of row n. What is computed with is copied: a store may be to anything,
 * as far as the compiler knows. */
INLINE void gelu_columns(const struct activation_fwd *pass, int64_t n, int64_t c,
                         int64_t end, const enum activation act, enum dtype dtype)
{
    struct activation_fwd a = *pass;
    int64_t row = n * a.C;
    for (; c + GELU_STEP * VEC <= end; c += GELU_STEP * VEC)
        gelu_step(&a, row + c, c, GELU_STEP, VEC, act, dtype);
    for (; c + VEC <= end; c += VEC)
        gelu_step(&a, row + c, c, 1, VEC, act, dtype);
    if (c < end)
        gelu_step(&a, row + c, c, 1, end - c, act, dtype);
}

INLINE void gelu_run(const struct activation_fwd *a, int64_t n, int64_t c, int64_t end,
                     enum dtype dtype)
{
    if (a->act == ACTIVATION_GELU)
        gelu_columns(a, n, c, end, ACTIVATION_GELU, dtype);
    else
        gelu_columns(a, n, c, end, ACTIVATION_GELU_TANH, dtype);
}

void K(activation_run)(const struct activation_fwd *a, int64_t n, int64_t c, int64_t end,
                       enum dtype dtype)
{
    check_kind(a->act);
    TYPED(dtype, gelu_run, a, n, c, end);
}

void K(activation_fwd)(struct stream *s, const struct activation_fwd *a)
{
    int64_t C = a->C;
#pragma omp parallel for collapse(2) schedule(static) if (a->N * C > FEW)
    for (int64_t n = 0; n < a->N; n++)
        for (int64_t c = 0; c < C; c += COLUMNS)
            K(activation_run)(a, n, c, i64_min(C, c + COLUMNS), s->dev->dtype);
}

INLINE void gelu_step_bwd(const struct activation_bwd *a, float *db, int64_t at,
                          int64_t c, const int n, int64_t last, const enum activation act,
                          enum dtype dtype)
{
    vec t[EXP_MOST], e[EXP_MOST], gate[EXP_MOST];
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        t[i] =
            vec_load(a->x, at + j, here, dtype) + vec_load(a->b, c + j, here, DTYPE_F32);
    }
    gelu_gate(gate, e, t, n, act);
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        vec slope = gelu_slope(t[i], gate[i], e[i], act);
        vec d = vec_load(a->dy, at + j, here, dtype) * slope;
        vec sum = vec_load(db, c + j, here, DTYPE_F32) + vec_rounded(d, dtype);
        if (a->y)
            vec_store(a->y, at + j, t[i] * gate[i], here, dtype);
        vec_store(a->dx, at + j, d, here, dtype);
        vec_store(db, c + j, sum, here, DTYPE_F32);
    }
}

/* Columns [first, end) of a chunk's rows; db: its partial sums. */
INLINE void gelu_columns_bwd(const struct activation_bwd *pass, int64_t chunk,
                             int64_t first, int64_t end, const enum activation act,
                             enum dtype dtype)
{
    struct activation_bwd a = *pass;
    float *db = a.partial + chunk * a.C;
    int64_t last = i64_min(a.N, (chunk + 1) * KERNEL_ROW_CHUNK);
    memset(db + first, 0, (size_t)(end - first) * sizeof *db);
    for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < last; n++) {
        int64_t row = n * a.C, c = first;
        for (; c + GELU_STEP * VEC <= end; c += GELU_STEP * VEC)
            gelu_step_bwd(&a, db, row + c, c, GELU_STEP, VEC, act, dtype);
        for (; c + VEC <= end; c += VEC)
            gelu_step_bwd(&a, db, row + c, c, 1, VEC, act, dtype);
        if (c < end)
            gelu_step_bwd(&a, db, row + c, c, 1, end - c, act, dtype);
    }
}

INLINE void gelu_chunk_bwd(const struct activation_bwd *a, int64_t chunk, int64_t first,
                           int64_t end, enum dtype dtype)
{
    if (a->act == ACTIVATION_GELU)
        gelu_columns_bwd(a, chunk, first, end, ACTIVATION_GELU, dtype);
    else
        gelu_columns_bwd(a, chunk, first, end, ACTIVATION_GELU_TANH, dtype);
}

static void gelu_typed_chunk_bwd(const struct activation_bwd *a, int64_t chunk,
                                 int64_t first, int64_t end, enum dtype dtype)
{
    TYPED(dtype, gelu_chunk_bwd, a, chunk, first, end);
}

void K(activation_bwd)(struct stream *s, const struct activation_bwd *a)
{
    int64_t C = a->C, n_chunks = kernel_partials(a->N, 1);
    check_kind(a->act);
#pragma omp parallel for collapse(2) schedule(static) if (a->N * C > FEW)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++)
        for (int64_t c = 0; c < C; c += COLUMNS)
            gelu_typed_chunk_bwd(a, chunk, c, i64_min(C, c + COLUMNS), s->dev->dtype);
    if (a->db)
        K(add_partials)(s, &(struct add_partials){a->db, a->partial, a->N, C, C});
}
