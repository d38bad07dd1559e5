/*
 * own_products - the program's own products called alone, as a subject of measurements:
 * float32 ones by the table's gemm, 16-bit ones by its linear kernels.
 */
#ifndef BENCH_OWN_PRODUCTS_H
#define BENCH_OWN_PRODUCTS_H

#include "device/device.h"

/* C (m,n), the sum over k, as y = x w^T (o outputs, i inputs, N tokens) needs it:
 *   forward    C = A (m,k) B^T (n,k)     y  = x w^T    m N, n o, k i
 *   by input   C = A (m,k) B (k,n)       dx = dy w     m N, n i, k o
 *   by weight  C = A^T (k,m) B (k,n)     dw = dy^T x   m o, n i, k N */
enum product_form { PRODUCT_FORWARD, PRODUCT_BY_INPUT, PRODUCT_BY_WEIGHT };

struct product {
    int64_t m, n, k;
    enum product_form form;
};

/* Its operands and result, each of one type, contiguous. */
struct product_memory {
    enum dtype dtype;
    void *a, *b, *c;
};
void product_memory_open(struct product_memory *p, enum dtype dtype,
                         const struct product *shape);
void product_memory_close(struct product_memory *p);

/* Operations of one. */
double product_flops(const struct product *shape);

/* Compute it once, on a device that was opened for the type of the memory. */
void own_product(struct device *dev, const struct product *shape,
                 const struct product_memory *p);

/* Operations a second of the better of n calls. */
double own_product_rate(struct device *dev, const struct product *shape, int64_t n);

#endif
