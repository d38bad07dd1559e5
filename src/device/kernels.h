/*
 * kernels - the arithmetic of a GPT on raw pointers, behind one table of functions.
 *
 * Knows no ranks and no files, and cannot fail: shapes are checked once, by the caller.
 * All matrices are row-major with the last dim contiguous unless strides are given.
 * "+=" in a formula means the output is accumulated into; "=" that it is overwritten.
 *
 * Activations, their gradients, and what forward leaves for backward have the type that
 * the device was opened for ("T" below, void pointers): a kernel widens what it reads,
 * computes in float and rounds what it writes, once. Statistics, vectors, logits, losses
 * and partial sums over ranks are float. With T = float nothing is ever converted.
 *
 * Every table computes the same functions: `ref` is the slow definition of correct in
 * double precision, `generic` the contract bit for bit (docs/architecture.md, Numerics),
 * and every other gives the bits of `generic`.
 *
 * Results never depend on the number of threads: a reduction over rows is cut into fixed
 * chunks, whichever thread computes them. A row of an output that has one row per token
 * depends on its own sample alone, never on how many samples share the micro-batch.
 *
 * Tensors are the device's memory. Arrays of tokens, positions, targets and first keys,
 * the mask of a loss and the results of sum_squares are the host's: read before the call
 * returns, and written by the time the stream was synchronised.
 *
 * Libraries: OpenMP.
 */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include "base/base.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/philox.h"
#include "device/weight.h"

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
static inline bool dropout_is_none(const struct dropout *drop)
{
    return drop->threshold == 0;
}
struct dropout dropout_init(double rate, uint64_t seed, enum philox_use use, int layer,
                            int64_t step, int64_t first_sample);
/* The factor (0 or scale) of one element; b counts from first_sample. */
float dropout_factor(const struct dropout *drop, int64_t b, int64_t row, int64_t C,
                     int64_t c);

/* -- arguments of the larger kernels ------------------------------------------------- */

struct stream; // what a kernel runs on, see device.h

/* C(m,n) = A(m,k) B(k,n), or C += A B; every matrix with row and column stride. For each
 * block of 256 values of k, p = a chain of fused multiply-adds in ascending k from 0; then
 * c = c + p. The first block overwrites c, unless it is accumulated into. */
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

/* An element-wise function that activation_fwd and _bwd, and linear_fwd, can apply. */
enum activation {
    ACTIVATION_NONE,
    ACTIVATION_GELU,      // x Phi(x), Phi being the normal distribution function
    ACTIVATION_GELU_TANH, // its approximation by tanh
};

/*
 * GEMMs with a weight w (O, I). What they give is of type T, or float where y_dtype and
 * dx_dtype say so: a partial sum, or logits. Rows of dy lie dy_row elements apart.
 *
 *   forward   y (N, O) = x (N, I) w^T; then, with ACTIVATION_NONE, y += bias before it is
 *             rounded; with another, act_y = act(y + bias) of the rounded y.
 *             act_y NULL: the activation is not wanted.
 *   by input  dx (N, I) = dy (N, O) w. dx may be anything but dy.
 *   by weight dw (O, I) (+)= dy^T x. A dw of T: the sum is rounded once, and added to
 *             what is there in float and rounded again.
 */
struct linear {
    const struct weight *w;
    const void *x; // (N, I) of T
    void *y;       // (N, O)
    enum dtype y_dtype;
    const float *bias; // (O), or NULL
    enum activation act;
    void *act_y;   // (N, O) of T, another buffer than y
    bool is_fused; // element-wise passes run part by part after the GEMM: the same bits
    int64_t N;
};

struct linear_bwd_input {
    void *dx; // (N, I)
    enum dtype dx_dtype;
    const void *dy; // (N, O) of T
    int64_t dy_row;
    const struct weight *w;
    int64_t N;
};

struct linear_bwd_weight {
    const struct weight *dw;
    const void *dy, *x; // (N, O), (N, I) of T
    int64_t dy_row;
    bool accumulate;
    int64_t N;
};

/* y = act(x + b).  x, y: (N, C); y may be x. */
struct activation_fwd {
    enum activation act;
    void *y;       // of T
    const void *x; // of T
    const float *b;
    int64_t N, C;
};

