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

/* Sums run over blocks of so many k: part of the result, see kernels.h. */
#define PRODUCT_K 256

/* Two slabs, so that one is packed while slower threads still read the other: 2 x 4 MB,
 * which the last cache holds; and a thread's own, in its second cache with room for what
 * passes through. */
#define PRODUCT_SLAB_ELEMENTS ((int64_t)1 << 20)
#define PRODUCT_OWN_ELEMENTS ((int64_t)1 << 16)

/* Panels of 16-bit weights, widened: 4 MB, so that one and its result fit the cache; and
 * the rows that one has at least, and a multiple of. */
#define LINEAR_PANEL_ELEMENTS ((int64_t)1 << 20)
#define LINEAR_PANEL_ROWS 512

struct product_room {
    float *slabs[2]; // of PRODUCT_SLAB_ELEMENTS
    float *own;      // PRODUCT_OWN_ELEMENTS for each thread, behind each other
};

/* The buffers for products on up to n_threads threads. A program that did not call
 * product_start() gets them here, or ends. */
const struct product_room *product_room(int n_threads);

/* Allocate the buffers for all threads, or fail for lack of memory. */
MUST_CHECK int product_start(struct error *err);

#endif
