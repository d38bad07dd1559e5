/*
 * A matrix times a few rows, as decoding needs it: its time is that of reading the
 * matrix, so every row of it is read once, in order, and multiplied with all rows of x
 * while it is in the first cache. Threads share the outputs in fixed ranges: each reads
 * one contiguous part of the matrix, which the processor fetches ahead by itself: asking
 * for it earlier, or reading several rows at a time, gained nothing.
 *
 * A sum runs over LANES partial sums in the order of lanes_dot(), whatever the number of
 * rows: so the bits of a row do not depend on its neighbours.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_convert.h"

#define GROUP 4      // rows at a time, so that accumulators stay in registers
#define ROWS_MOST 16 // that share one widening of a row of the matrix

/* sum[r] += w * x[r] over n columns, a multiple of LANES. `rows` is a constant where this
 * is inlined, so that sums stay in registers. */
static inline __attribute__((always_inline)) void add_steps(vec sum[GROUP][LANES / VEC],
                                                            const float *w,
                                                            const float *x, int64_t x_row,
                                                            int64_t n, const int rows)
{
    for (int64_t c = 0; c < n; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            vec w_i = vecs(w + c)[i];
            for (int r = 0; r < rows; r++)
                sum[r][i] = vec_fused(w_i, vecs(x + r * x_row + c)[i], sum[r][i]);
        }
}

/* A row of the matrix, or a run of one, and rows of x to multiply it with. */
struct products {
    const float *w, *x;
    int64_t x_row, n;
    bool is_first; // run of the row: sums begin from zero
};

/* lane[r] (+)= w * x[r]; past the last multiple of LANES, as if zeros followed. */
static inline __attribute__((always_inline)) void add_products(float (*lane)[LANES],
                                                               const struct products *p,
                                                               int64_t first,
                                                               const int rows)
{
    vec sum[GROUP][LANES / VEC] = {{{0}}};
    const float *x = p->x + first * p->x_row;
    int64_t whole = p->n / LANES * LANES, n_rest = p->n - whole;
    if (!p->is_first)
        memcpy(sum, lane, (size_t)rows * sizeof *lane);
    add_steps(sum, p->w, x, p->x_row, whole, rows);
    if (n_rest > 0) {
        float rest[GROUP + 1][LANES] = {{0}};
        memcpy(rest[GROUP], p->w + whole, (size_t)n_rest * sizeof *p->w);
        for (int r = 0; r < rows; r++)
            memcpy(rest[r], x + r * p->x_row + whole, (size_t)n_rest * sizeof *x);
        add_steps(sum, rest[GROUP], rest[0], LANES, LANES, rows);
    }
    memcpy(lane, sum, (size_t)rows * sizeof *lane);
}

static void add_groups(float (*lane)[LANES], const struct products *p, int64_t rows)
{
    int64_t r = 0;
    for (; r + GROUP <= rows; r += GROUP)
        add_products(lane + r, p, r, GROUP);
    switch (rows - r) {
    case 3:
        add_products(lane + r, p, r, 3);
        break;
    case 2:
        add_products(lane + r, p, r, 2);
        break;
    case 1:
        add_products(lane + r, p, r, 1);
        break;
    default:
        break;
    }
}

/* lane[r] := the products of row o of a 16-bit matrix, widened run by run. */
static void add_widened(float (*lane)[LANES], const struct matvec *m, int64_t o,
                        struct products p, int64_t rows)
{
    float widened[CONVERT_RUN];
    const uint16_t *w = (const uint16_t *)m->w->data + o * m->w->cols;
    const float *x = p.x;
    p.w = widened;
    int64_t c = 0;
    do { // a row has at least one element
        p.n = i64_min(CONVERT_RUN, m->w->cols - c);
        p.x = x + c;
        p.is_first = c == 0;
        widen(widened, w + c, m->w->dtype, p.n);
        add_groups(lane, &p, rows);
        c += CONVERT_RUN;
    } while (c < m->w->cols);
}

/* Output o of rows [first, first + rows). */
static void output_of_rows(const struct matvec *m, int64_t o, int64_t first, int64_t rows)
{
    float lane[ROWS_MOST][LANES];
    struct products p = {.x = m->x + first * m->w->cols,
                         .x_row = m->w->cols,
                         .n = m->w->cols,
                         .is_first = true};
    if (m->w->dtype == DTYPE_F32) {
        p.w = (const float *)m->w->data + o * m->w->cols;
        add_groups(lane, &p, rows);
    } else {
        add_widened(lane, m, o, p, rows);
    }
    for (int64_t r = 0; r < rows; r++)
        m->y[(first + r) * m->w->rows + o] = lanes_sum(lane[r]) + (m->b ? m->b[o] : 0.0F);
}

void K(matvec)(struct stream *s, const struct matvec *m)
{
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < m->w->rows; o++)
        for (int64_t r = 0; r < m->R; r += ROWS_MOST)
            output_of_rows(m, o, r, i64_min(ROWS_MOST, m->R - r));
}