/* y = act(x + b) again, the same bits, unless it is NULL; dx = dy * act'(x + b); db[c] +=
 * sum_n dx. dx may be dy, y may be x. */
struct activation_bwd {
    enum activation act;
    void *dx, *y;       // of T
    float *db;          // NULL: its sums stay in `partial`, see add_partials
    const void *dy, *x; // of T
    const float *b;
    float *partial; // kernel_partials(N, C)
    int64_t N, C;
};

/* x[n] = wte[tokens[n]] + wpe[positions[n]], not rounded. */
struct embedding {
    float *x;                 // (B*S, H)
    const struct weight *wte; // (V, H)
    const struct weight *wpe; // (P, H), or NULL: no positions are added
    const int32_t *tokens;    // (B, S); a negative one has no row here
    const int32_t *positions; // (B, S)
    int64_t B, S, H;
};

/* dwte[tokens[n]] += dx[n]; dwpe[positions[n]] += dx[n], in the order of n. */
struct embedding_bwd {
    float *dwte, *dwpe;
    const void *dx; // (B*S, H) of T
    const int32_t *tokens, *positions;
    int64_t B, S, H;
};

/* y = g * (x - mean) * rstd + b by rows, rstd = 1/sqrt(var + epsilon). layernorm_fwd
 * writes mean and rstd; layernorm_again reads them and gives the same bits. */
struct layernorm {
    void *y;            // (N, C) of T
    float *mean, *rstd; // (N)
    const void *x;      // (N, C) of T
    const float *g, *b; // (C)
    int64_t N, C;
    float epsilon; // added to the variance
};

/* dx += rstd * (h - avg(h) - xhat * avg(h * xhat)), h = dy * g;
 * dg[c] += sum_n dy * xhat;  db[c] += sum_n dy. */
struct layernorm_bwd {
    void *dx;           // (N, C) of T
    float *dg, *db;     // dg NULL: their sums stay in `partial`, see add_partials
    const void *dy, *x; // (N, C) of T
    const float *g, *mean, *rstd;
    float *partial; // kernel_partials(N, 2 * C)
    int64_t N, C;
};

/* y[r,o] = w[o] . x[r] + b[o], w (O, I). For the few rows of decoding: w is read once for
 * all of them, and the bits of a row do not depend on how many there are. */
struct matvec {
    void *y; // (R, O)
    enum dtype y_dtype;
    const struct weight *w;
    const void *x;  // (R, I) of T
    const float *b; // (O), or NULL
    int64_t R;
};

/* db[c] += sum_n dy[n,c]. */
struct bias_grad {
    float *db;
    const void *dy; // (N, C) of T
    float *partial; // kernel_partials(N, C)
    int64_t N, C;
};

/* The second half of a sum over N rows, when the first was left in `partial`: out[c] +=
 * the chunks' sums, in their order. Rows of partial are `stride` apart: C of
 * activation_bwd; 2 C of layernorm_bwd, where dg's come before db's. */
struct add_partials {
    float *out;
    const float *partial;
    int64_t N, stride, C;
};

/* y = drop(x).  All (B*S, C); row s of dropout. dropout_fwd ends the embedding: x is of
 * float, and y may be x where T is float. dropout_bwd: x is of T, and y may be x. */
struct dropped {
    void *y; // of T
    const void *x;
    int64_t B, S, C;
    struct dropout drop;
};

/* y = res + drop(x + b).  All (B*S, C); row s of dropout. y may be res. */
struct residual {
    void *y;         // of T
    const void *res; // of T
    const float *x;  // not rounded yet; where T is float, may be y
    const float *b;
    int64_t B, S, C;
    struct dropout drop;
};

/*
 * Causal attention: out = drop(softmax(q k^T / sqrt(D))) v; never an S x S buffer.
 * Sample b, token s, head h of q lies at q + (b * S + s) * q_row + h * D, and likewise
 * that of k and v at their strides. Query head h uses key-value head h / (A / A_kv).
 */
