/*
 * A matrix times a few rows, as decoding needs it: its time is that of reading the
 * matrix, and with more rows that of the products. So the matrix is read once, in order:
 * a row of it, or with many rows of x a few, is multiplied with all of x before the next.
 * Threads share the outputs in fixed ranges: each reads one contiguous part of the matrix,
 * which the processor fetches ahead by itself; for one or two rows of x, reading two rows
 * at a time, or parts of rows, was slower.
 *
 * x is copied first, as floats with a gap between rows: those that lie a power of two
 * apart would drive each other out of the cache.
 *
 * A sum runs over LANES partial sums in the order of lanes_dot(), whatever the number of
 * rows: so the bits of a row do not depend on its neighbours. The lanes of some outputs
 * wait until they can be added up side by side.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <omp.h>

#define GROUP (VEC == 16 ? 8 : 4) // rows at a time: their sums stay in registers
#define OUTPUTS                                                                          \
    (VEC == 16 ? 3 : 1)           // at a time with these, so that x is read once for them
#define SIDE 8                    // outputs whose lanes are added up together
#define ROWS_MOST 16              // that share the reading of the matrix
#define COPY_ELEMENTS (64 * 1024) // of x

/* Rows of x, and a run of their columns: all of them unless one row is longer. */
struct block {
    const struct matvec *m;
    int64_t row, n_rows;
    int64_t column, n_columns;
    float *x; // the copy, rows x_row apart
    int64_t x_row;
};

/* The partial sums of SIDE outputs with the rows of a block. */
typedef float lanes_of_rows[ROWS_MOST][LANES];

/* lane[o][r] += w[o] * x[r] over n columns, a multiple of LANES; rows of w are w_row bytes
 * apart. The numbers of outputs and rows are constants where this is inlined, so that sums
 * stay in registers. */
INLINE void add_products(lanes_of_rows *lane, int64_t row, const char *w, int64_t w_row,
                         const float *x, int64_t x_row, int64_t n, const int outputs,
                         const int rows, enum dtype dtype)
{
    const int64_t bytes = dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    vec sum[OUTPUTS][GROUP][LANES / VEC];
#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < LANES / VEC; i++)
                sum[o][r][i] = vecs(lane[o][row + r])[i];
    for (int64_t c = 0; c < n; c += LANES) {
        if (rows > 2) { // into the second cache: the outputs that come next
            uintptr_t next = (uintptr_t)w + (uintptr_t)(outputs * (w_row + c * bytes));
            for (int o = 0; o < outputs; o++)
                __builtin_prefetch((const void *)(next + (uintptr_t)o * 64), 0, 2);
        }
#pragma GCC unroll 4
        for (int i = 0; i < LANES / VEC; i++) {
            vec w_i[OUTPUTS];
#pragma GCC unroll 4
            for (int o = 0; o < outputs; o++) {
                w_i[o] = vec_load(w + o * w_row, c + i * VEC, VEC, dtype);
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vec x_i = vecs(x + r * x_row + c)[i];
#pragma GCC unroll 4
                for (int o = 0; o < outputs; o++)
                    sum[o][r][i] = vec_fused(w_i[o], x_i, sum[o][r][i]);
            }
        }
    }
#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < LANES / VEC; i++)
                ((vec *)lane[o][row + r])[i] = sum[o][r][i];
}

/* The products of some outputs from o on with `rows` rows of the block from r. Past the
 * last multiple of LANES it is as if zeros followed: in the copy they do. */
INLINE void add_rows(lanes_of_rows *lane, const struct block *b, int64_t o, int64_t r,
                     const int outputs, const int rows, enum dtype dtype)
{
    int64_t whole = b->n_columns / LANES * LANES, n_rest = b->n_columns - whole;
    int64_t w_row = b->m->w->cols * (int64_t)dtype_bytes(dtype);
    const char *w =
        (const char *)b->m->w->data + o * w_row + b->column * (int64_t)dtype_bytes(dtype);
    const float *x = b->x + r * b->x_row;
    add_products(lane, r, w, w_row, x, b->x_row, whole, outputs, rows, dtype);
    for (int j = 0; j < outputs && n_rest > 0; j++) {
        float rest[LANES] = {0};
        for (int i = 0; i < n_rest; i += VEC)
            *(vec *)(rest + i) =
                vec_load(w + j * w_row, whole + i, i64_min(VEC, n_rest - i), dtype);
        add_products(lane + j, r, (const char *)rest, 0, x + whole, b->x_row, LANES, 1,
                     rows, DTYPE_F32);
    }
}

/* All rows of the block. One or two are read faster than they are multiplied. */
INLINE void add_outputs(lanes_of_rows *lane, const struct block *b, int64_t o,
                        const int outputs, enum dtype dtype)
{
    int64_t r = 0;
    for (; r + GROUP <= b->n_rows; r += GROUP)
        add_rows(lane, b, o, r, outputs, GROUP, dtype);
    for (; r + 4 <= b->n_rows; r += 4)
        add_rows(lane, b, o, r, outputs, 4, dtype);
    for (; r + 2 <= b->n_rows; r += 2)
        add_rows(lane, b, o, r, outputs, 2, dtype);
    if (r < b->n_rows)
        add_rows(lane, b, o, r, outputs, 1, dtype);
}

