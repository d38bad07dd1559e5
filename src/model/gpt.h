/*
 * gpt - the model: forward and backward of one micro-batch, chunk by chunk.
 *
 *   x = drop(wte[token] + wpe[position])
 *   for each block:  x += drop(attention(ln1(x)) Wp + bp)
 *                    x += drop(gelu(ln2(x) W1 + b1) W2 + b2)
 *   logits = lnf(x) wte^T,   loss = cross-entropy
 *
 * A process holds a part of it (struct param_part): one or several chunks of blocks, the
 * embedding if it is the first stage of a pipeline, the head if it is the last; and of
 * each block its shard of heads and inner units when tensor parallelism splits them. The
 * all-reduces of that split go through one group of ranks, which may have one member: the
 * code is the same. Between blocks the rows of a micro-batch are all here, or, with
 * sequence parallelism, those of this process's part of each sequence (gpt_rows.c).
 *
 * Forward stores in a stash what backward needs and cannot cheaply recompute: norm
 * outputs, GELU outputs and dropout masks are always recomputed, and more with
 * use_recompute. The head does its backward inside forward, one chunk of rows at a time,
 * so that logits never exist for all tokens.
 *
 * Matrices, activations and gradients of activations have the type that the device was
 * opened for ("T"); its kernels compute in float32 and round what they write
 * (device/kernels.h). What is rounded does not depend on the layout: outputs of norms; q,
 * k, v with their bias; attention's output; x after each sublayer; the MLP's inner units
 * before their bias and after GELU; and the gradients of all these. Sums over ranks are
 * made in float32, before anything is rounded. The stash holds what forward itself goes
 * on with, so that recomputing a block gives the same bits.
 *
 * Parameters and gradients lie in the model's own memory, or belong to an owner that
 * binds a layer's before it is used (struct params_owner).
 *
 * The tied embedding has two gradients, one from the lookup and one from the head. They
 * are kept apart until gpt_finish_grads() adds them, as pipeline stages do.
 *
 * Knows no files. Nothing is allocated after gpt_open(), and nothing can fail but for a
 * lost peer, which ends the job.
 */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "base/arena.h"
#include "base/batch.h"
#include "base/trace.h"
#include "comm/comm.h"
#include "config/config.h"
#include "device/device.h"
#include "params/params.h"

struct gpt_dims {
    int64_t B, S;    // the largest micro-batch
    int64_t H, D, L; // of the whole model
    int64_t P;       // position embeddings
    int64_t A, F, V; // heads, inner units, vocabulary: this process's shard
    int64_t A_first, V_first;
    int64_t N; // B * S, the most rows
    int64_t R; // rows of logits computed at a time
};

/* What backward recomputes instead of loading it from a stash. */
enum gpt_recompute {
    RECOMPUTE_NOTHING,
    RECOMPUTE_CORE,      // softmax(q k^T) v
    RECOMPUTE_ATTENTION, // the norm and the QKV GEMM before that
    RECOMPUTE_BLOCK,     // all from the block's input on
};

/* The halves of backward. That by weight may come any time after that by input of the
 * same chunk and micro-batch, if the model was opened for it (splits_backward). Those of
 * one chunk come in the order of their micro-batches: the first one overwrites gradients,
 * and after the last one they are complete (batch.accumulate, batch.is_last). */
enum gpt_half { GPT_BWD_INPUT = 1, GPT_BWD_WEIGHT = 2, GPT_BWD_BOTH = 3 };

/* What forward leaves for backward in one sublayer (gpt_block.c). Activations have the
 * model's type. */
struct sublayer_stash {
    void *x;            // (own rows, H) input
    float *mean, *rstd; // (own rows) of its norm
    void *in;    // attention: (N, 3, A, D), bias added; MLP: (N, F) before it, which
                 // backward turns into GELU's output
    void *mixed; // attention: (N, A, D)
    float *lse;  // attention: (B, A, S)
    /* What backward by input leaves for backward by weight, where they come apart. */
    void *dout;     // (N, H) the gradient of the output GEMM's result
    void *din;      // as `in`: the gradient of the input GEMM's result
    float *partial; // of the norm's gradients, one partial sum per chunk of rows
};

