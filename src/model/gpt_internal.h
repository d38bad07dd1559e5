/* gpt_internal - what the files of the model share and nobody else needs. */
#ifndef MODEL_GPT_INTERNAL_H
#define MODEL_GPT_INTERNAL_H

#include "model/gpt.h"

#define GPT_LOGIT_ROWS 512 // rows of logits that exist at a time

/* local[n] := ids[n] in this process's share of the vocabulary, or -1. */
void gpt_local_ids(const struct gpt *g, int32_t *local, const int32_t *ids, int64_t N);

/* -- gpt_rows.c: between blocks a process holds all rows of a micro-batch, or, with
 * sequence parallelism, those of its part of each sequence ("own rows"); inside a block
 * it needs all of them ("all rows"). --------------------------------------------------
 */

/* Own rows of a batch: B * S, or B * S / mp. */
int64_t gpt_own_rows(const struct gpt *g, const struct gpt_batch *batch);

/* y (all rows) = norm of x (own rows); mean and rstd of own rows are written. */
void gpt_norm_fwd(struct gpt *g, const struct gpt_batch *batch, float *y, float *mean,
                  float *rstd, const float *x, const float *gain, const float *bias);
/* The same y again. */
void gpt_norm_again(struct gpt *g, const struct gpt_batch *batch, float *y,
                    const float *x, const float *mean, const float *rstd,
                    const float *gain, const float *bias);
/* dy: all rows, this process's partial sums, used up. dx (own rows) += the gradient of x;
 * dgain and dbias += those of own rows. */
void gpt_norm_bwd(struct gpt *g, const struct gpt_batch *batch, float *dx, float *dgain,
                  float *dbias, float *dy, const float *x, const float *gain,
                  const float *mean, const float *rstd);
/* y (own rows) = res (own rows) + drop(sum over the group of x (all rows) + bias); x is
 * used up. */
void gpt_residual(struct gpt *g, const struct gpt_batch *batch, float *y,
                  const float *res, float *x, const float *bias,
                  const struct dropout *drop);
/* drop(dy (own rows)) as all rows: in `all`, or dy itself when that is the same. */
const float *gpt_dropout_bwd(struct gpt *g, const struct gpt_batch *batch, float *all,
                             const float *dy, const struct dropout *drop);
/* y (own rows) = drop(sum over the group of x (all rows)); x is used up. */
void gpt_scatter(struct gpt *g, const struct gpt_batch *batch, float *y, float *x,
                 const struct dropout *drop);

/* A sum that cannot be had ends the job: a peer is gone, and there is no way on. */
void gpt_lost_peer(struct gpt *g, const struct error *err) __attribute__((noreturn));

#endif
