/*
 * Numbers in and out of their storage types. Threads share blocks of elements; a block
 * goes through its steps in short runs, so that memory is read and written once.
 */
#include "device/cpu/cpu_convert.h"
#include "device/cpu/cpu.h"
#include "device/device.h"

#define BLOCK 16384 // elements a thread takes at a time

static const char *element_of(const void *x, enum dtype dtype, int64_t i)
{
    return (const char *)x + (size_t)i * dtype_bytes(dtype);
}

static char *stored_of(void *y, enum dtype dtype, int64_t i)
{
    return (char *)y + (size_t)i * dtype_bytes(dtype);
}

/* -- blocks -------------------------------------------------------------------------- */

static void block_rounded(void *y, float *x, enum dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i += CONVERT_RUN) {
        int64_t run = i64_min(CONVERT_RUN, n - i);
        narrow(stored_of(y, dtype, i), x + i, dtype, run);
        widen(x + i, element_of(y, dtype, i), dtype, run);
    }
}

static void run_add(float *restrict sum, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void block_add(void *y, const float *x, enum dtype dtype, int64_t n)
{
    if (dtype == DTYPE_F32) {
        run_add(y, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i += CONVERT_RUN) {
        float sum[CONVERT_RUN];
        int64_t run = i64_min(CONVERT_RUN, n - i);
        widen(sum, element_of(y, dtype, i), dtype, run);
        run_add(sum, x + i, run);
        narrow(stored_of(y, dtype, i), sum, dtype, run);
    }
}

/* -- flat ranges --------------------------------------------------------------------- */

void K(load)(struct stream *s, float *y, const void *x, enum dtype dtype, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        widen(y + i, element_of(x, dtype, i), dtype, i64_min(BLOCK, n - i));
}

void K(store)(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        narrow(stored_of(y, dtype, i), x + i, dtype, i64_min(BLOCK, n - i));
}

void K(store_rounded)(struct stream *s, void *y, float *x, enum dtype dtype, int64_t n)
{
    if (dtype == DTYPE_F32) {
        K(store)(s, y, x, dtype, n);
        return;
    }
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        block_rounded(stored_of(y, dtype, i), x + i, dtype, i64_min(BLOCK, n - i));
}

void K(store_add)(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        block_add(stored_of(y, dtype, i), x + i, dtype, i64_min(BLOCK, n - i));
}

void K(add_stored)(struct stream *s, void *y, const void *x, enum dtype dtype, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += CONVERT_RUN) {
        float widened[CONVERT_RUN];
        int64_t run = i64_min(CONVERT_RUN, n - i);
        widen(widened, element_of(x, dtype, i), dtype, run);
        block_add(stored_of(y, dtype, i), widened, dtype, run);
    }
}

/* -- matrices ------------------------------------------------------------------------ */

void K(load_matrix)(struct stream *s, float *y, const void *x, enum dtype dtype,
                    int64_t rows, int64_t cols, int64_t x_stride)
{
#pragma omp parallel for collapse(2) schedule(static) if (rows * cols > BLOCK)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += BLOCK)
            widen(y + r * cols + c, element_of(x, dtype, r * x_stride + c), dtype,
                  i64_min(BLOCK, cols - c));
}

void K(store_matrix)(struct stream *s, void *y, const float *x, enum dtype dtype,
                     bool accumulate, int64_t rows, int64_t cols, int64_t y_stride)
{
    void (*block)(void *, const float *, enum dtype, int64_t) =
        accumulate ? block_add : narrow;
#pragma omp parallel for collapse(2) schedule(static) if (rows * cols > BLOCK)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += BLOCK)
            block(stored_of(y, dtype, r * y_stride + c), x + r * cols + c, dtype,
                  i64_min(BLOCK, cols - c));
}

/* -- stashes ------------------------------------------------------------------------- */

float *K(stash_work)(struct stream *s, void *stash, float *scratch)
{
    return s->dev->dtype == DTYPE_F32 ? stash : scratch;
}

void K(stash_store)(struct stream *s, void *stash, float *x, int64_t n)
{
    if (x != stash)
        K(store_rounded)(s, stash, x, s->dev->dtype, n);
}

const float *K(stash_load)(struct stream *s, const void *stash, float *scratch, int64_t n)
{
    if (s->dev->dtype == DTYPE_F32)
        return stash;
    K(load)(s, scratch, stash, s->dev->dtype, n);
    return scratch;
}

void K(stash_columns)(struct stream *s, float *y, const void *stash, int64_t first,
                      int64_t rows, int64_t cols, int64_t stride)
{
    enum dtype dtype = s->dev->dtype;
    K(load_matrix)(s, y, element_of(stash, dtype, first), dtype, rows, cols, stride);
}

/* -- reductions over ranks ----------------------------------------------------------- */

static void run_max(float *restrict top, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        top[i] = top[i] > x[i] || top[i] != top[i] ? top[i] : x[i];
}

void K(reduce)(struct stream *s, const struct reduction *r)
{
    for (int64_t i = 0; i < r->n; i += CONVERT_RUN) {
        float sum[CONVERT_RUN], widened[CONVERT_RUN];
        int64_t run = i64_min(CONVERT_RUN, r->n - i);
        widen(sum, element_of(r->parts[0], r->dtype, i), r->dtype, run);
        for (int p = 1; p < r->n_parts; p++) {
            const void *part = element_of(r->parts[p], r->dtype, i);
            if (r->dtype != DTYPE_F32)
                widen(widened, part, r->dtype, run);
            (r->op == REDUCE_SUM ? run_add : run_max)(
                sum, r->dtype == DTYPE_F32 ? part : widened, run);
        }
        narrow(stored_of(r->x, r->dtype, i), sum, r->dtype, run);
    }
}
