/*
 * cpu_block - the loops around the innermost block of a product, and the block of C that
 * is not as it wants it.
 */
#ifndef DEVICE_CPU_CPU_BLOCK_H
#define DEVICE_CPU_CPU_BLOCK_H

#include "device/cpu/cpu_product.h"

/* One panel of rows times one of columns: C(rows, columns) = or += their product, all
 * columns of a panel, `rows` of its rows. */
struct micro {
    const void *a, *b;
    int64_t k;
    float *c;
    int64_t c_row;
    bool accumulate;
};

typedef void micro_fn(const struct micro *t, int64_t rows);

/* A block of C that is narrower than a panel, or whose columns do not lie behind each
 * other: copied out and back. */
INLINE void block_apart(micro_fn *multiply, const struct product_block *b,
                        const struct micro *t, int64_t rows, int64_t columns, float *sums,
                        const int width)
{
    struct micro apart = *t;
    apart.c = sums;
    apart.c_row = width;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            sums[r * width + c] =
                t->accumulate && c < columns ? t->c[r * b->c_row + c * b->c_col] : 0;
    multiply(&apart, rows);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            t->c[r * b->c_row + c * b->c_col] = sums[r * width + c];
}

/* A panel of columns stays in the first caches while all panels of rows pass. `sums` has
 * room for one block. */
INLINE void block_multiply(micro_fn *multiply, const struct product_block *b, float *sums,
                           const int height, const int width, const int bytes)
{
    for (int64_t column = 0; column < b->n_columns; column += width) {
        int64_t columns = i64_min(width, b->n_columns - column);
        struct micro t = {.b = b->columns + column * b->n_k * bytes,
                          .k = b->n_k,
                          .c_row = b->c_row,
                          .accumulate = b->accumulate};
        for (int64_t r = 0; r < b->n_rows; r += height) {
            int64_t rows = i64_min(height, b->n_rows - r);
            t.a = b->rows + r * b->n_k * bytes;
            t.c = b->c + r * b->c_row + column * b->c_col;
            if (columns == width && b->c_col == 1)
                multiply(&t, rows);
            else
                block_apart(multiply, b, &t, rows, columns, sums, width);
        }
    }
}

#endif
