/*
 * kernel_check - every kernel of one table against another, bit for bit, on one set of
 * numbers: whether this processor computes what it should, in a second. (The tests of the
 * project try many shapes and numbers; this is for a machine that is new.)
 */
#ifndef DEVICE_KERNEL_CHECK_H
#define DEVICE_KERNEL_CHECK_H

#include "device/kernels.h"

/* *different := the first kernel of `k` whose results for models of this type are not
 * those of `judge`, or NULL. Fails for lack of memory; after kernels_start(). */
MUST_CHECK int kernel_check(const struct kernels *k, const struct kernels *judge,
                            enum dtype dtype, const char **different, struct error *err);
/* Every kernel of an open device against `judge`, a table of the processor: how far apart
 * an element is at most, relative to its size and that of its neighbours, and how far it
 * may be. Fails when the device does, or for lack of memory. */
typedef void kernel_check_fn(void *context, const char *kernel, double apart,
                             double allowed);
struct device;
MUST_CHECK int kernel_check_device(struct device *dev, const struct kernels *judge,
                                   kernel_check_fn *tell, void *context,
                                   struct error *err);
/* How many kernels a table has. */
int kernel_check_count(void);

#endif
