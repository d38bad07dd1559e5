/*
 * gpu_attention_tile - what the kernels of attention share: which pairs of a query and a
 * key are seen, which are dropped, and products of tiles by tensor cores.
 *
 * A tile in shared memory has rows of DP columns of 16 bits, as 32-bit words, zeros past
 * the head's own D columns and past the sample's last row. DP is a constant wherever
 * these functions are called, so that every loop over columns unrolls and sums stay in
 * registers; arrays have the size of the largest DP and are used as far as DP goes.
 *
 * The fragment of a warp's product has 16 rows: a thread has rows lane / 4 and that + 8,
 * and of every 8 columns 2 * (lane % 4) and the next: c[n] = {row, column 8 n + those},
 * {row + 8, the same two}. A row is thus four threads', a quad's.
 */
#ifndef DEVICE_GPU_GPU_ATTENTION_TILE_H
#define DEVICE_GPU_GPU_ATTENTION_TILE_H

#include "device/gpu/gpu_attention_args.h"
#include "device/gpu/gpu_math.h"

#if defined(__CUDACC__)
#define GPU_UNROLL _Pragma("unroll")
#define GPU_NO_UNROLL _Pragma("unroll 1")
#define GPU_UNROLL_TWICE _Pragma("unroll 2")
#else
#define GPU_UNROLL
#define GPU_NO_UNROLL
#define GPU_UNROLL_TWICE
#endif

#define ATTENTION_DP_MOST 128

GPU_FN int least_of(int x, int y)
{
    return x < y ? x : y;
}

GPU_FN int most_of(int x, int y)
{
    return x > y ? x : y;
}

/* -- one head of one sample ---------------------------------------------------------- */

/* What a block has to do: tile `tile` of head h of sample b, and of its columns which
 * part. Blocks of one head follow each other: they read the same keys. */
struct place {
    int b, h, tile, part;
};

GPU_FN struct place block_place(const struct gpu_attention *a, int n_heads,
                                const int tile)
{
    uint32_t n_tiles = (uint32_t)(a->S + tile - 1) / (uint32_t)tile;
    uint32_t n_parts = (uint32_t)a->n_parts, rest = blockIdx.x / n_parts;
    struct place at;
    at.part = (int)(blockIdx.x % n_parts);
    at.tile = (int)(rest % n_tiles);
    rest /= n_tiles;
    at.h = (int)(rest % (uint32_t)n_heads);
    at.b = (int)(rest / (uint32_t)n_heads);
    return at;
}

/* The same counted from the last tile: late queries, which see most, come first, so that
 * blocks end together. */
GPU_FN struct place query_place(const struct gpu_attention *a, const int tile)
{
    struct place at = block_place(a, a->A, tile);
    at.tile = (a->S + tile - 1) / tile - 1 - at.tile;
    return at;
}

/* Where row 0 of head h of sample b lies: in tensors as q, as k and v, as out, and in lse
 * and delta. */
GPU_FN int64_t queries_at(const struct gpu_attention *a, int b, int h)
{
    return (int64_t)b * a->S * a->q_row + (int64_t)h * a->D;
}

GPU_FN int64_t keys_at(const struct gpu_attention *a, int b, int kv_head)
{
    return (int64_t)b * a->S * a->kv_row + (int64_t)kv_head * a->D;
}

GPU_FN int64_t out_row(const struct gpu_attention *a)
{
    return (int64_t)a->A * a->D;
}

GPU_FN int64_t out_at(const struct gpu_attention *a, int b, int h)
{
    return (int64_t)b * a->S * out_row(a) + (int64_t)h * a->D;
}

GPU_FN int64_t statistics_at(const struct gpu_attention *a, int b, int h)
{
    return ((int64_t)b * a->A + h) * a->S;
}

GPU_FN int kv_head_of(const struct gpu_attention *a, int h)
{
    return h / (a->A / a->A_kv);
}

