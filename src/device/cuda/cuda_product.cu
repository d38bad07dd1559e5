/*
 * What cuBLASLt leaves to do, or cannot do: a bias before the rounding, a second rounding,
 * and products whose strides or types it refuses.
 *
 * One thread an element: the first two are as fast as memory is, the last is slow and
 * right.
 */
#include "device/cuda/cuda_product_args.h"
#include "device/gpu/gpu.h"

GPU_FN int64_t element_of_thread(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

GPU_KERNEL(N(product_bias), 256, struct product_bias_args, a)
{
    int64_t i = element_of_thread();
    if (i >= a.n)
        return;
    float y = a.bias ? a.x[i] + a.bias[i % a.C] : a.x[i];
    if (a.is_float)
        ((float *)a.y)[i] = y;
    else
        ((T *)a.y)[i] = narrow(y);
}

GPU_KERNEL(N(product_add), 256, struct product_add_args, a)
{
    int64_t i = element_of_thread();
    if (i >= a.n)
        return;
    T *y = (T *)a.y;
    y[i] = narrow(widen(y[i]) + widen(((const T *)a.x)[i]));
}

/* The order of sums is the contract's for float: chains over blocks of 256 values of k.
 * Into float the first of them may be added to what is there. */
GPU_KERNEL(N(product_plain), 256, struct product_plain_args, a)
{
    int64_t i = element_of_thread();
    if (i >= a.m * a.n)
        return;
    int64_t row = i / a.n, column = i % a.n, at = row * a.d_row + column * a.d_col;
    const T *x = (const T *)a.a + row * a.a_row, *y = (const T *)a.b + column * a.b_col;
    float sum = a.accumulate && a.is_float ? ((const float *)a.d)[at] : 0.0F;
    for (int64_t k = 0; k < a.k; k += 256) {
        float part = 0.0F;
        for (int64_t j = k; j < k + 256 && j < a.k; j++)
            part = fmaf(widen(x[j * a.a_col]), widen(y[j * a.b_row]), part);
        sum = sum + part;
    }
    if (a.bias)
        sum = sum + a.bias[column];
    if (a.is_float)
        ((float *)a.d)[at] = sum;
    else
        ((T *)a.d)[at] = narrow(sum);
}
