/*
 * Biases, GELU, dropout and residual sums: one pass over memory each. Blocks share rows
 * in x and columns in y.
 *
 * A sum over rows is one thread's for a few columns of a chunk of rows, top down, as on
 * the processor. Threads of dropout take one Philox block each and the eight elements
 * that it decides, so that every random bit is used; the sixteen threads of a group read
 * neighbouring elements.
 */
#include "device/gpu/gpu_math.h"

#define THREADS 256
#define RUN 4 // columns of a thread that sums over rows
#define COLUMN_THREADS 64

/* The first column of this thread in y, of `width` each. */
GPU_FN int64_t first_column(int width)
{
    return ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * width;
}

GPU_FN int64_t chunk_end(int64_t chunk, int64_t N)
{
    int64_t end = (chunk + 1) * KERNEL_ROW_CHUNK;
    return end < N ? end : N;
}

/* -- bias ---------------------------------------------------------------------------- */

#define AHEAD 4 // rows that are loaded before they are added

GPU_KERNEL(N(bias_grad), COLUMN_THREADS, struct gpu_bias_grad, a)
{
    int64_t c = first_column(RUN), chunk = blockIdx.x;
    int64_t n = chunk * KERNEL_ROW_CHUNK, end = chunk_end(chunk, a.N);
    float sum[RUN] = {0};
    for (; n + AHEAD <= end; n += AHEAD) {
        uint32_t raw[AHEAD][RUN];
        for (int r = 0; r < AHEAD; r++)
            load_raw(raw[r], RUN, a.dy, (n + r) * a.C + c, a.C - c, T_DTYPE);
        for (int r = 0; r < AHEAD; r++) {
            float dy[RUN];
            widen_raw(dy, raw[r], RUN, T_DTYPE);
            for (int i = 0; i < RUN; i++)
                sum[i] += dy[i];
        }
    }
    for (; n < end; n++) {
        float dy[RUN];
        load_run(dy, RUN, a.dy, n * a.C + c, a.C - c, T_DTYPE);
        for (int i = 0; i < RUN; i++)
            sum[i] += dy[i];
    }
    store_run(a.partial, chunk * a.C + c, sum, RUN, a.C - c, DTYPE_F32);
}

/* -- GELU ---------------------------------------------------------------------------- */

/* Both forms are gelu(t) = t * gate(t) with one exponential e. The formulas and the steps
 * are those of cpu_elementwise.c. */
#define GELU_A 0.7978845608028654F
#define GELU_B 0.044715F

#define PHI_MOST 14.0F // from here on e is 0
#define PHI_SHIFT 3.0F
#define PHI_DENSITY 0.3989422804014327F // 1 / sqrt(2 pi)

/* sigmoid(2u), u = sqrt(2/pi) (t + 0.044715 t^3); e := exp(-2u). */
GPU_FN float gate_by_tanh(float t, float *e)
{
    *e = gpu_exp(-2.0F * GELU_A * fmaf(GELU_B * t * t, t, t));
    return 1.0F / (1.0F + *e);
}

/* Phi(t); e := exp(-t^2 / 2). */
GPU_FN float gate_exact(float t, float *e)
{
    float size = fabsf(t), a = size < PHI_MOST ? size : PHI_MOST, square = a * a;
    float inverse = 1.0F / (a + PHI_SHIFT), u = fmaf(-2.0F * PHI_SHIFT, inverse, 1.0F);
    float tail = fmaf(-2.7063297e-4F, u, -9.0902945e-4F);
    tail = fmaf(tail, u, 1.0771200e-3F);
    tail = fmaf(tail, u, 6.9278972e-3F);
    tail = fmaf(tail, u, -1.0479680e-2F);
    tail = fmaf(tail, u, -4.7256906e-2F);
    tail = fmaf(tail, u, 2.3001929e-1F);
    tail = fmaf(tail, u, -5.0933224e-1F);
    tail = fmaf(tail, u, 7.2908366e-1F);
    float power = gpu_exp(-0.5F * square);
    *e = fmaf(-0.5F * fmaf(a, a, -square), power, power);
    tail = tail * inverse * *e;
    return t < 0.0F ? tail : 1.0F - tail;
}

