/*
 * product - the buffers of matrix products: what all threads of one share, and what each
 * has for itself.
 *
 * They are allocated once, before the first product, and touched by the threads that use
 * them: so products cannot fail, and on a machine of several nodes the memory is near.
 */
#ifndef DEVICE_CPU_PRODUCT_H
#define DEVICE_CPU_PRODUCT_H

#include "base/base.h"
#include "base/error.h"

/* Two slabs, so that one is packed while slower threads still read the other: 2 x 4 MB,
 * which the last cache holds. */
#define PRODUCT_SLAB_BYTES ((int64_t)1 << 22)
/* A thread's own: packed rows, in its second cache with room for what passes through; and
 * sums that are not rounded yet. */
#define PRODUCT_ROWS_BYTES ((int64_t)1 << 18)
#define PRODUCT_SUMS_BYTES ((int64_t)1 << 20)
#define PRODUCT_OWN_BYTES (PRODUCT_ROWS_BYTES + PRODUCT_SUMS_BYTES)

struct product_room {
    char *slabs[2]; // of PRODUCT_SLAB_BYTES
    char *own;      // PRODUCT_OWN_BYTES for each thread, behind each other
};

/* The buffers for products on up to n_threads threads. A program that did not call
 * product_start() gets them here, or ends. */
const struct product_room *product_room(int n_threads);

/* What the buffers for so many threads take. */
size_t product_bytes(int n_threads);

/* Allocate the buffers for all threads, or fail for lack of memory. */
MUST_CHECK int product_start(struct error *err);

#endif
