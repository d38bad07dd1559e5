/*
 * A matrix times a few rows, as decoding needs it: its time is that of reading the
 * matrix, and with more rows that of the products. So every row of the matrix is read
 * once, and multiplied with all rows of x while these are in the first cache: columns are
 * taken in runs that fit there, for a block of outputs at a time.
 *
 * A sum runs over LANES partial sums in the order of lanes_dot(), whatever the number of
 * rows: so the bits of a row do not depend on its neighbours.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <omp.h>

#define OUTPUTS 2                // that use a row of x while it is in registers
#define GROUP (VEC == 8 ? 3 : 4) // rows that use those of the matrix likewise
#define ROWS_MOST 16             // that share the reading of the matrix
#define RUN_ELEMENTS (6 * 1024)  // of x: three quarters of a small first cache
#define OUTPUTS_MOST 32          // that share the widening of a run of x

/* Some outputs of a call, over a run of columns. */
struct block {
    const struct matvec *m;
    int64_t output, n_outputs; // the first, and how many
    int64_t row, n_rows;       // of x
    int64_t column, n_columns; // of the run
    const float *x;            // (n_rows, n_columns), rows x_row apart
    int64_t x_row;
    float (*lane)[ROWS_MOST][LANES]; // sums of each output and row so far
};

/* lane[o][r] += w[o] * x[r] over n columns, a multiple of LANES. The numbers of outputs
 * and rows are constants where this is inlined, so that sums stay in registers. */
INLINE void add_products(float (*lane)[ROWS_MOST][LANES], const void *w, int64_t w_row,
                         const float *x, int64_t x_row, int64_t n, const int outputs,
                         const int rows, enum dtype dtype)
{
    vec sum[OUTPUTS][GROUP][LANES / VEC];
    for (int o = 0; o < outputs; o++)
        memcpy(sum[o], lane[o], (size_t)rows * sizeof **lane);
    for (int64_t c = 0; c < n; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            vec w_o[OUTPUTS];
            for (int o = 0; o < outputs; o++)
                w_o[o] = vec_load(w, o * w_row + c + i * VEC, VEC, dtype);
            for (int r = 0; r < rows; r++) {
                vec x_r = vecs(x + r * x_row + c)[i];
                for (int o = 0; o < outputs; o++)
                    sum[o][r][i] = vec_fused(w_o[o], x_r, sum[o][r][i]);
            }
        }
    for (int o = 0; o < outputs; o++)
        memcpy(lane[o], sum[o], (size_t)rows * sizeof **lane);
}

/* The columns past the last multiple of LANES, as if zeros followed. */
INLINE void add_rest(float (*lane)[ROWS_MOST][LANES], const void *w, int64_t w_row,
                     const float *x, int64_t x_row, int64_t n, const int outputs,
                     const int rows, enum dtype dtype)
{
    float w_rest[OUTPUTS][LANES] = {{0}}, x_rest[GROUP][LANES] = {{0}};
    for (int o = 0; o < outputs; o++)
        for (int i = 0; i < n; i += VEC)
            *(vec *)(w_rest[o] + i) =
                vec_load(w, o * w_row + i, i64_min(VEC, n - i), dtype);
    for (int r = 0; r < rows; r++)
        memcpy(x_rest[r], x + r * x_row, (size_t)n * sizeof *x);
    add_products(lane, w_rest, LANES, x_rest[0], LANES, LANES, outputs, rows, DTYPE_F32);
}

/* Outputs o .. of the block and rows r .. of it. */
INLINE void add_tile(const struct block *b, int64_t o, int64_t r, const int outputs,
                     const int rows, enum dtype dtype)
{
    int64_t I = b->m->w->cols, whole = b->n_columns / LANES * LANES;
    int64_t first = (b->output + o) * I + b->column;
    const char *w = (const char *)b->m->w->data + first * (int64_t)dtype_bytes(dtype);
    const float *x = b->x + r * b->x_row;
    float(*lane)[ROWS_MOST][LANES] = (float(*)[ROWS_MOST][LANES])b->lane[o][r];
    add_products(lane, w, I, x, b->x_row, whole, outputs, rows, dtype);
    if (whole < b->n_columns)
        add_rest(lane, w + whole * (int64_t)dtype_bytes(dtype), I, x + whole, b->x_row,
                 b->n_columns - whole, outputs, rows, dtype);
}

