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

/* gelu(t) = t * sigmoid(2u), u = sqrt(2/pi) (t + 0.044715 t^3): the tanh form with one
 * exponential. The steps of the processor. */
#define GELU_A 0.7978845608028654F
#define GELU_B 0.044715F

/* exp(-2u); the gate is 1 / (1 + that), and one minus the gate is that times the gate. */
GPU_FN float gelu_exp(float t)
{
    return gpu_exp(-2.0F * GELU_A * fmaf(GELU_B * t * t, t, t));
}

GPU_KERNEL(N(gelu), THREADS, struct gpu_activation, a)
{
    int64_t c = first_column(WIDE);
    float b[WIDE], x[WIDE];
    load_run(b, WIDE, a.b, c, a.C - c, DTYPE_F32);
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        load_run(x, WIDE, a.x, n * a.C + c, a.C - c, T_DTYPE);
        for (int i = 0; i < WIDE; i++) {
            float t = x[i] + b[i];
            x[i] = t * (1.0F / (1.0F + gelu_exp(t)));
        }
        store_run(a.y, n * a.C + c, x, WIDE, a.C - c, T_DTYPE);
    }
}

/* dy := the gradient by t = x + b, and x := gelu(t). */
GPU_FN void gelu_slope(float *dy, float *x, const float *b)
{
    for (int i = 0; i < RUN; i++) {
        float t = x[i] + b[i], e = gelu_exp(t), gate = 1.0F / (1.0F + e);
        float du = GELU_A * fmaf(3.0F * GELU_B * t, t, 1.0F);
        dy[i] *= fmaf(2.0F * t * gate * (e * gate), du, gate);
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
        gelu_slope(dy, x, b);
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
