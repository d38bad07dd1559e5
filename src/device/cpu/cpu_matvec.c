/*
 * A matrix times a few rows, as decoding needs it: its time is that of reading the
 * matrix, and with more rows that of the products. So the matrix is read once, and threads
 * share the outputs in fixed ranges: each reads one contiguous part of it.
 *
 * With one row of x a row of the matrix is multiplied at a time: in order, so that the
 * processor fetches ahead by itself; reading two at a time, or parts of them, was slower.
 * With more, OUTPUTS rows of the matrix are multiplied with GROUP rows of x at a time, so
 * that what is loaded is used several times; over a tile of columns, so that this part of x
 * stays in the first cache while a panel of outputs goes by. The next panel is fetched
 * meanwhile, in the order of memory and into the second cache: into the first one was a
 * third slower, and of so many short runs the processor sees each when it is over.
 *
 * x is copied first, as floats in the order in which they are needed: LANES of each row in
 * turn.
 *
 * A sum runs over LANES partial sums in the order of lanes_dot(), whatever the number of
 * rows: so the bits of a row do not depend on its neighbours. The lanes of some outputs
 * wait until they can be added up side by side.
 */
#include "device/cpu/cpu_vec.h"
#include "device/device.h"

#include <omp.h>

#define GROUP (VEC == 16 ? 8 : 4) // rows of x at a time with
#define OUTPUTS 3                 // rows of the matrix: their sums stay in registers
#define TILE 512                  // columns that are multiplied before the next ones
#define SIDE 8                    // outputs whose lanes are added up together
#define PANEL 48                  // outputs that share a tile of x, at most
#define PANEL_BYTES (320 * 1024)  // of the matrix: two are in the second cache
#define ROWS_MOST 16              // that share the reading of the matrix
#define COPY_ELEMENTS (64 * 1024) // of x

/* In a register from here on: the compiler would load x anew for each product, and a
 * processor may load only one of these long vectors at a time. */
#if KERNEL_AVX512 && !defined(KERNEL_EMULATED)
#define HOLD(x) __asm__("" : "+v"(x))
#else
#define HOLD(x) (void)(x)
#endif

/* Rows of x, and a run of their columns: all of them unless one row is longer. */
struct block {
    const struct matvec *m;
    int64_t row, n_rows;
    int64_t column, n_columns;
    float *x; // the copy: (n_columns / LANES, n_rows, LANES)
    int64_t tile;
};

/* A few rows of the matrix and of x, over n columns. */
struct factors {
    const char *w;
    uintptr_t next; // what of the matrix is to be fetched, as much as is read
    int64_t w_row;  // bytes
    const float *x;
    int64_t n_rows, n; // of the block; n is a multiple of LANES
    float *lane;       // partial sums: (outputs, n_rows, LANES)
    bool is_first;     // there are none yet
};

INLINE int64_t bytes_of(int64_t n, enum dtype dtype)
{
    return n * (dtype == DTYPE_F32 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t));
}

/* f->lane += the products of `outputs` rows of w and `rows` rows of x, of the lanes those
 * of n_parts vectors from `part` on. These numbers are constants where this is inlined, so
 * that sums stay in registers. */
