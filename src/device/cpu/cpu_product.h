/*
 * cpu_product - matrix products of all types, and the kinds of arithmetic they are made
 * of: how a kind packs both sides, and how it multiplies what is packed.
 *
 * The order of every sum is part of the result (kernels.h):
 *   float    for each block of 256 values of k, p = a chain of fused multiply-adds in
 *            ascending k from 0; then c = c + p
 *   16 bits  for each 32 values of k, filled up with +0, e = such a chain over the even
 *            ones, o = over the odd ones; then c = c + (e + o), all in float, subnormal
 *            operands and results of these being zeros
 */
#ifndef DEVICE_CPU_CPU_PRODUCT_H
#define DEVICE_CPU_CPU_PRODUCT_H

#include "device/cpu/cpu.h"

#define PRODUCT_K 256   // of a block of float's sums
#define PRODUCT_PAIR 32 // of a join of 16-bit ones

struct product_sums;

/*
 * C(m,n) = A(m,k) B(k,n), or C += A B; strides in elements. C of floats begins with what
 * is there or with 0. C of 16 bits: the sum begins with 0 and is rounded once; with
 * accumulate it is added to what is there in float, and the result is rounded.
 */
struct product {
    int64_t m, n, k;
    enum dtype dtype; // of a and b
    const void *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t b_row, b_col;
    enum dtype c_dtype;
    void *c;
    int64_t c_row, c_col; // of 16 bits: c_col is 1
    bool accumulate;
    /* What happens to rows [row, row + rows) and columns [column, column + columns) of C
     * when their sums are complete and still in the cache; NULL: nothing. Called with
     * disjoint parts by several threads. Sums of C itself were stored there already. */
    void (*finish)(const struct product *p, const struct product_sums *sums);
    const void *context;
};

/* Complete sums: of row + i and column + j at at[i * stride + j]. */
struct product_sums {
    int64_t row, rows, column, columns;
    float *at;
    int64_t stride;
};

void K(product)(const struct product *p);

/* -- kinds --------------------------------------------------------------------------- */

/* A factor to be packed: element (i, k) of it is x[i * line + k * step]. */
struct pack_from {
    const void *x;
    int64_t line, step;
    enum dtype dtype;
};

/* A block of packed rows times a block of packed columns. */
struct product_block {
    const char *rows, *columns; // panels behind each other
    int64_t n_rows, n_columns;
    int64_t n_k; // of both sides
    float *c;
    int64_t c_row, c_col;
    bool accumulate;
};

struct product_kind {
    int64_t rows, columns; // of a panel
    int64_t block_k;       // that a panel has at most: a multiple of unit_k
    int64_t unit_k;        // panels are filled up to a multiple of it
    int64_t piece_k;       // that is packed at a time where this pays: see pack_slab()
    int64_t bytes;         // of a packed element
    /* A panel of n lines and n_k values of k; zeros past them. */
    void (*pack_rows)(void *to, const struct pack_from *from, int64_t n, int64_t n_k);
    void (*pack_columns)(void *to, const struct pack_from *from, int64_t n, int64_t n_k);
    void (*multiply)(const struct product_block *b);
};

extern const struct product_kind K(product_float);
extern const struct product_kind K(product_half); // on every set
#ifdef KERNEL_TILES
extern const struct product_kind K(product_tiles); // bfloat16 alone
#endif

#endif
