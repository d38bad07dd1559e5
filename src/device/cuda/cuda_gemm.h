/* cuda_gemm - the products of gpu_runtime.h over cuda_product.h: opened and closed. */
#ifndef DEVICE_CUDA_CUDA_GEMM_H
#define DEVICE_CUDA_CUDA_GEMM_H

#include "base/base.h"
#include "base/error.h"

MUST_CHECK int cuda_gemm_open(struct error *err);
void cuda_gemm_close(void);

#endif
