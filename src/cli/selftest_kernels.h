/* selftest_kernels - what `trefoil selftest --kernels` prints. */
#ifndef CLI_SELFTEST_KERNELS_H
#define CLI_SELFTEST_KERNELS_H

#include "base/base.h"
#include "base/error.h"

/* Prints every set of kernels, whether it can run here and gives the bits of generic, and
 * what is chosen. Bits that differ are an ERROR_RUNTIME. */
MUST_CHECK int selftest_kernels(struct error *err);

#endif
