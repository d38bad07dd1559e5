/*
 * comm_combine - how the addends of several ranks become one; for this folder alone.
 */
#ifndef COMM_COMM_COMBINE_H
#define COMM_COMM_COMBINE_H

#include "base/base.h"
#include "base/dtype.h"

/* out := a combined with b, n elements; out may be a or b. */
typedef void comm_combine_fn(void *out, const void *a, const void *b, int64_t n);
/* sum := x, or sum += x, and at the end x := sum rounded; n elements. */
typedef void comm_widen_fn(float *sum, const void *x, bool accumulate, int64_t n);
typedef void comm_narrow_fn(void *x, const float *sum, int64_t n);

struct comm_op { // has `combine`, or the other two
    size_t elem_bytes;
    comm_combine_fn *combine;
    comm_widen_fn *widen; // elements too short to hold a sum on its way
    comm_narrow_fn *narrow;
};
extern const struct comm_op comm_op_max_f32, comm_op_sum_f64, comm_op_sum_i64,
    comm_op_max_i64;
/* How elements of this type are added, the fastest way of this processor. */
const struct comm_op *comm_op_sum(enum dtype dtype);
/* The same for elements of 16 bits, in plain C unless can_be_fast. */
const struct comm_op *comm_op_sum_half(enum dtype dtype, bool can_be_fast);

#endif
