/* cuda_product_args - arguments of the kernels in cuda_product.cu; see gpu.h. */
#ifndef DEVICE_CUDA_CUDA_PRODUCT_ARGS_H
#define DEVICE_CUDA_CUDA_PRODUCT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

/* y[r, c] = x[r, c] + bias[c], rounded to T unless y is float. n elements, C a row. */
struct product_bias_args {
    void *y;
    const float *x, *bias; // bias NULL: none
    int64_t n, C;
    bool is_float;
};

/* y = y + x, both of T, added in float. */
struct product_add_args {
    void *y;
    const void *x;
    int64_t n;
};

/* d (m, n) = a (m, k) b (k, n) + bias (n), or, of float, d += that; any strides. */
struct product_plain_args {
    const void *a, *b; // of T
    void *d;           // of T, or float
    const float *bias; // NULL: none
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, d_row, d_col;
    bool is_float, accumulate;
};

#endif