/* Outputs o .. of the block and all of its rows. */
INLINE void add_rows(const struct block *b, int64_t o, const int outputs,
                     enum dtype dtype)
{
    int64_t r = 0;
    for (; r + GROUP <= b->n_rows; r += GROUP)
        add_tile(b, o, r, outputs, GROUP, dtype);
    switch (b->n_rows - r) {
    case 3:
        add_tile(b, o, r, outputs, GROUP < 3 ? 1 : 3, dtype);
        break;
    case 2:
        add_tile(b, o, r, outputs, 2, dtype);
        break;
    case 1:
        add_tile(b, o, r, outputs, 1, dtype);
        break;
    default:
        break;
    }
}

INLINE void add_block(const struct block *b, enum dtype dtype)
{
    int64_t o = 0;
    for (; o + OUTPUTS <= b->n_outputs; o += OUTPUTS)
        add_rows(b, o, OUTPUTS, dtype);
    for (; o < b->n_outputs; o++)
        add_rows(b, o, 1, dtype);
}

static void add_typed_block(const struct block *b)
{
    TYPED(b->m->w->dtype, add_block, b);
}

/* x[r] of the block := its columns as floats; T is not float. */
INLINE void widen_rows(float *x, const struct block *b, enum dtype dtype)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t at = (b->row + r) * b->m->w->cols + b->column, c = 0;
        float *to = x + r * b->x_row;
        for (; c + VEC <= b->n_columns; c += VEC)
            *(vec *)(to + c) = vec_load(b->m->x, at + c, VEC, dtype);
        if (c < b->n_columns)
            vec_store(to, c, vec_load(b->m->x, at + c, b->n_columns - c, dtype),
                      b->n_columns - c, DTYPE_F32);
    }
}

/* The sums of a block over all columns. */
static void sum_block(struct block *b, enum dtype x_dtype)
{
    float widened[RUN_ELEMENTS];
    int64_t I = b->m->w->cols, run = RUN_ELEMENTS / b->n_rows / LANES * LANES;
    for (int64_t c = 0; c < I; c += run) {
        b->column = c;
        b->n_columns = i64_min(run, I - c);
        b->x = (const float *)b->m->x + b->row * I + c;
        b->x_row = I;
        if (x_dtype != DTYPE_F32) {
            b->x = widened;
            b->x_row = run;
            if (x_dtype == DTYPE_BF16)
                widen_rows(widened, b, DTYPE_BF16);
            else
                widen_rows(widened, b, DTYPE_F16);
        }
        add_typed_block(b);
    }
    b->x = NULL; // what was widened ends here
}

static void store_output(const struct matvec *m, int64_t r, int64_t o,
                         const float lane[LANES])
{
    float y = lanes_sum(lane) + (m->b ? m->b[o] : 0.0F);
    dtype_store((char *)m->y + (r * m->w->rows + o) * (int64_t)dtype_bytes(m->y_dtype),
                &y, m->y_dtype, 1);
}

/* Outputs [o, end) of all rows. */
static void outputs_of_thread(const struct matvec *m, int64_t o, int64_t end,
                              enum dtype x_dtype)
{
    float lane[OUTPUTS_MOST][ROWS_MOST][LANES];
    for (; o < end; o += OUTPUTS_MOST)
        for (int64_t r = 0; r < m->R; r += ROWS_MOST) {
            struct block b = {.m = m,
                              .output = o,
                              .n_outputs = i64_min(OUTPUTS_MOST, end - o),
                              .row = r,
                              .n_rows = i64_min(ROWS_MOST, m->R - r),
                              .lane = lane};
            for (int64_t i = 0; i < b.n_outputs; i++)
                memset(lane[i], 0, (size_t)b.n_rows * sizeof *lane[i]);
            sum_block(&b, x_dtype);
            for (int64_t i = 0; i < b.n_outputs; i++)
                for (int64_t j = 0; j < b.n_rows; j++)
                    store_output(m, r + j, o + i, lane[i][j]);
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
