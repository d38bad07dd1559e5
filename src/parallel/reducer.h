/*
 * reducer - all-reduces gradients over the data ranks, range by range, while backward
 * still runs.
 *
 * A range may be added as soon as its gradients are complete. Adjacent ranges are joined
 * until they have min_bytes, so that few large messages go instead of many small ones
 * (tensor_fusion); the sum of an element does not depend on how ranges were joined.
 *
 * Knows no model: ranges of numbers.
 */
#ifndef PARALLEL_REDUCER_H
#define PARALLEL_REDUCER_H

#include "base/base.h"
#include "base/error.h"
#include "comm/comm.h"

struct reducer {
    struct comm *group; // the data ranks; borrowed
    int64_t min_bytes;
    char *first, *end; // the joined range that has not been started yet
    enum dtype dtype;  // of its elements
    struct comm_request *requests;
    int n_requests, max_requests;
};

/* For at most max_ranges ranges between two waits. */
MUST_CHECK int reducer_init(struct reducer *r, struct comm *group, int64_t min_bytes,
                            int max_ranges, struct error *err);
void reducer_release(struct reducer *r);

/* The n numbers at x of this rank are complete. All ranks give the same ranges in the
 * same order. They are untouchable until reducer_wait(). [collective] */
void reducer_add(struct reducer *r, void *x, enum dtype dtype, int64_t n);

/* Start what is left, and wait for all reductions. [collective] */
MUST_CHECK int reducer_wait(struct reducer *r, struct error *err);

#endif
