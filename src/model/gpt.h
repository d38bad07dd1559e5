/*
 * gpt - the model: forward and backward of one micro-batch, layer by layer.
 *
 *   x = drop(wte[token] + wpe[position])
 *   for each block:  x += drop(attention(ln1(x)) Wp + bp)
 *                    x += drop(gelu(ln2(x) W1 + b1) W2 + b2)
 *   logits = lnf(x) wte^T,   loss = cross-entropy
 *
 * Forward leaves in the stash what backward needs and cannot cheaply compute again: norm
 * outputs, GELU outputs and dropout masks are computed twice, never kept. The head does
 * its backward inside forward, chunk of rows by chunk of rows, so that logits never exist
 * for all tokens.
 *
 * The tied embedding has two gradients, one from the lookup and one from the head. They
 * are kept apart until gpt_finish_grads() adds them, as pipeline stages will.
 *
 * Layer: base, config, kernels <- model. Knows no files and no ranks. Nothing here can
 * fail after gpt_open(); nothing is allocated after it.
 */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "base/arena.h"
#include "kernels/kernels.h"
#include "model/param_table.h"

struct gpt_dims {
    int64_t B, S, H, A, D, F, V, L, P; // B, S: the largest micro-batch
};

/* What forward leaves for backward in one block. */
struct block_stash {
    float *x;                   // (N, H) input of the block
    float *ln1_mean, *ln1_rstd; // (N)
    float *qkv;                 // (N, 3, A, D), bias added
    float *att;                 // (N, A, D) attention output
    float *lse;                 // (B, A, S)
    float *x_mid;               // (N, H) after the attention's residual
    float *ln2_mean, *ln2_rstd; // (N)
    float *fc;                  // (N, F) before bias and GELU
};

/* What forward leaves for backward in one micro-batch. */
struct gpt_stash {
    struct block_stash *blocks; // L of them
    float *x_final;             // (N, H) input of the final norm
    float *dx;                  // (N, H) its gradient, which backward carries down
};

struct gpt_scratch {                         // live within one call
    float *norm;                             // (N, H) a norm's output
    float *hidden;                           // (N, H)
    float *dhidden;                          // (N, H)
    float *wide, *dwide;                     // (N, max(F, 3H))
    float *delta;                            // (B, A, S)
    float *partial;                          // partial sums over rows
    float *logits;                           // (R, V) a chunk of rows
    float *mean, *rstd;                      // (N) of the final norm
    float *row_max, *row_sum, *target_logit; // (R)
    int32_t *positions;                      // (N) 0..S-1 for each sample
    int64_t positions_B, positions_S;        // what it was filled for
};

struct gpt {
    const struct kernels *k;
    struct gpt_dims dims;
    struct param_table table;
    double hidden_dropout, attention_dropout;
    uint64_t seed;

    float *params;              // flat, laid out by table
    float *grads;               // the same layout; NULL in a model that only evaluates
    struct layer_params *p, *d; // [L + 2] views of the two
    float *dwte_lookup;         // (V, H); rows not in `touched` are not meaningful
    int32_t *touched;           // ids of the rows of dwte_lookup in use, n_touched
    int64_t n_touched;
    uint8_t *is_touched; // (V)

    struct gpt_stash stash;
    struct gpt_scratch scratch;
    struct arena arena_params, arena_grads, arena_acts;
};

/* One micro-batch. All arrays are (B, S). */
struct gpt_batch {
    int64_t B, S;
    const int32_t *tokens;
    const int32_t *targets;
    const float *weights; // of each token's loss in the gradient; 0: not counted
    int64_t step;         // for dropout
    int64_t first_sample; // index in the global batch of sample 0, for dropout
    bool is_training;     // dropout on, gradients wanted
    bool accumulate;      // add to the gradients of earlier micro-batches of this step
};

struct gpt_memory { // bytes
    size_t params, grads, activations, scratch;
};

/* The memory that gpt_open() would take; takes none. */
MUST_CHECK int gpt_measure(struct gpt_memory *mem, const struct config *cfg, int64_t B,
                           bool has_grads, struct error *err);

/* A model for micro-batches of up to B samples of up to max_seq_len tokens. Parameters
 * are zero: see gpt_init_params(). gpt_close() also takes a half-opened model. */
MUST_CHECK int gpt_open(struct gpt *g, const struct config *cfg, int64_t B,
                        bool has_grads, struct error *err);
void gpt_close(struct gpt *g);

/* Initial weights: Normal(0, std), zeros, ones; a function of (seed, logical element). */
void gpt_init_params(struct gpt *g, double std);

/* Forward, and in training the head's backward. loss_sums[b], b < B: the sum of the
 * losses of the tokens of sample b whose weight is not 0, in double. */
void gpt_forward(struct gpt *g, const struct gpt_batch *batch, double *loss_sums);
/* Backward of the micro-batch that gpt_forward() just saw. */
void gpt_backward(struct gpt *g, const struct gpt_batch *batch);
/* After the last micro-batch of a step: add the two gradients of the tied embedding. */
void gpt_finish_grads(struct gpt *g);

/* -- layers, for gpt.c --------------------------------------------------------------- */

/* x_out (N, H) := block `layer` (1..L) of st->x; fills the stash. */
void gpt_block_fwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   struct block_stash *st, float *x_out);
/* dx: in, the gradient of x_out; out, that of st->x. Adds to the gradients. */
void gpt_block_bwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   const struct block_stash *st, float *dx);
/* Final norm, logits, loss; in training also dx and the gradients of the head. */
void gpt_head(struct gpt *g, const struct gpt_batch *batch, const float *x,
              double *loss_sums, float *dx);

/* y (N, O) = x (N, I) w^T. */
void gpt_linear_fwd(const struct kernels *k, float *y, const float *x, const float *w,
                    int64_t N, int64_t I, int64_t O);
/* dx (N, I) = dy (N, O) w. */
void gpt_linear_bwd_input(const struct kernels *k, float *dx, const float *dy,
                          const float *w, int64_t N, int64_t I, int64_t O);
/* dw (O, I) (+)= dy^T x. */
void gpt_linear_bwd_weight(const struct kernels *k, float *dw, const float *dy,
                           const float *x, int64_t N, int64_t I, int64_t O,
                           bool accumulate);

#endif
