/* zero_internal - private to zero.c and zero_layers.c. */
#ifndef PARALLEL_ZERO_INTERNAL_H
#define PARALLEL_ZERO_INTERNAL_H

#include "parallel/zero.h"

#define ZERO_UNIT_BYTES 2 // every range of parameters is a multiple of it

/* Owned parameters are in memory that the host has, on disk or not. */
static inline bool zero_params_in_host(const struct zero *z)
{
    return z->offload || z->opt.is_in_host;
}

/* -- zero.c ------------------------------------------------------------------------- */

/* Start to reduce layer i, whose gradients begin at `grads`, over the data ranks. */
void zero_sum_layer(struct zero *z, int i, char *grads);

/* -- zero_layers.c ------------------------------------------------------------------ */

void zero_open_layer(void *zero, int layer, int next, bool is_backward);
void zero_close_layer(void *zero, int layer, bool is_backward, bool is_last);

/* Byte `at` of a layer's gradients, which is in this rank's range of them. */
char *zero_owned_grad(struct zero *z, const struct zero_layer *l, int64_t at);
/* All gradients in buckets have been added to those owned. [collective] */
MUST_CHECK int zero_drain_buckets(struct zero *z, struct error *err);

/* End the job: a peer or a disk is gone. */
void zero_fail(struct zero *z, const struct error *err) __attribute__((noreturn));

#endif