GPU_FN float gelu_gate(float t, float *e, enum activation act)
{
    return act == ACTIVATION_GELU ? gate_exact(t, e) : gate_by_tanh(t, e);
}

GPU_FN float gelu_slope(float t, float gate, float e, enum activation act)
{
    if (act == ACTIVATION_GELU)
        return fmaf(PHI_DENSITY * t, e, gate);
    float du = GELU_A * fmaf(3.0F * GELU_B * t, t, 1.0F);
    return fmaf(2.0F * t * gate * (e * gate), du, gate);
}

GPU_KERNEL(N(gelu), THREADS, struct gpu_activation, a)
{
    int64_t c = first_column(WIDE);
    float b[WIDE], x[WIDE];
    load_run(b, WIDE, a.b, c, a.C - c, DTYPE_F32);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        load_run(x, WIDE, a.x, n * a.C + c, a.C - c, T_DTYPE);
        for (int i = 0; i < WIDE; i++) {
            float e, t = x[i] + b[i];
            x[i] = t * gelu_gate(t, &e, a.act);
        }
        store_run(a.y, n * a.C + c, x, WIDE, a.C - c, T_DTYPE);
    }
}

/* dy := the gradient by t = x + b, and x := gelu(t). */
GPU_FN void gelu_gradient(float *dy, float *x, const float *b, enum activation act)
{
    for (int i = 0; i < RUN; i++) {
        float e, t = x[i] + b[i], gate = gelu_gate(t, &e, act);
        dy[i] *= gelu_slope(t, gate, e, act);
        x[i] = t * gate;
    }
}

/* A row is loaded while the one before is computed. */
GPU_KERNEL(N(gelu_bwd), COLUMN_THREADS, struct gpu_activation_bwd, a)
{
    int64_t c = first_column(RUN), chunk = blockIdx.x;
    int64_t n = chunk * KERNEL_ROW_CHUNK, end = chunk_end(chunk, a.N);
    float sum[RUN] = {0}, b[RUN], dy[RUN], x[RUN];
    uint32_t next_dy[RUN], next_x[RUN];
    load_run(b, RUN, a.b, c, a.C - c, DTYPE_F32);
    load_raw(next_dy, RUN, a.dy, n * a.C + c, a.C - c, T_DTYPE);
    load_raw(next_x, RUN, a.x, n * a.C + c, a.C - c, T_DTYPE);
    for (; n < end; n++) {
        int64_t at = n * a.C + c, after = n + 1 < end ? at + a.C : at;
        widen_raw(dy, next_dy, RUN, T_DTYPE);
        widen_raw(x, next_x, RUN, T_DTYPE);
        load_raw(next_dy, RUN, a.dy, after, a.C - c, T_DTYPE);
        load_raw(next_x, RUN, a.x, after, a.C - c, T_DTYPE);
        gelu_gradient(dy, x, b, a.act);
        if (a.y)
            store_run(a.y, at, x, RUN, a.C - c, T_DTYPE);
        store_run(a.dx, at, dy, RUN, a.C - c, T_DTYPE);
        for (int i = 0; i < RUN; i++)
            sum[i] += rounded_as(dy[i], T_DTYPE);
    }
    store_run(a.partial, chunk * a.C + c, sum, RUN, a.C - c, DTYPE_F32);
}

/* -- dropout and residual sums ------------------------------------------------------- */