/* What is recomputed lies in memory that all blocks share. */
struct block_stash {
    enum gpt_recompute recompute;
    struct sublayer_stash sub[2]; // attention, MLP
};

/* What forward leaves for backward in one micro-batch of one chunk. */
struct gpt_stash {
    struct block_stash *blocks; // as many as the longest chunk has
    void *dx; // (own rows, H) gradient of the last block's output, when the head follows
};

struct gpt_scratch {    // live within one call; what is void has the model's type
    void *top;          // (own rows, H) the last block's output, when the head follows;
                        // NULL in a model that only evaluates
    void *norm;         // (N, H) a norm's output; in backward also gradients
    float *hidden;      // (N, H) what is not rounded yet: forward the output GEMM's
                        // result, in backward partial sums over the model group
    void *dout;         // (N, H) in backward; shares memory with hidden
    void *wide;         // (N, max(F, 3 A D))
    float *attention;   // attention_scratch(); may share memory with hidden
    float *delta;       // (B, A, S)
    float *partial;     // partial reductions over rows
    float *logits;      // (R, V) a chunk of rows, and their gradients; shares memory with
                        // wide, and with hidden where that is free
    float *mean, *rstd; // (N) of the final norm
    float *row_max;     // (R)
    float *row_sum;     // (2, R): and the target's logit
    int32_t *tokens;    // (N) relative to V_first; -1: not here
    int32_t *targets;   // (N) likewise
    int32_t *positions; // (N) 0..S-1 for each sample
    int64_t *bounds;    // (mp + 1) of the parts of a sequence
};

/* The gradient of the word embedding by the lookup: rows for the tokens that occur. */
struct gpt_lookup {
    float *rows;   // (n_rows_most, H), n_rows of them in use
    int32_t *ids;  // (n_rows_most) the token of each row
    int32_t *slot; // (V) the row of a token, or -1
    int64_t n_rows, n_rows_most;
};

/* What the losses of rows are made of, on its way to the host: by chunks of rows, each
 * with the sums of its rows and then their targets' logits. Where a device has memory of
 * its own they are read once per step, or when there is no more room. */
struct gpt_loss_chunk {
    int64_t at, R; // first number in `sums`; rows
    int64_t row;   // the first one's, in its batch
    int64_t S;
    const float *mask; // of its batch
    double *loss_sums; // likewise
};

struct gpt_losses {
    float *sums; // (2, rows_most) pinned
    int64_t n_rows, rows_most;
    struct gpt_loss_chunk *chunks; // (chunks_most)
    int64_t n_chunks, chunks_most;
    struct arena arena; // of sums
};

struct gpt {
    struct device *dev;
    const struct kernels *k; // of dev
    struct stream *s;        // of dev, the one that computes
    struct gpt_dims dims;
    struct param_part part;
    struct params params;
    double embedding_dropout, hidden_dropout, attention_dropout;
    float norm_epsilon;
    enum activation activation;
    uint64_t seed;
    struct comm *model_group; // the ranks that share each block; borrowed
    int sp;                   // parts of a sequence between blocks: 1, or mp
    bool fuses_bias;
    bool splits_backward;  // its halves may come apart
    bool stashes_in_grads; // see gpt_memory.c

    enum dtype dtype;      // of matrices and activations
    enum dtype grad_dtype; // of the gradients of matrices
    struct gpt_lookup lookup;
    struct gpt_losses losses;

    struct trace *trace; // of embedding, blocks and head; borrowed; NULL: none

    struct gpt_stash *stashes;
    struct gpt_scratch scratch;
    struct arena arena_params, arena_grads, arena_acts; // of dev
    struct arena arena_tables;                          // the host's
};

