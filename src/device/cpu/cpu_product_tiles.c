/*
 * Products of bfloat16 numbers by the tile unit of a processor: 2 x 2 tiles of C stay in
 * the unit while k passes.
 *
 * A panel is TILE_LINES lines; for each AMX_DEPTH values of k it has two tiles as the unit
 * takes them. Of rows: 16 rows of so many k. Of columns: 16 rows of pairs of neighbouring
 * k, 16 columns of them side by side. Tiles lie whole behind each other, since rows of a
 * matrix may lie a power of two apart, which collides in the first cache.
 */
#include "device/cpu/cpu_pack.h"

#ifdef KERNEL_TILES

#include "device/cpu/cpu_tiles.h"

#define TILE_LINES (2 * AMX_ROWS)
#define TILE_BYTES (AMX_ROWS * AMX_ROW_BYTES)
#define TILE_PAIRS (AMX_DEPTH / 2)

/* -- packing ------------------------------------------------------------------------- */

typedef uint16_t tile_halves __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint32_t tile_pairs __attribute__((vector_size(64), aligned(1), may_alias));

/* Element (i, k) for i < n and k < n_k, zero past them. */
static uint32_t element_at(const struct pack_from *f, int64_t i, int64_t k, int64_t n,
                           int64_t n_k)
{
    return i < n && k < n_k ? ((const uint16_t *)f->x)[i * f->line + k * f->step] : 0;
}

/* pairs(k / 2, 16 lines), whatever the strides. */
static void pairs_one_by_one(char *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    for (int k = 0; k < TILE_PAIRS; k++)
        for (int i = 0; i < AMX_ROWS; i++) {
            uint32_t pair = element_at(f, i, 2 * k, n, n_k) |
                            element_at(f, i, 2 * k + 1, n, n_k) << 16;
            memcpy(to + k * AMX_ROW_BYTES + i * (int)sizeof pair, &pair, sizeof pair);
        }
}

/* A tile of columns: pairs(k / 2, 16 lines) of n <= 16 lines and n_k <= 32 values. */
static void pack_pairs(char *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    const char *from = f->x;
    if (n < AMX_ROWS || n_k < AMX_DEPTH || (f->line != 1 && f->step != 1)) {
        pairs_one_by_one(to, f, n, n_k);
    } else if (f->step == 1) {
        pack_turned(to, AMX_ROWS, from, f->line * 2, AMX_ROWS, TILE_PAIRS);
    } else {
        for (int k = 0; k < AMX_DEPTH; k += 2) {
            const tile_halves *even = (const tile_halves *)(from + k * f->step * 2);
            const tile_halves *odd = (const tile_halves *)(from + (k + 1) * f->step * 2);
            *(tile_pairs *)(to + k / 2 * AMX_ROW_BYTES) =
                __builtin_convertvector(*even, tile_pairs) |
                __builtin_convertvector(*odd, tile_pairs) << 16;
        }
    }
}

/* A tile of rows: (16 lines, 32 values). */
static void pack_lines(char *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    if (n == AMX_ROWS && n_k >= AMX_DEPTH && f->step == 1) {
        for (int i = 0; i < AMX_ROWS; i++)
            memcpy(to + i * AMX_ROW_BYTES, (const uint16_t *)f->x + i * f->line,
                   AMX_ROW_BYTES);
    } else {
        char pairs[TILE_BYTES];
        pack_pairs(pairs, f, n, n_k);
        pack_turned(to, AMX_ROWS, pairs, AMX_ROW_BYTES, TILE_PAIRS, AMX_ROWS);
    }
}

typedef void pack_tile_fn(char *to, const struct pack_from *f, int64_t n, int64_t n_k);

INLINE void pack_panel(pack_tile_fn *pack_tile, char *to, const struct pack_from *f,
                       int64_t n, int64_t n_k)
{
    for (int64_t k = 0; k < n_k; k += AMX_DEPTH)
        for (int64_t i = 0; i < TILE_LINES; i += AMX_ROWS, to += TILE_BYTES) {
            struct pack_from part = *f;
            part.x = (const uint16_t *)f->x + i * f->line + k * f->step;
            pack_tile(to, &part, i64_min(AMX_ROWS, i64_max(n - i, 0)),
                      i64_min(AMX_DEPTH, n_k - k));
        }
}

static void pack_rows(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    pack_panel(pack_lines, to, f, n, n_k);
}