GPU_KERNEL(N(residual), THREADS, struct gpu_residual, a)
{
    int64_t c = first_column(WIDE);
    float b[WIDE], x[WIDE], res[WIDE];
    load_run(b, WIDE, a.b, c, a.C - c, DTYPE_F32);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        load_run(x, WIDE, a.x, n * a.C + c, a.C - c, DTYPE_F32);
        load_run(res, WIDE, a.res, n * a.C + c, a.C - c, T_DTYPE);
        for (int i = 0; i < WIDE; i++)
            res[i] += x[i] + b[i];
        store_run(a.y, n * a.C + c, res, WIDE, a.C - c, T_DTYPE);
    }
}

#define HALVES (DROPOUT_GROUP / DROPOUT_BLOCKS) // elements that a block decides

/* The part of a thread in its rows: block j of a group. */
struct drop_thread {
    int64_t n_groups, group; // of a row
    int64_t c;               // the first element; the others follow DROPOUT_BLOCKS apart
    uint32_t j;
};

GPU_FN struct drop_thread drop_thread(int64_t C)
{
    struct drop_thread t;
    int64_t i = first_column(1);
    t.n_groups = (C + DROPOUT_GROUP - 1) / DROPOUT_GROUP;
    t.group = i / DROPOUT_BLOCKS;
    t.j = (uint32_t)(i % DROPOUT_BLOCKS);
    t.c = t.group * DROPOUT_GROUP + t.j;
    return t;
}

/* The words for row n, in samples of S rows. */
GPU_FN void row_words(uint32_t words[4], const struct drop_thread *t,
                      const struct dropout *drop, int64_t n, int64_t S)
{
    int64_t sample = n / S;
    uint64_t row = (uint64_t)drop->first_row + (uint64_t)(n - sample * S);
    uint64_t group = row * (uint64_t)t->n_groups + (uint64_t)t->group;
    dropout_words(words, drop, (uint32_t)sample,
                  (uint32_t)(group * DROPOUT_BLOCKS + t->j));
}

GPU_KERNEL(N(residual_dropped), THREADS, struct gpu_residual, a)
{
    struct drop_thread t = drop_thread(a.C);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        float x[HALVES], res[HALVES];
        uint32_t words[4];
        int64_t row = n * a.C;
        for (int h = 0; h < HALVES; h++) {
            int64_t c = t.c + h * DROPOUT_BLOCKS;
            x[h] = c < a.C ? a.x[row + c] + a.b[c] : 0.0F;
            res[h] = c < a.C ? load_one(a.res, row + c, T_DTYPE) : 0.0F;
        }
        row_words(words, &t, &a.drop, n, a.S);
        for (int h = 0; h < HALVES; h++) {
            int64_t c = t.c + h * DROPOUT_BLOCKS;
            if (c < a.C)
                store_one(a.y, row + c,
                          fmaf(x[h], dropout_decide(words, h, &a.drop), res[h]), T_DTYPE);
        }
    }
}

/* y of T = x of x_dtype times its factors. */
GPU_FN void drop_rows(const struct gpu_dropped *a, enum dtype x_dtype)
{
    struct drop_thread t = drop_thread(a->C);
    for (int64_t n = blockIdx.x; n < a->N; n += gridDim.x) {
        float x[HALVES];
        uint32_t words[4];
        int64_t row = n * a->C;
        for (int h = 0; h < HALVES; h++) {
            int64_t c = t.c + h * DROPOUT_BLOCKS;
            x[h] = c < a->C ? load_one(a->x, row + c, x_dtype) : 0.0F;
        }
        row_words(words, &t, &a->drop, n, a->S);
        for (int h = 0; h < HALVES; h++) {
            int64_t c = t.c + h * DROPOUT_BLOCKS;
            if (c < a->C)
                store_one(a->y, row + c, x[h] * dropout_decide(words, h, &a->drop),
                          T_DTYPE);
        }
    }
}

GPU_KERNEL(N(dropout_fwd), THREADS, struct gpu_dropped, a)
{
    drop_rows(&a, DTYPE_F32);
}

GPU_KERNEL(N(dropout_bwd), THREADS, struct gpu_dropped, a)
{
    drop_rows(&a, T_DTYPE);
}