/* The first key that query q sees; past the last query that of the last. */
GPU_FN int first_key_of(const struct gpu_attention *a, int b, int q)
{
    return a->first_key ? a->first_key[(int64_t)b * a->S + least_of(q, a->S - 1)] : 0;
}

/* The last key that query q sees. */
GPU_FN int last_key_of(const struct gpu_attention *a, int b, int q)
{
    return a->key_end ? least_of(q, a->key_end[b] - 1) : q;
}

GPU_FN bool is_seen(int last_key, int first_key, int key)
{
    return key >= first_key && key <= last_key;
}

/* The last query that sees one of the keys up to `key`: first keys never decrease. */
GPU_FN int last_query_of(const struct gpu_attention *a, int b, int key)
{
    int low = least_of(key, a->S - 1), high = a->S - 1;
    if (!a->first_key)
        return high;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (first_key_of(a, b, middle) <= key)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* -- dropout ------------------------------------------------------------------------- */

/* The group of 128 elements that the pair of query q and key `key` lies in, modulo 2^32
 * as Philox' counter is. */
GPU_FN uint32_t dropout_group(const struct gpu_attention *a, int h, int q, int key)
{
    uint32_t S = (uint32_t)a->S, head = (uint32_t)(a->first_head + h);
    uint32_t row = head * S + (uint32_t)q;
    return row * ((S + 127) / 128) + (uint32_t)key / 128;
}

/* Bit `spacing` i is set where element 16 i + j of the group is kept, i < 8. */
GPU_FN uint32_t dropout_kept(const struct gpu_attention *a, int b, uint32_t group, int j,
                             const int spacing)
{
    uint32_t words[4], kept = 0;
    dropout_words(words, &a->drop, (uint32_t)b, group * DROPOUT_BLOCKS + (uint32_t)j);
    GPU_UNROLL
    for (int i = 0; i < 8; i++) {
        uint32_t half = words[i / 2] >> 16 * (i % 2) & 0xFFFFu;
        kept |= (uint32_t)(half >= a->drop.threshold) << spacing * i;
    }
    return kept;
}

/* Of the elements of a group that a thread has in a row of a fragment of 128 columns: bit
 * 2 n + i for column 8 n + 2 * (lane % 4) + i. Four blocks of Philox decide all 32. */
GPU_FN uint32_t dropout_kept_in_row(const struct gpu_attention *a, int b, int h, int q,
                                    int key)
{
    int pair = (int)threadIdx.x % 4 * 2;
    uint32_t group = dropout_group(a, h, q, key), kept = 0;
    // one after another: side by side they would take registers that sums need
    GPU_NO_UNROLL
    for (int i = 0; i < 4; i++)
        kept |= dropout_kept(a, b, group, i / 2 * 8 + pair + i % 2, 4) << i;
    return kept;
}

/* -- tiles of 16 bits ---------------------------------------------------------------- */

#if GPU_DTYPE != 0
GPU_FN uint32_t pack(float low, float high)
{
    return (uint32_t)narrow(low) | (uint32_t)narrow(high) << 16;
}

/* One row's columns c .. c + 7 of which n are there, element by element. */
GPU_FN void load_piece(uint32_t *to, const T *x, int n)
{
    GPU_UNROLL
    for (int j = 0; j < 4; j++) {
        uint32_t low = 2 * j < n ? x[2 * j] : 0;
        uint32_t high = 2 * j + 1 < n ? x[2 * j + 1] : 0;
        to[j] = low | high << 16;
    }
}

/* `rows` rows to shared memory, of which n_rows are there; to be waited for. */
GPU_FN void load_tile(uint32_t *to, const struct gpu_attention *a, const T *from,
                      int64_t row, int n_rows, const int rows, const int DP)
{
    const int n_pieces = DP / 8;
    GPU_NO_UNROLL
    for (int i = (int)threadIdx.x; i < rows * n_pieces; i += ATTENTION_THREADS) {
        int r = i / n_pieces, c = i % n_pieces * 8;
        uint32_t *piece = to + r * ATTENTION_ROW(DP) + c / 2;
        const T *x = from + r * row + c;
        int n = r < n_rows ? a->D - c : 0;
        if (n >= 8 && a->is_aligned)
            copy_async_16(piece, x);
        else
            load_piece(piece, x, n);
    }
}

/* What a lane gives to load_matrix_4 for 16 rows and 16 columns: the operand with 16
 * rows, or transposed the other one of a product over rows; and the other one of a
 * product over columns. */
GPU_FN const uint32_t *left_part(const uint32_t *x, int column, const int DP)
{
    int lane = (int)threadIdx.x % 32;
    return x + lane % 16 * ATTENTION_ROW(DP) + (column + lane / 16 * 8) / 2;
}

GPU_FN const uint32_t *right_part(const uint32_t *x, int column, const int DP)
{
    int lane = (int)threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    return x + row * ATTENTION_ROW(DP) + (column + lane / 8 % 2 * 8) / 2;
}

GPU_FN void multiply(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if GPU_DTYPE == 1
    mma_16x8x16_f16(c, a, b);
#else
    mma_16x8x16_bf16(c, a, b);
#endif
}

/* c (16, n) += x (16, DP) y^T, y (n, DP). */
GPU_FN void add_over_columns(float (*c)[4], const uint32_t *x, const uint32_t *y,
                             const int n, const int DP)
{
    GPU_UNROLL_TWICE
    for (int d = 0; d < DP; d += 16) {
        uint32_t left[4], right[4];
        load_matrix_4(left, left_part(x, d, DP));
        GPU_UNROLL
        for (int i = 0; i < n; i += 16) {
            load_matrix_4(right, right_part(y + i * ATTENTION_ROW(DP), d, DP));
            multiply(c[i / 8], left, right);
            multiply(c[i / 8 + 1], left, right + 2);
        }
    }
}

/* c (16, DP) += p (16, n) y, y (n, DP). p: words of a fragment, see pack_columns. */
GPU_FN void add_over_rows(float (*c)[4], const uint32_t *p, const uint32_t *y,
                          const int n, const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < n; i += 16) {
        GPU_UNROLL
        for (int d = 0; d < DP; d += 16) {
            uint32_t right[4];
            load_matrix_4_transposed(right, left_part(y + i * ATTENTION_ROW(DP), d, DP));
            multiply(c[d / 8], p + i / 4, right);
            multiply(c[d / 8 + 1], p + i / 4, right + 2);
        }
    }
}

