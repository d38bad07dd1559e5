/*
 * kernels - the arithmetic of a GPT on raw pointers, behind one table of functions.
 *
 * Knows no ranks and no files, and cannot fail: shapes are checked once, by the caller.
 * All matrices are row-major with the last dim contiguous unless strides are given.
 * "+=" in a formula means the output is accumulated into; "=" that it is overwritten.
 *
 * Every table computes the same functions: `ref` is the slow definition of correct,
 * generic and avx2 are the same sources compiled for two instruction sets.
 *
 * Results never depend on the number of threads: a sum that runs over rows is cut into
 * fixed chunks, whoever computes them. A row of an output that has one row a token
 * depends on its own sample alone, never on how many samples share the micro-batch.
 *
 * Layer: base <- kernels. Libraries: BLIS (gemm.c only), OpenMP.
 */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include "base/base.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/philox.h"

/* -- dropout ------------------------------------------------------------------------- */

/*
 * Which elements are dropped, as a pure function: sample `b`, row `r`, column `c` of a
 * stream of rows of `C` columns. A decision takes 16 random bits, so the rate is rounded
 * to a multiple of 2^-16. Kept elements are scaled by 1 / (1 - rate).
 *
 * Rows are padded to DROPOUT_GROUP columns: element index e = r * round_up(C, 128) + c.
 * One group of 128 elements takes 16 Philox blocks; block j of group g has the counter
 * { g*16 + j low, sample, step, seed_high } and its eight half-words (low half first)
 * decide the elements j, 16+j, 32+j, ... of the group: dropped if half-word < threshold.
 */
#define DROPOUT_GROUP 128

struct dropout {
    uint32_t threshold; // of 65536; 0: nothing is dropped
    float scale;        // of what is kept
    struct philox_key key;
    uint32_t step;
    uint32_t first_sample; // the global-batch index of sample 0 of this micro-batch
    uint32_t first_row;    // of the sample, the one that is row 0 here
};

struct dropout dropout_none(void);
struct dropout dropout_init(double rate, uint64_t seed, enum philox_use use, int layer,
                            int64_t step, int64_t first_sample);
/* The factor (0 or scale) of one element; b counts from first_sample. */
float dropout_factor(const struct dropout *drop, int64_t b, int64_t row, int64_t C,
                     int64_t c);

/* -- arguments of the larger kernels ------------------------------------------------- */

/* C(m,n) = A(m,k) B(k,n), or C += A B; every matrix with row and column stride. */
struct gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_row, c_col;
    bool accumulate;
};

struct attention {
    int64_t B, S, A, D;
    const float *qkv;    // (B, S, 3, A, D), bias added
    float *out;          // (B, S, A, D)
    float *lse;          // (B, A, S): log of the sum of exp of a row's scaled scores
    struct dropout drop; // on the probabilities: row (first_head + h) * S + q, S columns
    int64_t first_head;  // of the whole model's heads, the one that is head 0 here
    /* (B, S): query q of sample b sees the keys first_key[b * S + q] .. q, so that the
     * documents of a sample do not see each other. 0 <= first_key <= q, never decreasing
     * along q. NULL: every query sees all keys up to its own. */
    const int32_t *first_key;
};

struct attention_bwd {
    struct attention fwd; // as left by attention_fwd
    const float *dout;    // (B, S, A, D)
    float *dqkv;          // (B, S, 3, A, D), overwritten
    float *delta;         // (B, A, S) scratch
};

struct adamw { // in double: 1 - beta2 in float would be off by 1e-5
    double lr, beta1, beta2, epsilon;
    double decay;        // weight decay of this range; 0 for biases and norms
    double bias1, bias2; // 1 - beta1^t, 1 - beta2^t
    double grad_scale;   // clip and unscale, applied to g on the way
    bool is_l2;          // Adam: the decay is part of the gradient
};

struct update { // a range of parameters and all that belongs to it, n elements each
    float *master;
    void *param; // what master is rounded to; NULL or master when that is float itself
    enum dtype param_dtype;
    const void *grad;
    enum dtype grad_dtype;
    float *exp_avg, *exp_avg_sq;
    int64_t n;
};

/* Rows a fixed chunk of a sum over rows has, and elements of a chunk of sum_squares. */
#define KERNEL_ROW_CHUNK 64
#define KERNEL_SQUARE_CHUNK 1024

struct kernels {
    const char *name;

