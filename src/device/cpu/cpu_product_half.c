/*
 * Products of 16-bit numbers on any processor: bit for bit what the tile unit of some
 * gives (cpu_tiles.h).
 *
 * Packing widens. Of each PRODUCT_PAIR values of k the even ones come first, so that the
 * innermost block runs two chains, one after the other, and joins them into C.
 */
#include "device/cpu/cpu_block.h"
#include "device/cpu/cpu_flush.h"
#include "device/cpu/cpu_micro.h"
#include "device/cpu/cpu_pack.h"
#include "device/cpu/cpu_vec.h"

#define HALF_PAIR (PRODUCT_PAIR / 2)

/* -- packing ------------------------------------------------------------------------- */

/* Where the value of k goes. */
static inline int64_t place_of(int64_t k)
{
    return k / PRODUCT_PAIR * PRODUCT_PAIR + k % 2 * HALF_PAIR + k % PRODUCT_PAIR / 2;
}

/* An operand of a chain. Subnormal ones are zeros: where the processor has no mode for
 * that, here. A half is none as a float. */
static inline float operand(uint16_t half, enum dtype dtype)
{
    float x = dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
#ifdef __x86_64__
    return x;
#else
    return flush_operand(x);
#endif
}

/* Numbers in the upper halves of 32 bits (the lower ones are zero) as floats. */
INLINE pack_4 widened_4(pack_4 x, enum dtype dtype)
{
    typedef float floats __attribute__((vector_size(16)));
    pack_4 size = x >> 3 & 0x0FFFE000u;
    if (dtype == DTYPE_BF16)
        return x;
    // a half's exponent counts from 15, a float's from 127: exact for subnormals, too
    pack_4 bits = (pack_4)((floats)size * 0x1p112F);
    bits |= (pack_4)(size >= 31u << 23) & 0x7F800000u;
    return (x & 0x80000000u) | bits;
}

/* A pair of neighbouring k of each of several lines, widened: the even one, the odd one. */
INLINE void store_pair_4(float *even, float *odd, pack_4 pair, enum dtype dtype)
{
    *(pack_4 *)even = widened_4(pair << 16, dtype);
    *(pack_4 *)odd = widened_4(pair & 0xFFFF0000u, dtype);
}

#if KERNEL_AVX2
INLINE pack_8 widened_8(pack_8 x, enum dtype dtype)
{
    typedef float floats __attribute__((vector_size(32)));
    pack_8 size = x >> 3 & 0x0FFFE000u;
    if (dtype == DTYPE_BF16)
        return x;
    pack_8 bits = (pack_8)((floats)size * 0x1p112F);
    bits |= (pack_8)(size >= 31u << 23) & 0x7F800000u;
    return (x & 0x80000000u) | bits;
}

INLINE void store_pair_8(float *even, float *odd, pack_8 pair, enum dtype dtype)
{
    *(pack_8 *)even = widened_8(pair << 16, dtype);
    *(pack_8 *)odd = widened_8(pair & 0xFFFF0000u, dtype);
}
#endif

/* PRODUCT_PAIR values of k of n lines that lie along k; n is a multiple of 4. */
INLINE void pack_pairs(float *to, const int width, const char *from, int64_t line,
                       int64_t n, enum dtype dtype)
{
    int64_t i = 0;
#if KERNEL_AVX2
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < HALF_PAIR; k += 4) {
            pack_8 y[4];
            pack_8_lines(y, from + i * line + k * 4, line);
            for (int j = 0; j < 4; j++)
                store_pair_8(to + (k + j) * width + i,
                             to + (HALF_PAIR + k + j) * width + i, y[j], dtype);
        }
#endif
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < HALF_PAIR; k += 4) {
            pack_4 y[4];
            pack_4_lines(y, from + i * line + k * 4, line);
            for (int j = 0; j < 4; j++)
                store_pair_4(to + (k + j) * width + i,
                             to + (HALF_PAIR + k + j) * width + i, y[j], dtype);
        }
}

