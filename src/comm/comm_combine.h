/*
 * comm_combine - how the addends of several ranks become one; for this folder alone.
 *
 * Tensors are combined by a kernel of their device. Numbers of the host's own, which are
 * few, are combined here.
 */
#ifndef COMM_COMM_COMBINE_H
#define COMM_COMM_COMBINE_H

#include "device/device.h"

/* out := a combined with b, n elements; out may be a or b. */
typedef void comm_combine_fn(void *out, const void *a, const void *b, int64_t n);

struct comm_op {
    size_t elem_bytes;
    comm_combine_fn *combine; // NULL: elements of a tensor, by the kernel below
    enum reduce_op reduce;
    enum dtype dtype;
};
extern const struct comm_op comm_op_max_f32, comm_op_sum_f64, comm_op_sum_i64,
    comm_op_max_i64;
/* How the elements of tensors are added. */
const struct comm_op *comm_op_sum(enum dtype dtype);

#endif