/* Words 2 n and 2 n + 1 of the left operand that a fragment's columns 8 n .. become. */
GPU_FN void pack_columns(uint32_t *p, const float c[4])
{
    p[0] = pack(c[0], c[1]);
    p[1] = pack(c[2], c[3]);
}

GPU_FN void clear(float (*c)[4], const int n)
{
    GPU_UNROLL
    for (int i = 0; i < n; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++)
            c[i][j] = 0.0F;
    }
}

/* The warp's 16 rows of D columns, each row times its factor, to rows of which n_rows are
 * there. */
GPU_FN void store_tile(T *to, const struct gpu_attention *a, int64_t row, int n_rows,
                       float (*c)[4], const float factor[2], const int DP)
{
    int lane = (int)threadIdx.x % 32;
    GPU_UNROLL
    for (int n = 0; n < DP / 8; n++) {
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            int r = lane / 4 + 8 * i, column = 8 * n + lane % 4 * 2;
            T *y = to + r * row + column;
            uint32_t both = pack(c[n][2 * i] * factor[i], c[n][2 * i + 1] * factor[i]);
            if (r >= n_rows || column >= a->D)
                continue;
            if (a->is_aligned) {
                check_aligned(y, 4);
                *(uint32_t *)(void *)y = both;
                continue;
            }
            y[0] = (T)both;
            if (column + 1 < a->D)
                y[1] = (T)(both >> 16);
        }
    }
}
#endif

#endif
