/*
 * Biases and GELU: one pass over memory each. Threads share rows and blocks of columns; a
 * sum over rows goes through partial sums of fixed chunks of rows.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <string.h>

#define COLUMNS 512 // a thread takes at a time
#define FEW 8192    // elements that one thread computes sooner than it wakes another

void K(add_partials)(struct stream *s, float *out, const float *partial, int64_t N,
                     int64_t stride, int64_t C)
{
    int64_t n_chunks = kernel_partials(N, 1);
#pragma omp parallel for schedule(static) if (n_chunks * C > FEW)
    for (int64_t first = 0; first < C; first += COLUMNS) {
        int64_t end = i64_min(C, first + COLUMNS);
        for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
            const float *p = partial + chunk * stride;
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

void K(bias_grad)(struct stream *s, float *db, const void *dy, float *partial, int64_t N,
                  int64_t C)
{
    int64_t n_chunks = kernel_partials(N, 1);
#pragma omp parallel for collapse(2) schedule(static) if (N * C > FEW)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++)
        for (int64_t c = 0; c < C; c += COLUMNS) {
            float *part = partial + chunk * C + c;
            int64_t end = i64_min(N, (chunk + 1) * KERNEL_ROW_CHUNK);
            int64_t here = i64_min(COLUMNS, C - c);
            memset(part, 0, (size_t)here * sizeof *part);
            for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < end; n++)
                add_typed_row(part, dy, n * C + c, here, s->dev->dtype);
        }
    K(add_partials)(s, db, partial, N, C, C);
}

/* -- GELU ---------------------------------------------------------------------------- */

/* gelu(x) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form with one
 * exponential. */
#define GELU_A 0.7978845608028654F
#define GELU_B 0.044715F
#define GELU_STEP 4 // vectors at a time

/* e := exp(-2u); the gate is 1 / (1 + that), and one minus the gate is that times the
 * gate. */
INLINE void gelu_exp(vec *e, const vec *t, const int n)
{
    for (int i = 0; i < n; i++)
        e[i] = -2.0F * GELU_A * vec_fused(GELU_B * t[i] * t[i], t[i], t[i]);
    vec_exp(e, n);
}

/* `n` vectors, of which the last has `last` elements, at element `at` in column c. */
INLINE void gelu_step(const struct activation_fwd *a, int64_t at, int64_t c, const int n,
                      int64_t last, enum dtype dtype)
{
    vec t[EXP_MOST], e[EXP_MOST];
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        t[i] =
            vec_load(a->x, at + j, here, dtype) + vec_load(a->b, c + j, here, DTYPE_F32);
    }
    gelu_exp(e, t, n);
    for (int i = 0; i < n; i++)
        e[i] = 1.0F / (1.0F + e[i]);
    for (int i = 0; i < n; i++)
        t[i] *= e[i];
    for (int i = 0; i < n; i++)
        vec_store(a->y, at + (int64_t)i * VEC, t[i], i < n - 1 ? VEC : last, dtype);
}

/* Columns [c, end) of row n. What is computed with is copied: a store may be to anything,
 * as far as the compiler knows. */
INLINE void gelu_run(const struct activation_fwd *act, int64_t n, int64_t c, int64_t end,
                     enum dtype dtype)
{
    struct activation_fwd a = *act;
    int64_t row = n * a.C;
    for (; c + GELU_STEP * VEC <= end; c += GELU_STEP * VEC)
        gelu_step(&a, row + c, c, GELU_STEP, VEC, dtype);
    for (; c + VEC <= end; c += VEC)
        gelu_step(&a, row + c, c, 1, VEC, dtype);
    if (c < end)
        gelu_step(&a, row + c, c, 1, end - c, dtype);
}

void K(activation_run)(const struct activation_fwd *a, int64_t n, int64_t c, int64_t end,
                       enum dtype dtype)
{
    CHECK(a->act == ACTIVATION_GELU, "activation %d", (int)a->act);
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
                          int64_t c, const int n, int64_t last, enum dtype dtype)
{
    vec t[EXP_MOST], e[EXP_MOST];
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        t[i] =
            vec_load(a->x, at + j, here, dtype) + vec_load(a->b, c + j, here, DTYPE_F32);
    }
    gelu_exp(e, t, n);
    for (int i = 0; i < n; i++) {
        int64_t here = i < n - 1 ? VEC : last, j = (int64_t)i * VEC;
        vec gate = 1.0F / (1.0F + e[i]);
        vec du = GELU_A * vec_fused(3.0F * GELU_B * t[i], t[i], vec_of(1.0F));
        vec slope = vec_fused(2.0F * t[i] * gate * (e[i] * gate), du, gate);
        vec d = vec_load(a->dy, at + j, here, dtype) * slope;
        vec sum = vec_load(db, c + j, here, DTYPE_F32) + vec_rounded(d, dtype);
        if (a->y)
            vec_store(a->y, at + j, t[i] * gate, here, dtype);
        vec_store(a->dx, at + j, d, here, dtype);
        vec_store(db, c + j, sum, here, DTYPE_F32);
    }
}

/* Columns [first, end) of a chunk's rows; db: its partial sums. */
INLINE void gelu_chunk_bwd(const struct activation_bwd *act, int64_t chunk, int64_t first,
                           int64_t end, enum dtype dtype)
{
    struct activation_bwd a = *act;
    float *db = a.partial + chunk * a.C;
    int64_t last = i64_min(a.N, (chunk + 1) * KERNEL_ROW_CHUNK);
    memset(db + first, 0, (size_t)(end - first) * sizeof *db);
    for (int64_t n = chunk * KERNEL_ROW_CHUNK; n < last; n++) {
        int64_t row = n * a.C, c = first;
        for (; c + GELU_STEP * VEC <= end; c += GELU_STEP * VEC)
            gelu_step_bwd(&a, db, row + c, c, GELU_STEP, VEC, dtype);
        for (; c + VEC <= end; c += VEC)
            gelu_step_bwd(&a, db, row + c, c, 1, VEC, dtype);
        if (c < end)
            gelu_step_bwd(&a, db, row + c, c, 1, end - c, dtype);
    }
}

static void gelu_typed_chunk_bwd(const struct activation_bwd *a, int64_t chunk,
                                 int64_t first, int64_t end, enum dtype dtype)
{
    TYPED(dtype, gelu_chunk_bwd, a, chunk, first, end);
}

void K(activation_bwd)(struct stream *s, const struct activation_bwd *a)
{
    int64_t C = a->C, n_chunks = kernel_partials(a->N, 1);
    CHECK(a->act == ACTIVATION_GELU, "activation %d", (int)a->act);
#pragma omp parallel for collapse(2) schedule(static) if (a->N * C > FEW)
    for (int64_t chunk = 0; chunk < n_chunks; chunk++)
        for (int64_t c = 0; c < C; c += COLUMNS)
            gelu_typed_chunk_bwd(a, chunk, c, i64_min(C, c + COLUMNS), s->dev->dtype);
    if (a->db)
        K(add_partials)(s, a->db, a->partial, a->N, C, C);
}
