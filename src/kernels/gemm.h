/* gemm - dense products through BLIS; the one place that knows a BLAS. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/kernels.h"

/* As kernels.h says. Outside a parallel region it uses all threads, inside one thread. */
void gemm_blis(const struct gemm *g);

/* The same cut into shares, a thread each, and the same bits. */
void gemm_blis_shares(const struct gemm *g, int n_shares);

#endif
