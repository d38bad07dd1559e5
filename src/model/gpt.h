/*
 * gpt - the model: forward and backward of one micro-batch, piece by piece.
 *
 *   x = drop(wte[token] + wpe[position])
 *   for each block:  x += drop(attention(ln1(x)) Wp + bp)
 *                    x += drop(gelu(ln2(x) W1 + b1) W2 + b2)
 *   logits = lnf(x) wte^T,   loss = cross-entropy
 *
 * A process holds a part of it (struct param_part): one or several chunks of blocks, the
 * embedding if it is the first stage of a pipeline, the head if it is the last; and of
 * each block its share of heads and inner units when tensor parallelism splits them. The
 * sums over that split go through one group of ranks, which may have one member: the code
 * is the same. Between blocks the rows of a micro-batch are all here, or, with sequence
 * parallelism, those of this process's part of each sequence (gpt_rows.c).
 *
 * Forward leaves in a stash what backward needs and cannot cheaply compute again: norm
 * outputs, GELU outputs and dropout masks are computed twice, never kept. The head does
 * its backward inside forward, chunk of rows by chunk of rows, so that logits never exist
 * for all tokens.
 *
 * The tied embedding has two gradients, one from the lookup and one from the head. They
 * are kept apart until gpt_finish_grads() adds them, as pipeline stages do.
 *
 * Layer: base, config, kernels, comm <- model. Knows no files. Nothing here can fail
 * after gpt_open(), but for a lost peer, which ends the job; nothing is allocated after
 * it.
 */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "base/arena.h"
#include "base/trace.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "model/param_table.h"

struct gpt_dims {
    int64_t B, S;    // the largest micro-batch
    int64_t H, D, L; // of the whole model
    int64_t P;       // position embeddings
    int64_t A, F, V; // heads, inner units, vocabulary of this process's share
    int64_t A_first, V_first;
};

/* What forward leaves for backward in one block. */
struct block_stash {
    float *x;                   // (own rows, H) input of the block
    float *ln1_mean, *ln1_rstd; // (own rows)
    float *qkv;                 // (N, 3, A, D), bias added
    float *att;                 // (N, A, D) attention output
    float *lse;                 // (B, A, S)
    float *x_mid;               // (own rows, H) after the attention's residual
    float *ln2_mean, *ln2_rstd; // (own rows)
    float *fc;                  // (N, F) before bias and GELU
};

/* What forward leaves for backward in one micro-batch of one chunk. */
struct gpt_stash {
    struct block_stash *blocks; // as many as the longest chunk has
    float *x_final;             // (own rows, H) output of the last block
    float *dx;                  // (own rows, H) its gradient, when the head follows
};

struct gpt_scratch {     // live within one call
    float *norm;         // (N, H) a norm's output
    float *hidden;       // (N, H)
    float *dhidden;      // (N, H)
    float *wide, *dwide; // (N, max(F, 3 A D))
    float *delta;        // (B, A, S)
    float *partial;      // partial sums over rows
    float *logits;       // (R, V) a chunk of rows
    float *mean, *rstd;  // (N) of the final norm
    float *row_max;      // (R)
    float *row_sum;      // (2, R): and the target's logit
    int32_t *tokens;     // (N) relative to V_first; -1: not here
    int32_t *targets;    // (N) likewise
    int32_t *positions;  // (N) 0..S-1 for each sample
    int64_t *bounds;     // (mp + 1) of the parts of a sequence
};

struct gpt {
    const struct kernels *k;
    struct gpt_dims dims;
    struct param_part part;
    struct param_table table;
    double hidden_dropout, attention_dropout;
    uint64_t seed;
    struct comm *model_group; // the ranks that share each block; borrowed
    int sp;                   // parts of a sequence between blocks: 1, or mp

    float *params;              // flat, laid out by table
    float *grads;               // the same layout; NULL in a model that only evaluates
    struct layer_params *p, *d; // [L + 2] views of the two
    float *dwte_lookup;         // (V, H); rows not in `touched` are not meaningful
    int32_t *touched;           // rows of dwte_lookup in use, n_touched
    int64_t n_touched;
    uint8_t *is_touched; // (V)