    /* x[n] = drop(wte[tokens[n]] + wpe[positions[n]]).  x: (B*S, H), row s of dropout.
     * A negative token has no row here and adds nothing; wpe may be NULL: likewise. */
    void (*embedding_fwd)(float *x, const float *wte, const float *wpe,
                          const int32_t *tokens, const int32_t *positions, int64_t B,
                          int64_t S, int64_t H, const struct dropout *drop);
    /* d = drop(dx) in place; dwte[tokens[n]] += d[n]; dwpe[positions[n]] += d[n], in the
     * order of n. */
    void (*embedding_bwd)(float *dwte, float *dwpe, float *dx, const int32_t *tokens,
                          const int32_t *positions, int64_t B, int64_t S, int64_t H,
                          const struct dropout *drop);

    /* y = g * (x - mean) * rstd + b by rows, rstd = 1/sqrt(var + 1e-5).
     * x, y: (N, C).  g, b: (C).  mean, rstd: (N), written. */
    void (*layernorm_fwd)(float *y, float *mean, float *rstd, const float *x,
                          const float *g, const float *b, int64_t N, int64_t C);
    /* y again, from x and the mean and rstd that layernorm_fwd wrote: the same bits. */
    void (*layernorm_again)(float *y, const float *x, const float *mean,
                            const float *rstd, const float *g, const float *b, int64_t N,
                            int64_t C);
    /* dx += rstd * (h - avg(h) - xhat * avg(h * xhat)), h = dy * g;  dg[c] += sum_n dy *
     * xhat;  db[c] += sum_n dy.  `partial` is scratch of kernel_partials(N, 2 * C). */
    void (*layernorm_bwd)(float *dx, float *dg, float *db, const float *dy,
                          const float *x, const float *g, const float *mean,
                          const float *rstd, float *partial, int64_t N, int64_t C);

    void (*gemm)(const struct gemm *g);

    /* A product and the pass that follows it, with the bits of the two apart. c is
     * (m, n) contiguous, and so is y, which is another buffer.
     *   linear_bias       c = A B + bias
     *   linear_bias_gelu  c = A B;  y = gelu(c + bias) */
    void (*linear_bias)(const struct gemm *g, const float *bias);
    void (*linear_bias_gelu)(const struct gemm *g, const float *bias, float *y);

    /* y[r,o] = w[o] . x[r] + b[o].  x: (R, I); y: (R, O); w: (O, I), stored as `dtype`; b
     * may be NULL. For the few rows of decoding: w is read once for all of them, and the
     * bits of a row do not depend on how many there are. */
    void (*matvec)(float *y, const void *w, enum dtype dtype, const float *x,
                   const float *b, int64_t R, int64_t O, int64_t I);

    /* x[n,c] += b[c]. */
    void (*bias_add)(float *x, const float *b, int64_t N, int64_t C);
    /* db[c] += sum_n dy[n,c].  `partial`: kernel_partials(N, C). */
    void (*bias_grad)(float *db, const float *dy, float *partial, int64_t N, int64_t C);

    /* y = gelu(x + b), tanh form.  x, y: (N, C); y may be x. */
    void (*bias_gelu_fwd)(float *y, const float *x, const float *b, int64_t N, int64_t C);
    /* y = gelu(x + b) again, the same bits; dx = dy * gelu'(x + b); db[c] += sum_n dx.
     * dx may be dy, y may be x.  `partial`: kernel_partials(N, C). */
    void (*bias_gelu_bwd)(float *dx, float *y, float *db, const float *dy, const float *x,
                          const float *b, float *partial, int64_t N, int64_t C);

    /* y = res + drop(x + b).  All (B*S, C); row s of dropout. y may be res or x. */
    void (*bias_dropout_residual)(float *y, const float *res, const float *x,
                                  const float *b, int64_t B, int64_t S, int64_t C,
                                  const struct dropout *drop);
    /* The gradient before the dropout: drop(dy) written to dx, or dy itself when nothing
     * is dropped. Returns where it is. */
    const float *(*dropout_bwd)(float *dx, const float *dy, int64_t B, int64_t S,
                                int64_t C, const struct dropout *drop);

