/*
 * cuda_blas - cuBLASLt, opened when a GPU was found and not before: the library is half a
 * gigabyte, and a run that is refused is refused at once.
 *
 * Libraries: cuBLASLt, by dlopen.
 */
#ifndef DEVICE_CUDA_CUDA_BLAS_H
#define DEVICE_CUDA_CUDA_BLAS_H

#include "base/base.h"
#include "base/error.h"

#include <cublasLt.h>

/* The functions that are used, by their names. Those of "_internal" are what functions of
 * the header consist of. */
#define CUDA_BLAS_FUNCTIONS(X)                                                           \
    X(cublasLtCreate)                                                                    \
    X(cublasLtDestroy)                                                                   \
    X(cublasLtGetVersion)                                                                \
    X(cublasLtGetStatusString)                                                           \
    X(cublasLtMatmul)                                                                    \
    X(cublasLtMatmulAlgoCheck)                                                           \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                    \
    X(cublasLtMatmulDescInit_internal)                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                    \
    X(cublasLtMatmulPreferenceInit_internal)                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                              \
    X(cublasLtMatrixLayoutInit_internal)

#define CUDA_BLAS_MEMBER(name) __typeof__(name) *(name);
struct cuda_blas {
    CUDA_BLAS_FUNCTIONS(CUDA_BLAS_MEMBER)
};

/* Open the library; it stays open. */
MUST_CHECK int cuda_blas_open(struct cuda_blas *blas, struct error *err);

#endif