/* Lines that lie along k. */
INLINE void pack_along(float *to, const int width, const struct pack_from *f, int64_t n,
                       int64_t n_k, enum dtype dtype)
{
    const uint16_t *from = f->x;
    int64_t done = 0, done_k = 0;
#ifdef __x86_64__
    done = n / 4 * 4;
    for (; done_k + PRODUCT_PAIR <= n_k; done_k += PRODUCT_PAIR) {
        pack_prefetch((const char *)(from + done_k), f->line * (int64_t)sizeof *from,
                      done);
        pack_pairs(to + done_k * width, width, (const char *)(from + done_k),
                   f->line * (int64_t)sizeof *from, done, dtype);
    }
#endif
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = i < done ? done_k : 0; k < n_k; k++)
            to[place_of(k) * width + i] = operand(from[i * f->line + k], dtype);
}

/* The values of one k, which lie behind each other. */
INLINE void pack_across(float *to, const int width, const uint16_t *from,
                        enum dtype dtype)
{
    int i = 0;
#ifdef __x86_64__
    typedef uint16_t halves __attribute__((vector_size(8), aligned(2), may_alias));
    for (; i + VEC <= width; i += VEC)
        *(vec *)(to + i) = vec_load(from, i, VEC, dtype);
    for (; i + 4 <= width; i += 4) {
        pack_4 four = __builtin_convertvector(*(const halves *)(from + i), pack_4);
        *(pack_4 *)(to + i) = widened_4(four << 16, dtype);
    }
#endif
    for (; i < width; i++)
        to[i] = operand(from[i], dtype);
}

INLINE void pack_typed(float *to, const int width, const struct pack_from *f, int64_t n,
                       int64_t n_k, enum dtype dtype)
{
    const uint16_t *from = f->x;
    int64_t filled = i64_round_up(n_k, PRODUCT_PAIR);
    if (n < width || filled > n_k)
        memset(to, 0, (size_t)(filled * width) * sizeof *to);
    if (f->line == 1 && n == width) {
        for (int64_t k = 0; k < n_k; k++)
            pack_across(to + place_of(k) * width, width, from + k * f->step, dtype);
    } else if (f->step == 1) {
        pack_along(to, width, f, n, n_k, dtype);
    } else {
        for (int64_t k = 0; k < n_k; k++)
            for (int64_t i = 0; i < n; i++)
                to[place_of(k) * width + i] =
                    operand(from[i * f->line + k * f->step], dtype);
    }
}

static void pack_rows(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    if (f->dtype == DTYPE_BF16)
        pack_typed(to, MICRO_ROWS, f, n, n_k, DTYPE_BF16);
    else
        pack_typed(to, MICRO_ROWS, f, n, n_k, DTYPE_F16);
}

static void pack_columns(void *to, const struct pack_from *f, int64_t n, int64_t n_k)
{
    if (f->dtype == DTYPE_BF16)
        pack_typed(to, MICRO_COLUMNS, f, n, n_k, DTYPE_BF16);
    else
        pack_typed(to, MICRO_COLUMNS, f, n, n_k, DTYPE_F16);
}

/* -- multiplying --------------------------------------------------------------------- */

/* x + y, lane by lane, and a * b + c of operands that are not subnormal. */
INLINE vec flushed_add(vec x, vec y)
{
#ifdef __x86_64__
    return x + y;
#else
    for (int i = 0; i < VEC; i++)
        x[i] = flush_add(x[i], y[i]);
    return x;
#endif
}

INLINE vec flushed_fused(vec a, vec b, vec c)
{
    vec sum = vec_fused(a, b, c);
#ifndef __x86_64__
    uvec is_small = (uvec)((((uvec)sum & 0x7FFFFFFFu) - 1) < 0x00800000u);
    bool any = false;
    for (int i = 0; i < VEC; i++)
        any |= is_small[i] != 0;
    for (int i = 0; any && i < VEC; i++) // seldom
        sum[i] = flush_fused(a[i], b[i], c[i]);
#endif
    return sum;
}