static void pack_columns(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    pack_panel(pack_pairs, to, f, n, n_k);
}

/* -- multiplying --------------------------------------------------------------------- */

enum { C_00, C_01, C_10, C_11, A_0, A_1, B_0, B_1 }; // the unit's tiles

/* c(32, 32) = or += the product of two panels; c_row in bytes. */
INLINE void tiles_multiply(struct amx_tiles *t, const char *a, const char *b, int64_t n_k,
                           char *c, int64_t c_row, bool accumulate)
{
    char *lower = c + AMX_ROWS * c_row;
    if (accumulate) {
        amx_load(t, C_00, c, c_row);
        amx_load(t, C_01, c + AMX_ROW_BYTES, c_row);
        amx_load(t, C_10, lower, c_row);
        amx_load(t, C_11, lower + AMX_ROW_BYTES, c_row);
    } else {
        amx_zero(t, C_00);
        amx_zero(t, C_01);
        amx_zero(t, C_10);
        amx_zero(t, C_11);
    }
    for (int64_t k = 0; k < n_k; k += AMX_DEPTH) {
        amx_load(t, B_0, b, AMX_ROW_BYTES);
        amx_load(t, A_0, a, AMX_ROW_BYTES);
        amx_dot_bf16(t, C_00, A_0, B_0);
        amx_load(t, B_1, b + TILE_BYTES, AMX_ROW_BYTES);
        amx_dot_bf16(t, C_01, A_0, B_1);
        amx_load(t, A_1, a + TILE_BYTES, AMX_ROW_BYTES);
        amx_dot_bf16(t, C_10, A_1, B_0);
        amx_dot_bf16(t, C_11, A_1, B_1);
        a += 2 * TILE_BYTES;
        b += 2 * TILE_BYTES;
    }
    amx_store(t, C_00, c, c_row);
    amx_store(t, C_01, c + AMX_ROW_BYTES, c_row);
    amx_store(t, C_10, lower, c_row);
    amx_store(t, C_11, lower + AMX_ROW_BYTES, c_row);
}

/* A block of C that is smaller than the tiles, or whose columns do not lie behind each
 * other: copied out and back. */
static void tiles_apart(struct amx_tiles *t, const struct product_block *b, const char *a,
                        const char *columns, float *c, int64_t n_rows, int64_t n_columns)
{
    float sums[TILE_LINES * TILE_LINES] = {0};
    for (int64_t i = 0; b->accumulate && i < n_rows; i++)
        for (int64_t j = 0; j < n_columns; j++)
            sums[i * TILE_LINES + j] = c[i * b->c_row + j * b->c_col];
    tiles_multiply(t, a, columns, b->n_k, (char *)sums, TILE_LINES * sizeof *sums,
                   b->accumulate);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_columns; j++)
            c[i * b->c_row + j * b->c_col] = sums[i * TILE_LINES + j];
}

static void tiles_block(const struct product_block *b)
{
    static const uint8_t rows[AMX_TILES] = {16, 16, 16, 16, 16, 16, 16, 16};
    struct amx_tiles t;
    amx_init(&t, rows);
    for (int64_t column = 0; column < b->n_columns; column += TILE_LINES) {
        int64_t n_columns = i64_min(TILE_LINES, b->n_columns - column);
        const char *columns = b->columns + column * b->n_k * 2;
        for (int64_t row = 0; row < b->n_rows; row += TILE_LINES) {
            int64_t n_rows = i64_min(TILE_LINES, b->n_rows - row);
            const char *a = b->rows + row * b->n_k * 2;
            float *c = b->c + row * b->c_row + column * b->c_col;
            if (n_rows == TILE_LINES && n_columns == TILE_LINES && b->c_col == 1)
                tiles_multiply(&t, a, columns, b->n_k, (char *)c,
                               b->c_row * (int64_t)sizeof *c, b->accumulate);
            else
                tiles_apart(&t, b, a, columns, c, n_rows, n_columns);
        }
    }
    amx_release(&t);
}

/* Panels of so many k of rows and of columns share the first cache. */
#define TILES_K 512

const struct product_kind K(product_tiles) = {
    .rows = TILE_LINES,
    .columns = TILE_LINES,
    .block_k = TILES_K,
    .unit_k = AMX_DEPTH,
    .piece_k = TILES_K,
    .bytes = sizeof(uint16_t),
    .pack_rows = pack_rows,
    .pack_columns = pack_columns,
    .multiply = tiles_block,
};

#endif