INLINE void add_products(const struct factors *f, const int outputs, const int rows,
                         const int part, const int n_parts, enum dtype dtype)
{
    vec sum[OUTPUTS][GROUP][LANES / VEC];
    const int64_t lane_row = f->n_rows * LANES, run = bytes_of(LANES, dtype);
    uintptr_t next = f->next;
#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < n_parts; i++)
                sum[o][r][i] = f->is_first
                                   ? (vec){0}
                                   : vecs(f->lane + o * lane_row + r * LANES)[part + i];
    for (int64_t c = 0; c < f->n; c += LANES) {
        if (outputs > 1 && part == 0 && (c * run / LANES) % 64 == 0)
#pragma GCC unroll 4
            for (int o = 0; o < outputs; o++)
                __builtin_prefetch((const void *)(next + (uintptr_t)o * 64), 0, 2);
        next += (uintptr_t)(outputs * run);
#pragma GCC unroll 4
        for (int i = 0; i < n_parts; i++) {
            vec w_i[OUTPUTS];
#pragma GCC unroll 4
            for (int o = 0; o < outputs; o++)
                w_i[o] = vec_load(f->w + o * f->w_row, c + (part + i) * VEC, VEC, dtype);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vec x_i = vecs(f->x + c * f->n_rows + r * LANES)[part + i];
                if (outputs > 1)
                    HOLD(x_i);
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
#pragma GCC unroll 4
            for (int i = 0; i < n_parts; i++)
                ((vec *)(f->lane + o * lane_row + r * LANES))[part + i] = sum[o][r][i];
}

/* All lanes: at once for few sums, which would wait for each other, else vector by vector,
 * so that there are registers for more outputs and rows. */
INLINE void add_lanes(const struct factors *f, const int outputs, const int rows,
                      enum dtype dtype)
{
    const int n_parts = outputs * rows <= 2 ? LANES / VEC : 1;
#pragma GCC unroll 4
    for (int part = 0; part < LANES / VEC; part += n_parts)
        add_products(f, outputs, rows, part, n_parts, dtype);
}

/* The columns of one tile for `rows` of the block's rows from r on: f has those of the
 * first. Past the last multiple of LANES it is as if zeros followed: in the copy they
 * do. */
INLINE void add_rows(struct factors f, int64_t r, const int outputs, const int rows,
                     enum dtype dtype)
{
    int64_t n_rest = f.n % LANES;
    f.n -= n_rest;
    f.x += r * LANES;
    f.lane += r * LANES;
    add_lanes(&f, outputs, rows, dtype);
    for (int j = 0; j < outputs && n_rest > 0; j++) {
        float rest[LANES] = {0};
        struct factors last = {.w = (const char *)rest,
                               .x = f.x + f.n * f.n_rows,
                               .n_rows = f.n_rows,
                               .n = LANES,
                               .lane = f.lane + j * f.n_rows * LANES};
        for (int i = 0; i < n_rest; i += VEC)
            *(vec *)(rest + i) =
                vec_load(f.w + j * f.w_row, f.n + i, i64_min(VEC, n_rest - i), dtype);
        add_lanes(&last, 1, rows, DTYPE_F32);
    }
}

/* All rows of the block. */
INLINE void add_outputs(const struct factors *f, const int outputs, enum dtype dtype)
{
    int64_t r = 0;
    for (; r + GROUP <= f->n_rows; r += GROUP)
        add_rows(*f, r, outputs, GROUP, dtype);
    for (; r + 4 <= f->n_rows; r += 4)
        add_rows(*f, r, outputs, 4, dtype);
    for (; r + 2 <= f->n_rows; r += 2)
        add_rows(*f, r, outputs, 2, dtype);
    if (r < f->n_rows)
        add_rows(*f, r, outputs, 1, dtype);
}

/* Outputs [o, o + n) with one row: a row of the matrix at a time. */
INLINE void add_one(float *lane, const struct block *b, int64_t o, int64_t n,
                    enum dtype dtype)
{
    int64_t w_row = bytes_of(b->m->w->cols, dtype);
    struct factors f = {.w = (const char *)b->m->w->data + o * w_row +
                             bytes_of(b->column, dtype),
                        .x = b->x,
                        .n_rows = 1,
                        .n = b->n_columns,
                        .lane = lane,
                        .is_first = b->column == 0};
    for (int64_t i = 0; i < n; i++, f.w += w_row, f.lane += LANES)
        add_rows(f, 0, 1, 1, dtype);
}

/* With more, all columns of the block, tile by tile. */
INLINE void add_many(float *lane, const struct block *b, int64_t o, int64_t n,
                     enum dtype dtype)
{
    struct factors f = {.w_row = bytes_of(b->m->w->cols, dtype), .n_rows = b->n_rows};
    const char *first = (const char *)b->m->w->data + o * f.w_row;
    f.next = (uintptr_t)(first + n * f.w_row);
    for (int64_t c = 0; c < b->n_columns; c += b->tile) {
        const char *w = first + bytes_of(b->column + c, dtype);
        int64_t i = 0;
        f.x = b->x + c * b->n_rows;
        f.n = i64_min(b->tile, b->n_columns - c);
        f.is_first = b->column + c == 0;
        for (; i + OUTPUTS <= n; i += OUTPUTS) {
            f.w = w + i * f.w_row;
            f.lane = lane + i * b->n_rows * LANES;
            add_outputs(&f, OUTPUTS, dtype);
            f.next += (uintptr_t)bytes_of(OUTPUTS * f.n, dtype);
        }
        for (; i < n; i++) {
            f.w = w + i * f.w_row;
            f.lane = lane + i * b->n_rows * LANES;
            add_outputs(&f, 1, dtype);
        }
    }
}

/* Functions of their own: in one, there would not be enough registers for the loops. */
static __attribute__((noinline)) void add_one_row(float *lane, const struct block *b,
                                                  int64_t o, int64_t n)
{
    TYPED(b->m->w->dtype, add_one, lane, b, o, n);
}

static __attribute__((noinline)) void add_many_rows(float *lane, const struct block *b,
                                                    int64_t o, int64_t n)
{
    TYPED(b->m->w->dtype, add_many, lane, b, o, n);
}

/* The block's columns of its rows, zeros at the end. */
INLINE void copy_run(const struct block *b, enum dtype dtype)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t at = (b->row + r) * b->m->w->cols + b->column;
        for (int64_t c = 0; c < b->n_columns; c += LANES)
            for (int i = 0; i < LANES; i += VEC) {
                int64_t left = i64_max(0, i64_min(VEC, b->n_columns - c - i));
                *(vec *)(b->x + c * b->n_rows + r * LANES + i) =
                    vec_load(b->m->x, at + c + i, left, dtype);
            }
    }
}