/* Rows whose two chains fit the registers together. */
#define HALF_ROWS (MICRO_ROWS / 2)

/* c(rows, MICRO_COLUMNS) += PRODUCT_PAIR values of k of up to HALF_ROWS rows. */
INLINE void half_join(float *c, const float *a, const float *b, const int rows)
{
    vec even[HALF_ROWS][MICRO_VECS], odd[HALF_ROWS][MICRO_VECS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            even[r][i] = odd[r][i] = (vec){0};
    for (int k = 0; k < HALF_PAIR; k++) {
        const float *odd_a = a + HALF_PAIR * MICRO_ROWS,
                    *odd_b = b + HALF_PAIR * MICRO_COLUMNS;
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < MICRO_VECS; i++)
                even[r][i] = flushed_fused(vec_of(a[r]), vecs(b)[i], even[r][i]);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < MICRO_VECS; i++)
                odd[r][i] = flushed_fused(vec_of(odd_a[r]), vecs(odd_b)[i], odd[r][i]);
        a += MICRO_ROWS;
        b += MICRO_COLUMNS;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++) {
            vec *to = (vec *)(c + r * MICRO_COLUMNS) + i;
            *to = flushed_add(*to, flushed_add(even[r][i], odd[r][i]));
        }
}

/* to(rows, MICRO_COLUMNS) := from */
INLINE void copy_rows(float *to, int64_t to_row, const float *from, int64_t from_row,
                      const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < MICRO_VECS; i++)
            ((vec *)(to + r * to_row))[i] = vecs(from + r * from_row)[i];
}

/* `rows` is a constant where this is inlined, so that chains stay in registers. C waits in
 * the first cache, as a copy, since its rows may lie a power of two apart and push each
 * other out. */
INLINE void half_rows(const struct micro *t, const int rows)
{
    const int upper = rows < HALF_ROWS ? rows : HALF_ROWS, lower = rows - upper;
    float c[MICRO_ROWS * MICRO_COLUMNS];
    const float *a = t->a, *b = t->b;
    if (t->accumulate)
        copy_rows(c, MICRO_COLUMNS, t->c, t->c_row, rows);
    else
        memset(c, 0, (size_t)rows * MICRO_COLUMNS * sizeof *c);
    for (int64_t k = 0; k < t->k; k += PRODUCT_PAIR) {
        half_join(c, a, b, upper);
        if (lower > 0)
            half_join(c + HALF_ROWS * MICRO_COLUMNS, a + HALF_ROWS, b, lower);
        a += PRODUCT_PAIR * MICRO_ROWS;
        b += PRODUCT_PAIR * MICRO_COLUMNS;
    }
    copy_rows(t->c, t->c_row, c, MICRO_COLUMNS, rows);
}

static void half_micro(const struct micro *t, int64_t rows)
{
    MICRO_OF_ROWS(rows, half_rows, t);
}

/* Not inlined: the compiler must not move its arithmetic out of the mode. */
static __attribute__((noinline)) void half_blocks(const struct product_block *b)
{
    float sums[MICRO_ROWS * MICRO_COLUMNS];
    block_multiply(half_micro, b, sums, MICRO_ROWS, MICRO_COLUMNS, sizeof(float));
}

static void half_multiply(const struct product_block *b)
{
    uint32_t before = flush_begin();
    half_blocks(b);
    flush_end(before);
}

const struct product_kind K(product_half) = {
    .rows = MICRO_ROWS,
    .columns = MICRO_COLUMNS,
    .block_k = PRODUCT_K,
    .unit_k = PRODUCT_PAIR,
    .piece_k = PRODUCT_K,
    .bytes = sizeof(float),
    .pack_rows = pack_rows,
    .pack_columns = pack_columns,
    .multiply = half_multiply,
};