INLINE void add_side(lanes_of_rows *lane, const struct block *b, int64_t o, int64_t n,
                     enum dtype dtype)
{
    int64_t i = 0;
    for (; b->n_rows > 2 && i + OUTPUTS <= n; i += OUTPUTS)
        add_outputs(lane + i, b, o + i, OUTPUTS, dtype);
    for (; i < n; i++)
        add_outputs(lane + i, b, o + i, 1, dtype);
}

static void add_typed_side(lanes_of_rows *lane, const struct block *b, int64_t o,
                           int64_t n)
{
    TYPED(b->m->w->dtype, add_side, lane, b, o, n);
}

/* The block's columns of its rows, LANES of every row in turn, zeros at the end. */
INLINE void copy_run(const struct block *b, enum dtype dtype)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t at = (b->row + r) * b->m->w->cols + b->column;
        for (int64_t c = 0; c < b->n_columns; c += LANES)
            for (int i = 0; i < LANES; i += VEC) {
                int64_t left = i64_max(0, i64_min(VEC, b->n_columns - c - i));
                *(vec *)(b->x + r * b->x_row + c + i) =
                    vec_load(b->m->x, at + c + i, left, dtype);
            }
    }
}

static void copy_typed_run(const struct block *b, enum dtype dtype)
{
    TYPED(dtype, copy_run, b);
}

/* to[o] := the sum of lane[o][r], 8 of them: what lanes_sum() does to one, to all at once. */
INLINE void sum_side(float *to, lanes_of_rows *lane, int64_t r)
{
    typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
    eight s[SIDE];
#define JOIN(a, b, i, j, k, l)                                                           \
    __builtin_shufflevector(a, b, i, j, 8 + (i), 8 + (j), k, l, 8 + (k), 8 + (l))
    for (int o = 0; o < SIDE; o++)
        s[o] = *(const eight *)lane[o][r] + *(const eight *)(lane[o][r] + SIDE);
    for (int o = 0; o < SIDE; o += 2) // of o, then of o + 1
        s[o / 2] = __builtin_shufflevector(s[o], s[o + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
                   __builtin_shufflevector(s[o], s[o + 1], 4, 5, 6, 7, 12, 13, 14, 15);
    for (int o = 0; o < SIDE / 2; o += 2) // 0, 2, 1, 3
        s[o / 2] = JOIN(s[o], s[o + 1], 0, 1, 4, 5) + JOIN(s[o], s[o + 1], 2, 3, 6, 7);
    s[0] = JOIN(s[0], s[1], 0, 2, 4, 6) + JOIN(s[0], s[1], 1, 3, 5, 7); // 0 2 4 6 1 3 5 7
    *(eight *)to = __builtin_shufflevector(s[0], s[0], 0, 4, 1, 5, 2, 6, 3, 7);
#undef JOIN
}

/* Outputs [o, o + n) of the block's rows from their lanes. */
INLINE void store_side(const struct block *b, lanes_of_rows *lane, int64_t o, int64_t n,
                       enum dtype y_dtype)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        float y[SIDE];
        sum_side(y, lane, r);
        for (int i = 0; i < n; i++)
            y[i] += b->m->b ? b->m->b[o + i] : 0.0F;
        int64_t at = (b->row + r) * b->m->w->rows + o;
        for (int64_t i = 0; i < n; i += VEC)
            vec_store(b->m->y, at + i, vec_load(y, i, i64_min(VEC, n - i), DTYPE_F32),
                      i64_min(VEC, n - i), y_dtype);
    }
}

static void store_typed_side(const struct block *b, lanes_of_rows *lane, int64_t o,
                             int64_t n)
{
    TYPED(b->m->y_dtype, store_side, b, lane, o, n);
}

/* Outputs [o, o + n), at most SIDE, of the block's rows, over all columns in runs. */
static void outputs_of_rows(struct block *b, int64_t o, int64_t n, int64_t run,
                            enum dtype x_dtype)
{
    _Alignas(64) float lane[SIDE][ROWS_MOST][LANES];
    for (int64_t i = 0; i < n; i++)
        memset(lane[i], 0, (size_t)b->n_rows * sizeof lane[i][0]);
    for (int64_t c = 0; c < b->m->w->cols; c += run) {
        if (b->column != c) {
            b->column = c;
            b->n_columns = i64_min(run, b->m->w->cols - c);
            copy_typed_run(b, x_dtype);
        }
        add_typed_side(lane, b, o, n);
    }
    store_typed_side(b, lane, o, n);
}

/* Outputs [first, end) of all rows. */
static void outputs_of_thread(const struct matvec *m, int64_t first, int64_t end,
                              enum dtype x_dtype)
{
    _Alignas(64) float x[COPY_ELEMENTS];
    int64_t run = i64_min(i64_round_up(m->w->cols, LANES), COPY_ELEMENTS - LANES);
    int64_t most = i64_min(ROWS_MOST, COPY_ELEMENTS / (run + LANES));
    for (int64_t r = 0; r < m->R; r += most) {
        struct block b = {.m = m,
                          .row = r,
                          .n_rows = i64_min(most, m->R - r),
                          .column = -1,
                          .x = x,
                          .x_row = run + LANES};
        for (int64_t o = first; o < end; o += SIDE)
            outputs_of_rows(&b, o, i64_min(SIDE, end - o), run, x_dtype);
    }
}

void K(matvec)(struct stream *s, const struct matvec *m)
{
    int64_t O = m->w->rows;
#pragma omp parallel
    {
        int64_t n_threads = omp_get_num_threads(), me = omp_get_thread_num();
        outputs_of_thread(m, O * me / n_threads, O * (me + 1) / n_threads, s->dev->dtype);
    }
}
