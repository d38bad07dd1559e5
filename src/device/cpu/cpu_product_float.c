/*
 * Products of floats. A panel has the values of one k of all its lines behind each other,
 * so that the innermost block reads both sides from their start to their end.
 */
#include "device/cpu/cpu_block.h"
#include "device/cpu/cpu_micro.h"
#include "device/cpu/cpu_pack.h"

/* -- packing ------------------------------------------------------------------------- */

/* What pack_turned() leaves: the last lines, and the last k of all. */
INLINE void pack_rest(float *to, const int width, const struct pack_from *f, int64_t n,
                      int64_t n_k, int64_t done, int64_t done_k)
{
    const float *from = f->x;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i < done ? done_k : 0; k < n_k; k++)
            to[k * width + i] = from[i * f->line + k * f->step];
}

INLINE void pack_panel(float *to, const int width, const struct pack_from *f, int64_t n,
                       int64_t n_k)
{
    const float *from = f->x;
    int64_t done = n / 4 * 4, done_k = n_k / 4 * 4;
    if (n < width)
        memset(to, 0, (size_t)(n_k * width) * sizeof *to);
    if (f->line == 1 && n == width) {
        for (int64_t k = 0; k < n_k; k++)
            memcpy(to + k * width, from + k * f->step, (size_t)width * sizeof *to);
    } else if (f->step == 1) {
        int64_t line = f->line * (int64_t)sizeof *from;
        if (n == width)
            pack_turned((char *)to, width, f->x, line, width / 4 * 4, done_k);
        else
            pack_turned((char *)to, width, f->x, line, done, done_k);
        pack_rest(to, width, f, n, n_k, done, done_k);
    } else {
        pack_rest(to, width, f, n, n_k, 0, 0);
    }
}

static void pack_rows(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    pack_panel(to, MICRO_ROWS, f, n, n_k);
}

static void pack_columns(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    pack_panel(to, MICRO_COLUMNS, f, n, n_k);
}

/* -- multiplying --------------------------------------------------------------------- */

/* `rows` is a constant where this is inlined, so that all sums stay in registers. */
INLINE void float_rows(const struct micro *t, const int rows)
{
    vec sum[MICRO_ROWS][MICRO_VECS];
    const float *a = t->a, *b = t->b, *end = b + t->k * MICRO_COLUMNS;
    float *c = t->c;
    const int64_t c_row = t->c_row;
    micro_zero(sum, rows);
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(c + r * c_row, 1);
        __builtin_prefetch(c + r * c_row + MICRO_COLUMNS - 1, 1);
    }
    for (; b < end; a += MICRO_ROWS, b += MICRO_COLUMNS)
        micro_step(sum, a, b, rows);
    if (t->accumulate)
        micro_add(sum, c, c_row, rows);
    micro_store(c, c_row, sum, rows);
}

static void float_micro(const struct micro *t, int64_t rows)
{
    MICRO_OF_ROWS(rows, float_rows, t);
}

static void float_multiply(const struct product_block *b)
{
    float sums[MICRO_ROWS * MICRO_COLUMNS];
    block_multiply(float_micro, b, sums, MICRO_ROWS, MICRO_COLUMNS, sizeof(float));
}

const struct product_kind K(product_float) = {
    .rows = MICRO_ROWS,
    .columns = MICRO_COLUMNS,
    .block_k = PRODUCT_K,
    .unit_k = 1,
    .piece_k = 8,
    .bytes = sizeof(float),
    .pack_rows = pack_rows,
    .pack_columns = pack_columns,
    .multiply = float_multiply,
};
