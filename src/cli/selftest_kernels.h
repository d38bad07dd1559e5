/* selftest_kernels - what `trefoil selftest --kernels` prints. */
#ifndef CLI_SELFTEST_KERNELS_H
#define CLI_SELFTEST_KERNELS_H

#include "base/base.h"
#include "base/error.h"

/* Prints every set of kernels, whether it can run here, and what is chosen. */
MUST_CHECK int selftest_kernels(struct error *err);

#endif