static void copy_typed_run(const struct block *b, enum dtype dtype)
{
    TYPED(dtype, copy_run, b);
}

/* to[o] := the sum of the lanes at lane + o * step, 8 of them: what lanes_sum() does to one,
 * to all at once. */
INLINE void sum_side(float *to, const float *lane, int64_t step)
{
    typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
    eight s[SIDE];
#define JOIN(a, b, i, j, k, l)                                                           \
    __builtin_shufflevector(a, b, i, j, 8 + (i), 8 + (j), k, l, 8 + (k), 8 + (l))
    for (int o = 0; o < SIDE; o++)
        s[o] =
            *(const eight *)(lane + o * step) + *(const eight *)(lane + o * step + SIDE);
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
INLINE void store_panel(const struct block *b, const float *lane, int64_t o, int64_t n,
                        enum dtype y_dtype)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        _Alignas(64) float y[PANEL];
        for (int64_t i = 0; i < n; i += SIDE)
            sum_side(y + i, lane + (i * b->n_rows + r) * LANES, b->n_rows * LANES);
        for (int64_t i = 0; i < n; i++)
            y[i] += b->m->b ? b->m->b[o + i] : 0.0F;
        int64_t at = (b->row + r) * b->m->w->rows + o;
        for (int64_t i = 0; i < n; i += VEC)
            vec_store(b->m->y, at + i, *vecs(y + i), i64_min(VEC, n - i), y_dtype);
    }
}

static void store_typed_panel(const struct block *b, const float *lane, int64_t o,
                              int64_t n)
{
    TYPED(b->m->y_dtype, store_panel, b, lane, o, n);
}

/* Outputs [o, o + n), at most PANEL, of the block's rows, over all columns in runs. */
static void outputs_of_rows(struct block *b, int64_t o, int64_t n, int64_t run,
                            enum dtype x_dtype)
{
    _Alignas(64) float lane[PANEL * ROWS_MOST * LANES];
    for (int64_t c = 0; c < b->m->w->cols; c += run) {
        if (b->column != c) {
            b->column = c;
            b->n_columns = i64_min(run, b->m->w->cols - c);
            copy_typed_run(b, x_dtype);
        }
        if (b->n_rows == 1)
            add_one_row(lane, b, o, n);
        else
            add_many_rows(lane, b, o, n);
    }
    store_typed_panel(b, lane, o, n);
}

/* How many outputs: few of long rows, so that the next ones find room beside them. */
static int64_t panel_of(const struct weight *w, int64_t n_rows)
{
    int64_t most = PANEL_BYTES / (w->cols * (int64_t)dtype_bytes(w->dtype));
    return n_rows == 1 ? 2 * SIDE
                       : i64_min(PANEL, i64_max(OUTPUTS, most / OUTPUTS * OUTPUTS));
}

/* Outputs [first, end) of all rows. */
static void outputs_of_thread(const struct matvec *m, int64_t first, int64_t end,
                              enum dtype x_dtype)
{
    _Alignas(64) float x[COPY_ELEMENTS];
    int64_t run = i64_min(i64_round_up(m->w->cols, LANES), COPY_ELEMENTS);
    int64_t most = i64_min(ROWS_MOST, COPY_ELEMENTS / run);
    for (int64_t r = 0; r < m->R; r += most) {
        int64_t n_rows = i64_min(most, m->R - r), panel = panel_of(m->w, n_rows);
        int64_t n_tiles = n_rows > 1 ? (run + TILE - 1) / TILE : 1;
        struct block b = {.m = m,
                          .row = r,
                          .n_rows = n_rows,
                          .column = -1,
                          .x = x,
                          .tile = i64_round_up((run + n_tiles - 1) / n_tiles, LANES)};
        for (int64_t o = first; o < end; o += panel)
            outputs_of_rows(&b, o, i64_min(panel, end - o), run, x_dtype);
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