struct attention {
    int64_t B, S;
    int64_t A, A_kv, D;    // heads of q; of k and v, which divides A; size of a head
    const void *q, *k, *v; // of T
    int64_t q_row, kv_row; // elements from token to token
    void *out;             // (B, S, A, D) of T
    float *lse;            // (B, A, S): log of the sum of exp of a row's scaled scores
    struct dropout drop; // on the probabilities: row (first_head + h) * S + q, S columns
    int64_t first_head;  // of the whole model's heads, the one that is head 0 here
    /* (B, S): query q of sample b sees the keys first_key[b * S + q] .. q, so that the
     * documents of a sample do not see each other. 0 <= first_key <= q, never decreasing
     * along q. NULL: every query sees all keys up to its own. */
    const int32_t *first_key;
    /* (B): no query of sample b sees the keys from key_end[b] on, which are padding. Above
     * every first_key of the sample. NULL: S. */
    const int32_t *key_end;
};

struct attention_bwd {
    struct attention fwd; // as left by attention_fwd
    const void *dout;     // (B, S, A, D) of T
    void *dq, *dk, *dv;   // of T, overwritten; rows lie apart as those of q, k, v do
    float *delta;         // (B, A, S) scratch
    float *scratch;       // attention_scratch() elements
};

/* One query of one sample, at position n_keys - 1, against a cache. */
struct attention_decode {
    void *out;                 // (A, D) of T
    const void *q;             // (A, D) of T
    const void *keys, *values; // (n_keys, A_kv, D) of T, rows kv_row elements apart
    int64_t kv_row;
    float *scores; // (A, n_keys) scratch
    int64_t n_keys, A, A_kv, D;
};

/*
 * Cross-entropy over a chunk of R rows of V logits, so that a row may be split over
 * processes between its three passes (V columns here, targets relative to the first; a
 * target outside [0, V) belongs to another part).
 *
 *   xent_max    row_max[r] = max of the row
 *   xent_exp    row_sum[r] = sum of exp(logits - row_max), and logits :=
 *               exp(logits - row_max); target_logit[r] = logits[r, target] -
 *               row_max[r], or 0 if not here
 *   xent_grad   logits = (logits / row_sum - (c == target)) * (mask[r] * weight),
 *               written as T where the row begins: rows of V elements of T lie
 *               xent_grad_row() elements apart
 *   xent_top    column[r] = the first one whose logit is row_max, or -1: before
 *               xent_exp
 */
struct xent {
    float *logits;          // (R, V)
    float *row_max;         // (R)
    float *row_sum;         // (R)
    float *target_logit;    // (R)
    const int32_t *targets; // (R)
    const float *mask;      // (R)
    float weight;           // of a row in the gradient is mask[r] * weight
    int32_t *column;        // (R), of xent_top
    int64_t R, V;
};

/* x := the same tensor of several ranks, combined element by element in their order:
 * ((parts[0] + parts[1]) + parts[2]) + ... Elements of 16 bits are widened, added so and
 * rounded once. The maximum of anything with a NaN is a NaN, and of 32 bits only. */
struct reduction {
    enum reduce_op { REDUCE_SUM, REDUCE_MAX } op;
    enum dtype dtype;
    void *x; // may be one of parts
    const void *const *parts;
    int n_parts;
    int64_t n;
};

struct adamw_rule { // in double: 1 - beta2 in float would be off by 1e-5
    double lr, beta1, beta2, epsilon;
    double decay;        // weight decay of this range
    double bias1, bias2; // 1 - beta1^t, 1 - beta2^t
    double grad_scale;   // clip and unscale, applied to g on the way
    bool is_l2;          // Adam: the decay is part of the gradient
};

/* AdamW over a range of n elements in one pass (p master, m exp_avg, v exp_avg_sq):
 *   g' = g * grad_scale;  p *= 1 - lr * decay;  m = b1 m + (1-b1) g';
 *   v = b2 v + (1-b2) g'^2;  p -= lr / bias1 * m / (sqrt(v / bias2) + epsilon)
 * and param := p rounded. With is_l2: g' = g * grad_scale + decay * p instead, and p is
 * not shrunk. An element's bits do not depend on where ranges are cut. */
