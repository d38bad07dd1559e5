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
/* How many kernels a table has. */
int kernel_check_count(void);

#endif
