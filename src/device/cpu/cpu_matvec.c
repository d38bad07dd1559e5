/*
 * A matrix times a few rows, as decoding needs it: its time is that of reading the
 * matrix, and with more rows that of the products. So every row of the matrix is read
 * once, in order, and multiplied with all rows of x before the next. Threads share the
 * outputs in fixed ranges: each reads one contiguous part of the matrix, which the
 * processor fetches ahead by itself; reading two rows at a time, or parts of rows, was
 * slower.
 *
 * x is copied first, LANES columns of every row in turn, as floats: it is then read in
 * order, too, while rows that lie a power of two apart would drive each other out of the
 * cache.
 *
 * A sum runs over LANES partial sums in the order of lanes_dot(), whatever the number of
 * rows: so the bits of a row do not depend on its neighbours.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <omp.h>

#define GROUP (VEC == 16 ? 8 : 4) // rows at a time: their sums stay in registers
#define ROWS_MOST 16              // that share the reading of the matrix
#define AHEAD 2048 // bytes of the matrix that are asked for while others are used
#define COPY_ELEMENTS (64 * 1024) // of x

/* Rows of x, and a run of their columns: all of them unless one row is longer. */
struct block {
    const struct matvec *m;
    int64_t row, n_rows;
    int64_t column, n_columns;
    float *x; // the copy, rows x_row apart
    int64_t x_row;
};

/* lane[r] += w * x[r] over n columns, a multiple of LANES; x: n_rows rows in turn. The
 * number of rows is a constant where this is inlined, so that sums stay in registers. */
INLINE void add_products(float (*lane)[LANES], const void *w, const float *x,
                         int64_t x_row, int64_t n, const int rows, enum dtype dtype)
{
    const int64_t bytes = dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    vec sum[GROUP][LANES / VEC];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < LANES / VEC; i++)
            sum[r][i] = vecs(lane[r])[i];
    for (int64_t c = 0; c < n; c += LANES) {
        if (rows > 2 && n > LANES)
            __builtin_prefetch((const char *)w + c * bytes + AHEAD);
        for (int i = 0; i < LANES / VEC; i++) {
            vec w_i = vec_load(w, c + i * VEC, VEC, dtype);
            for (int r = 0; r < rows; r++)
                sum[r][i] = vec_fused(w_i, vecs(x + r * x_row + c)[i], sum[r][i]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < LANES / VEC; i++)
            ((vec *)lane[r])[i] = sum[r][i];
}

/* The products of output o with `rows` rows of the block from r. Past the last multiple
 * of LANES it is as if zeros followed: in the copy they do. */
INLINE void add_rows(float (*lane)[LANES], const struct block *b, int64_t o, int64_t r,
                     const int rows, enum dtype dtype)
{
    int64_t whole = b->n_columns / LANES * LANES, n_rest = b->n_columns - whole;
    int64_t at = o * b->m->w->cols + b->column;
    const char *w = (const char *)b->m->w->data + at * (int64_t)dtype_bytes(dtype);
    const float *x = b->x + r * b->x_row;
    float rest[LANES] = {0};
    add_products(lane + r, w, x, b->x_row, whole, rows, dtype);
    if (n_rest == 0)
        return;
    for (int i = 0; i < n_rest; i += VEC)
        *(vec *)(rest + i) = vec_load(w, whole + i, i64_min(VEC, n_rest - i), dtype);
    add_products(lane + r, rest, x + whole, b->x_row, LANES, rows, DTYPE_F32);
}

INLINE void add_output(float (*lane)[LANES], const struct block *b, int64_t o,
                       enum dtype dtype)
{
    int64_t r = 0;
    for (; r + GROUP <= b->n_rows; r += GROUP)
        add_rows(lane, b, o, r, GROUP, dtype);
    for (; r + 4 <= b->n_rows; r += 4)
        add_rows(lane, b, o, r, 4, dtype);
    switch (b->n_rows - r) {
    case 3:
        add_rows(lane, b, o, r, 3, dtype);
        break;
    case 2:
        add_rows(lane, b, o, r, 2, dtype);
        break;
    case 1:
        add_rows(lane, b, o, r, 1, dtype);
        break;
    default:
        break;
    }
}

static void add_typed_output(float (*lane)[LANES], const struct block *b, int64_t o)
{
    TYPED(b->m->w->dtype, add_output, lane, b, o);
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

static void store_output(const struct matvec *m, int64_t r, int64_t o,
                         const float lane[LANES])
{
    float y = lanes_sum(lane) + (m->b ? m->b[o] : 0.0F);
    dtype_store((char *)m->y + (r * m->w->rows + o) * (int64_t)dtype_bytes(m->y_dtype),
                &y, m->y_dtype, 1);
}

/* Output o of the block's rows, over all columns in runs of `run`. */
static void output_of_rows(struct block *b, int64_t o, int64_t run, enum dtype x_dtype)
{
    _Alignas(64) float lane[ROWS_MOST][LANES];
    memset(lane, 0, (size_t)b->n_rows * sizeof *lane);
    for (int64_t c = 0; c < b->m->w->cols; c += run) {
        if (b->column != c) {
            b->column = c;
            b->n_columns = i64_min(run, b->m->w->cols - c);
            copy_typed_run(b, x_dtype);
        }
        add_typed_output(lane, b, o);
    }
    for (int64_t r = 0; r < b->n_rows; r++)
        store_output(b->m, b->row + r, o, lane[r]);
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
        for (int64_t o = first; o < end; o++)
            output_of_rows(&b, o, run, x_dtype);
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