    /* Called when the gradients of a layer are complete, in the last micro-batch. */
    void (*on_layer_done)(void *context, int layer);
    void *context;

    struct trace *trace; // of embedding, blocks and head; borrowed; NULL: none

    struct gpt_stash *stashes;
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
    bool accumulate;      // not the first micro-batch of this step
    bool is_last;         // the last micro-batch of this step
};

struct gpt_options {
    int64_t B;              // most samples of a micro-batch
    int n_stashes;          // micro-batches of chunks in flight
    bool has_grads;         // false: a model that only evaluates
    struct param_part part; // of the model
    struct comm *model_group;
    bool sequence_parallel; // between blocks hold S / mp tokens of each sample
};

struct gpt_memory { // bytes
    size_t params, grads, activations, scratch;
};

/* The memory that gpt_open_part() would take; takes none. */
MUST_CHECK int gpt_measure(struct gpt_memory *mem, const struct config *cfg,
                           const struct gpt_options *opt, struct error *err);

/* A model for micro-batches of up to B samples of up to max_seq_len tokens. Parameters
 * are zero: see gpt_init_params(). gpt_close() also takes a half-opened model. */
MUST_CHECK int gpt_open_part(struct gpt *g, const struct config *cfg,
                             const struct gpt_options *opt, struct error *err);
/* The whole model in this process, one stash; `alone` is a group of one. */
MUST_CHECK int gpt_open(struct gpt *g, const struct config *cfg, int64_t B,
                        bool has_grads, struct comm *alone, struct error *err);
void gpt_close(struct gpt *g);

/* Initial weights: Normal(0, std), zeros, ones; a function of (seed, logical element). */
void gpt_init_params(struct gpt *g, double std);

/* Before the first micro-batch of a training step. */
void gpt_start_step(struct gpt *g);

/*
 * Forward of one chunk. x_in: (own rows, H), not used by the chunk that has the
 * embedding. x_out: likewise, not used by the one that has the head, which fills
 * loss_sums[b], b < B: the sum of the losses of the tokens of sample b whose weight is
 * not 0, in double; and in training does its own backward.
 */
void gpt_chunk_forward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                       struct gpt_stash *st, const float *x_in, float *x_out,
                       double *loss_sums);
/* Backward of the same chunk and micro-batch. dx: (own rows, H), in the gradient of x_out
 * (not read by the chunk that has the head), out that of x_in. */
void gpt_chunk_backward(struct gpt *g, int chunk, const struct gpt_batch *batch,
                        struct gpt_stash *st, float *dx);

/* After the last micro-batch of a step: the gradient of the word embedding becomes the
 * sum of the lookup's and the head's, as far as they are here. */
void gpt_finish_grads(struct gpt *g);

/* A whole model's micro-batch: its only chunk, in stash 0. */
void gpt_forward(struct gpt *g, const struct gpt_batch *batch, double *loss_sums);
void gpt_backward(struct gpt *g, const struct gpt_batch *batch);

bool gpt_chunk_has_embedding(const struct gpt *g, int chunk);
bool gpt_chunk_has_head(const struct gpt *g, int chunk);

/* -- layers, for gpt.c and gpt_decode.c ---------------------------------------------- */

/* x_out (N, H) := block `layer` (1..L) of st->x; fills the stash. */
void gpt_block_fwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   struct block_stash *st, float *x_out);
/* dx: in, the gradient of x_out; out, that of st->x. Adds to the gradients. */
void gpt_block_bwd(struct gpt *g, int64_t layer, const struct gpt_batch *batch,
                   const struct block_stash *st, float *dx);
/* Final norm, logits, loss; in training also dx and the gradients of the head. */
void gpt_head(struct gpt *g, const struct gpt_batch *batch, const float *x,
              double *loss_sums, float *dx);

/* x := its sum over the ranks that share each block. A peer that is lost ends the job. */
void gpt_sum_over_model(struct gpt *g, float *x, int64_t n);

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
