/*
 * cuda_product - one product by cuBLASLt, in its own terms: matrices lie column by column.
 *
 * The library is asked once which of its algorithms computes a product, and the answer is
 * kept. A product whose columns must not depend on how many there are is asked for at one
 * number of columns and runs by that algorithm at every other: a sum then has one order,
 * as far as the library lets us see. Such an algorithm never splits k.
 */
#ifndef DEVICE_CUDA_CUDA_PRODUCT_H
#define DEVICE_CUDA_CUDA_PRODUCT_H

#include "device/gpu/gpu_runtime.h"

/* d (m, n) = op(a) (m, k) op(b) (k, n) + bias (m) in every column, or d += that. */
struct cuda_product {
    int64_t m, n, k;
    const void *a, *b;
    enum dtype dtype;   // of a and b
    int64_t a_ld, b_ld; // elements from column to column
    bool a_transposed, b_transposed;
    void *d;
    enum dtype d_dtype;
    int64_t d_ld;
    const float *bias; // NULL: none; else d is of float, too
    bool accumulate;
    bool is_by_column; // the bits of a column of d do not depend on n
};

/* Takes GPU_WORKSPACE_BYTES of the device's memory, of which CUDA_PRODUCT_OURS_BYTES at
 * *ours are the caller's. */
#ifndef CUDA_PRODUCT_OURS_BYTES // which a test makes small
#define CUDA_PRODUCT_OURS_BYTES (GPU_WORKSPACE_BYTES / 2)
#endif
MUST_CHECK int cuda_product_open(void **ours, struct error *err);
void cuda_product_close(void);
size_t cuda_product_version(void); // 130100 is cuBLASLt 13.1.0

/* Runs it on STREAM_COMPUTE, and is true; or false: the library has no such product. */
bool cuda_product_run(const struct cuda_product *p);

#endif