struct gpt_options {
    struct device *dev;     // NULL: the processor
    int64_t B;              // most samples of a micro-batch
    int n_stashes;          // micro-batches of chunks in flight
    bool has_grads;         // false: a model that only evaluates
    struct param_part part; // of the model
    struct comm *model_group;
    bool sequence_parallel; // between blocks hold S / mp tokens of each sample
    enum dtype dtype;       // of matrices and activations
    enum dtype grad_dtype;
    enum gpt_recompute recompute;
    const bool *keeps_all; // (L) blocks that recompute nothing all the same; or NULL
    const struct param_table *table; // of the part; borrowed
    bool params_are_owned;           // by gpt.params.owner: have no memory for them
    bool grads_are_owned;            // likewise
    int64_t n_step_tokens;           // looked up here per step, at most; 0: B * S
    bool has_one_micro_batch;        // per step: no gradient is accumulated, so memory of
                                     // gradients and scratch can be shared
    bool fuses_bias;                 // into GEMMs (fused_linear)
    bool splits_backward;            // its halves may come apart
};

struct gpt_memory { // bytes
    size_t params, grads, activations, scratch;
    size_t tables; // of these, what is the host's own
    size_t pinned; // beside these: what the host reads of the device's results
};

/* The memory that gpt_open() would allocate; allocates none. */
struct gpt_memory gpt_measure(const struct config *cfg, const struct gpt_options *opt);

/* A model for micro-batches of up to B samples of up to max_seq_len tokens. Parameters
 * are zero. gpt_close() also takes a half-opened model. */
MUST_CHECK int gpt_open(struct gpt *g, const struct config *cfg,
                        const struct gpt_options *opt, struct error *err);
void gpt_close(struct gpt *g);

/* Call before the first micro-batch of a training step. */
void gpt_start_step(struct gpt *g);

/*
 * Forward of one chunk. x_in: (own rows, H) of the model's type, not used by the chunk
 * that has the embedding. x_out: likewise, not used by the one that has the head, which
 * fills in losses and likeliest tokens, and in training does its own backward.
 */
void gpt_chunk_forward(struct gpt *g, int chunk, const struct batch *batch,
                       struct gpt_stash *st, const void *x_in, void *x_out);
/* Backward of the same chunk and micro-batch, or one half of it. By input, dx: (own rows,
 * H), in the gradient of x_out (not read by the chunk that has the head, which takes its
 * own when dx is NULL), out that of x_in; the embedding, like the head, does both at
 * once. By weight dx is not used, and blocks' gradients are there. */
void gpt_chunk_backward(struct gpt *g, int chunk, const struct batch *batch,
                        struct gpt_stash *st, void *dx, enum gpt_half half);

/* The losses of all micro-batches so far are in their batches' loss_sums; whose arrays
 * have to be there until then. */
void gpt_finish_losses(struct gpt *g);

/* Call after the last micro-batch of a step: the gradient of the word embedding becomes
 * the sum of the lookup's and the head's, as far as this process holds them. */
void gpt_finish_grads(struct gpt *g);

/* -- layers, for gpt.c and gpt_decode.c ---------------------------------------------- */

struct gpt_kv_rows; // gpt_internal.h

/* x_out (own rows, H) := block `block` (from 0) of x; fills the stash, but for its input,
 * which holds x already. x_out may be x where backward will not need the stash.
 * With kv each row is a token of its own, that follows what its text has cached. */
void gpt_block_fwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, const struct gpt_kv_rows *kv, const void *x,
                   void *x_out);
/* By input, dx: in, the gradient of x_out; out, that of x. By weight: adds to the
 * gradients of the block's parameters. */
void gpt_block_bwd(struct gpt *g, int64_t block, const struct batch *batch,
                   struct block_stash *st, void *dx, enum gpt_half half);
/* Final norm, logits, loss; in training also dx and the gradients of the head. */
void gpt_head(struct gpt *g, const struct batch *batch, const void *x, void *dx);

/* All-reduce x over the ranks that share each block. A lost peer ends the job. */
void gpt_sum_over_model(struct gpt *g, float *x, int64_t n);

#endif