struct adamw {
    struct adamw_rule rule;
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

/* partial[i] = sum of the squares of chunk i (KERNEL_SQUARE_CHUNK elements each), in
 * double. */
struct sum_squares {
    double *partial; // ceil(n / KERNEL_SQUARE_CHUNK)
    const void *x;
    enum dtype dtype;
    int64_t n;
};

/* Storage types; see dtype.h for how numbers are rounded. y and x do not overlap. The
 * same bits from every table.
 *   load         y (float) = x
 *   store        y = x (float) rounded
 *   store_add    y = y + x (float), added in float, rounded
 *   add_stored   the same of an x that is stored likewise */
struct convert {
    void *y;
    const void *x;
    enum dtype dtype; // of what is stored
    int64_t n;
};

struct floats { // copy: y[i] = x[i]; add: y[i] += x[i]
    float *y;
    const float *x;
    int64_t n;
};

/* y[rows[i]] += x[i], i < n, of rows of C elements; rows differ. */
struct add_rows {
    float *y;
    const float *x;
    const int32_t *rows;
    int64_t n, C;
};

struct fill { // y[i] = value
    float *y;
    float value;
    int64_t n;
};

/* -- the table ----------------------------------------------------------------------- */

/* X(kernel, its arguments): all kernels there are. */
#define OPERATIONS(X)                                                                    \
    X(embedding_fwd, embedding)                                                          \
    X(embedding_bwd, embedding_bwd)                                                      \
    X(layernorm_fwd, layernorm)                                                          \
    X(layernorm_again, layernorm)                                                        \
    X(layernorm_bwd, layernorm_bwd)                                                      \
    X(gemm, gemm)                                                                        \
    X(linear_fwd, linear)                                                                \
    X(linear_bwd_input, linear_bwd_input)                                                \
    X(linear_bwd_weight, linear_bwd_weight)                                              \
    X(matvec, matvec)                                                                    \
    X(bias_grad, bias_grad)                                                              \
    X(add_partials, add_partials)                                                        \
    X(activation_fwd, activation_fwd)                                                    \
    X(activation_bwd, activation_bwd)                                                    \
    X(bias_dropout_residual, residual)                                                   \
    X(dropout_fwd, dropped)                                                              \
    X(dropout_bwd, dropped)                                                              \
    X(attention_fwd, attention)                                                          \
    X(attention_bwd, attention_bwd)                                                      \
    X(attention_decode, attention_decode)                                                \
    X(xent_max, xent)                                                                    \
    X(xent_exp, xent)                                                                    \
    X(xent_grad, xent)                                                                   \
    X(xent_top, xent)                                                                    \
    X(reduce, reduction) /* on one thread, while messages are under way */               \
    X(adamw, adamw)                                                                      \
    X(sum_squares, sum_squares)                                                          \
    X(load, convert)                                                                     \
    X(store, convert)                                                                    \
    X(store_add, convert)                                                                \
    X(add_stored, convert)                                                               \
    X(copy, floats)                                                                      \
    X(add, floats)                                                                       \
    X(add_rows, add_rows)                                                                \
    X(fill, fill)

enum operation {
#define OPERATION_NUMBER(name, args) OP_##name,
    OPERATIONS(OPERATION_NUMBER)
#undef OPERATION_NUMBER
        N_OPERATIONS
};

/* Every kernel runs on a stream and may return before it is done; what follows on the
 * same stream finds its results. */
struct kernels {
    const char *name;
#define OPERATION_MEMBER(name, args)                                                     \
    void (*(name))(struct stream * s, const struct args *a);
    OPERATIONS(OPERATION_MEMBER)
#undef OPERATION_MEMBER
};

/* Elements of scratch that a reduction over N rows of C columns needs. */
int64_t kernel_partials(int64_t N, int64_t C);
/* Those that attention's backward needs: float sums that become gradients of T. */
int64_t attention_scratch(enum dtype dtype, int64_t S, int64_t A, int64_t A_kv,
                          int64_t D);
/* Elements of T from row to row of the gradients of V logits. */
static inline int64_t xent_grad_row(enum dtype dtype, int64_t V)
{
    return V * (int64_t)(sizeof(float) / dtype_bytes(dtype));
}

/* The table that computes a model of this type, see kernel_sets.h; and all that can run
 * here, the reference first. kernels_list() returns their number. */
const struct kernels *kernels_best(enum dtype dtype);
int kernels_list(const struct kernels **tables, int max_tables);

/* Threads that every kernel uses from now on; less than one means one. And how many it
 * uses. */
void kernels_set_threads(int n_threads);
int kernels_threads(void);

/* Allocate what GEMMs on that many threads need, so that none fails later; and how much
 * memory that is. */
size_t kernels_bytes(int n_threads);
MUST_CHECK int kernels_start(struct error *err);

#endif