    /* Causal attention: out = drop(softmax(q k^T / sqrt(D))) v; never an S x S buffer. */
    void (*attention_fwd)(const struct attention *at);
    void (*attention_bwd)(const struct attention_bwd *at);
    /* One query a sample against a cache: q (A, D) of position n_keys - 1; keys and
     * values (n_keys, A, D) with row stride `stride`; out (A, D); scores: (A, n_keys)
     * scratch. */
    void (*attention_decode)(float *out, const float *q, const float *keys,
                             const float *values, float *scores, int64_t n_keys,
                             int64_t stride, int64_t A, int64_t D);

    /* Cross-entropy over a chunk of R rows of V logits in three passes, so that a row may
     * be split over processes between them (V columns here, targets relative to the
     * first; a target outside [0, V) belongs to another part):
     *   row_max[r] = max of the row
     *   row_sum[r] = sum of exp(logits - row_max), and logits := exp(logits - row_max);
     *                target_logit[r] = logits[r, target] - row_max[r], or 0 if not here
     *   logits     = (logits / row_sum - (c == target)) * weight[r] */
    void (*xent_max)(float *row_max, const float *logits, int64_t R, int64_t V);
    void (*xent_exp)(float *row_sum, float *target_logit, float *logits,
                     const float *row_max, const int32_t *targets, int64_t R, int64_t V);
    void (*xent_grad)(float *logits, const float *row_sum, const int32_t *targets,
                      const float *weight, int64_t R, int64_t V);

    /* AdamW over a range in one pass (p master, m exp_avg, v exp_avg_sq), in place:
     *   g' = g * grad_scale;  p *= 1 - lr * decay;  m = b1 m + (1-b1) g';
     *   v = b2 v + (1-b2) g'^2;  p -= lr / bias1 * m / (sqrt(v / bias2) + epsilon)
     * and param := p rounded. With is_l2: g' = g * grad_scale + decay * p instead, and p
     * is not shrunk. An element's bits do not depend on where ranges are cut. */
    void (*adamw)(const struct update *u, const struct adamw *a);

    /* partial[i] = sum of the squares of chunk i (KERNEL_SQUARE_CHUNK elements each), in
     * double. partial has room for ceil(n / KERNEL_SQUARE_CHUNK). */
    void (*sum_squares)(double *partial, const void *x, enum dtype dtype, int64_t n);

    /* Storage types; see dtype.h for how numbers are rounded. Element counts and strides
     * are in elements; y and x do not overlap. The same bits from every table.
     *   load           y = x
     *   store          y = x rounded
     *   store_rounded  the same, and x := what y now holds: forward goes on with what
     *                  backward will read
     *   store_add      y = y + x, added in float, rounded */
    void (*load)(float *y, const void *x, enum dtype dtype, int64_t n);
    void (*store)(void *y, const float *x, enum dtype dtype, int64_t n);
    void (*store_rounded)(void *y, float *x, enum dtype dtype, int64_t n);
    void (*store_add)(void *y, const float *x, enum dtype dtype, int64_t n);
    /* The same between a contiguous matrix of floats (rows, cols) and a stored one with
     * `stride` elements from row to row; accumulate: as store_add. */
    void (*load_matrix)(float *y, const void *x, enum dtype dtype, int64_t rows,
                        int64_t cols, int64_t x_stride);
    void (*store_matrix)(void *y, const float *x, enum dtype dtype, bool accumulate,
                         int64_t rows, int64_t cols, int64_t y_stride);

    /* x[i] = y[i], and x[i] += y[i]. */
    void (*copy)(float *x, const float *y, int64_t n);
    void (*add)(float *x, const float *y, int64_t n);
    void (*fill)(float *x, float value, int64_t n);
};

/* Elements of scratch that a sum over N rows of C columns needs. */
int64_t kernel_partials(int64_t N, int64_t C);

/* The fastest table for this processor; and all that can run here, the reference first.
 * kernels_list() returns their number. */
const struct kernels *kernels_best(void);
int kernels_list(const struct kernels **tables, int max_tables);

/* Threads that every kernel uses from now on; less than one means one. */
void kernels_set_threads(int n_threads);
int kernels_threads(void);

/* Choose the kernels of products; what computes first does it, too. */
void kernels_choose(void);
/* Take what products on that many threads need, so that none fails later. */
MUST_CHECK int kernels_start(struct error *err);

/* What computes here, such as "avx2; products by BLIS 0.9.0, its kernels for skx". */
#define KERNELS_WORDS_BYTES 128
void kernels_words(char words[KERNELS_WORDS_BYTES]);

#endif
