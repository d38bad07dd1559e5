/* gpt_internal - private to src/model. */
#ifndef MODEL_GPT_INTERNAL_H
#define MODEL_GPT_INTERNAL_H

#include "base/beat.h"
#include "model/gpt.h"
#include "model/gpt_params.h"

#define GPT_LOGIT_ROWS_MOST 2048 // that exist at a time, see logit_rows()

/* The weights of a layer that is not repeated, and of block `block` (from 0): by the
 * enums of gpt_params.h. NULL when the layer is not here. */
static inline const struct weight *gpt_params(const struct gpt *g,
                                              enum param_layer_kind kind)
{
    return params_layer(&g->params, STORE_PARAMS, kind, 0);
}

static inline const struct weight *gpt_grads(const struct gpt *g,
                                             enum param_layer_kind kind)
{
    return params_layer(&g->params, STORE_GRADS, kind, 0);
}

static inline const struct weight *gpt_block_params(const struct gpt *g, int64_t block)
{
    return params_layer(&g->params, STORE_PARAMS, LAYER_BLOCK, block);
}

static inline const struct weight *gpt_block_grads(const struct gpt *g, int64_t block)
{
    return params_layer(&g->params, STORE_GRADS, LAYER_BLOCK, block);
}

/* Bytes of n elements of the model's type, and where element n of an array of them is. */
static inline size_t gpt_bytes(const struct gpt *g, int64_t n)
{
    return (size_t)n * dtype_bytes(g->dtype);
}

static inline void *gpt_at(const struct gpt *g, void *x, int64_t n)
{
    return (char *)x + gpt_bytes(g, n);
}

static inline const void *gpt_at_const(const struct gpt *g, const void *x, int64_t n)
{
    return (const char *)x + gpt_bytes(g, n);
}

/* y := x, n elements of the model's type. */
static inline void gpt_copy(const struct gpt *g, void *y, const void *x, int64_t n)
{
    device_copy(g->s, y, x, gpt_bytes(g, n), COPY_ON_DEVICE);
}

/* local[n] := ids[n] in this process's shard of the vocabulary, or -1. */
void gpt_local_ids(const struct gpt *g, int32_t *local, const int32_t *ids, int64_t N);

/* -- GEMMs; each counts as progress for a watcher ------------------------------------ */

static inline void gpt_linear_fwd(const struct gpt *g, struct linear l)
{
    beat_count();
    l.is_fused = g->fuses_bias;
    g->k->linear_fwd(g->s, &l);
}

static inline void gpt_linear_bwd_input(const struct gpt *g, struct linear_bwd_input l)
{
    beat_count();
    g->k->linear_bwd_input(g->s, &l);
}

static inline void gpt_linear_bwd_weight(const struct gpt *g, struct linear_bwd_weight l)
{
    beat_count();
    g->k->linear_bwd_weight(g->s, &l);
}

/* Whether a layer's gradients are read after this micro-batch, so that they must be
 * complete: summed over the model group, too. */
bool gpt_completes_grads(const struct gpt *g, const struct batch *batch);

/* -- decoding ------------------------------------------------------------------------ */

/* Rows that are one token each, of texts whose earlier keys and values are cached. */
struct gpt_kv_rows {
    void *cache;           // of one block: (S, 2, A, D) of text i at i * slot_stride
    const int64_t *slots;  // which text each row belongs to
    const int64_t *n_past; // tokens that each text has cached, by text
    int64_t slot_stride;
    float *scores; // (A, S) scratch
};

/* x (own rows, H) := the embeddings of scratch.tokens at scratch.positions. */
void gpt_embed(struct gpt *g, const struct batch *batch, void *x);

/* -- gpt_rows.c ---------------------------------------------------------------------- */

/* Between blocks a process holds all rows of a micro-batch, or, with sequence
 * parallelism, its shard of each sequence ("own rows"); inside a block it needs all of
 * them ("all rows"). */

/* Own rows of a batch: B * S, or B * S / mp. */
int64_t gpt_own_rows(const struct gpt *g, const struct batch *batch);

struct gpt_norm {
    const float *gain, *bias; // (H)
    float *dgain, *dbias;     // (H)
    float *mean, *rstd;       // (own rows), written by gpt_norm_fwd()
    float *partial;           // from gpt_norm_bwd() to gpt_norm_grads()
};

/* That before the head; its mean and rstd are scratch. */
struct gpt_norm gpt_final_norm(const struct gpt *g);

/* y (all rows) = norm of x (own rows). */
void gpt_norm_fwd(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                  void *y, const void *x);
/* Recompute that y. */
void gpt_norm_again(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                    void *y, const void *x);

/* The gradient of a norm's output by a GEMM that the model group shares: where it goes
 * and as what, (all rows, H). Partial sums of the group are float and in scratch.hidden;
 * in a group of one it is complete and in scratch.norm. */
struct gpt_norm_grad {
    void *dy;
    enum dtype dtype;
};
struct gpt_norm_grad gpt_norm_grad(const struct gpt *g);
/* dx (own rows) += the gradient of x, from that of y, which lies where gpt_norm_grad()
 * says and is clobbered, and so is scratch.norm; partial := what gpt_norm_grads() adds to
 * dgain and dbias, then or later. */
void gpt_norm_bwd(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                  void *dx, const void *x);
void gpt_norm_grads(struct gpt *g, const struct batch *batch,
                    const struct gpt_norm *norm);
/* Elements of partial. */
int64_t gpt_norm_partials(const struct gpt *g);
/* y (own rows) = res (own rows) + drop(sum over the group of x (all rows) + bias); x is
 * clobbered. */
void gpt_residual(struct gpt *g, const struct batch *batch, void *y, const void *res,
                  float *x, const float *bias, const struct dropout *drop);
/* drop(dy (own rows)) as all rows: in `all`, or dy itself when that is the same. */
const void *gpt_dropout_bwd(struct gpt *g, const struct batch *batch, void *all,
                            const void *dy, const struct dropout *drop);
/* y (own rows) = drop(sum over the group of x (all rows)); x is clobbered. */
void gpt_scatter(struct gpt *g, const struct batch *batch, void *y, float *x,
                 const struct dropout *drop);

/* A failed collective ends the job: a peer is gone. */
void gpt_lost_peer(struct gpt *g, const struct error *err) __attribute__((noreturn));

#endif
