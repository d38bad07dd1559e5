/* zero_internal - what the files of zero share and nobody else needs. */
#ifndef PARALLEL_ZERO_INTERNAL_H
#define PARALLEL_ZERO_INTERNAL_H

#include "parallel/zero.h"

#define ZERO_UNIT_BYTES 2 // of which every range of parameters has a whole number

/* -- zero.c ---------------------------------------------------------------------------
 */

/* Start to sum layer i, whose gradients begin at `grads`, over the data ranks. */
void zero_sum_layer(struct zero *z, int i, char *grads);

/* -- zero_layers.c --------------------------------------------------------------------
 */

void zero_open_layer(void *zero, int layer, int next, bool is_backward);
void zero_close_layer(void *zero, int layer, bool is_backward, bool is_last);

/* Where the gradients of a layer would begin if all of them were there; only this rank's
 * range of them may be touched. */
char *zero_owned_grads(struct zero *z, const struct zero_layer *l);
/* All gradients in buckets have been added to those owned. [collective] */
MUST_CHECK int zero_settle_buckets(struct zero *z, struct error *err);

/* There is no way on: a peer is gone, or a disk. */
void zero_fail(struct zero *z, const struct error *err) __attribute__((noreturn));

#endif
