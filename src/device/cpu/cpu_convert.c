/*
 * Numbers in and out of their storage types. Threads share blocks of elements; a block
 * goes through its steps in short runs, so that memory is read and written once.
 */
#include "device/cpu/cpu_convert.h"
#include "device/cpu/cpu.h"

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

void K(load)(struct stream *s, const struct convert *a)
{
    float *y = a->y;
#pragma omp parallel for schedule(static) if (a->n > BLOCK)
    for (int64_t i = 0; i < a->n; i += BLOCK)
        widen(y + i, element_of(a->x, a->dtype, i), a->dtype, i64_min(BLOCK, a->n - i));
}

void K(store)(struct stream *s, const struct convert *a)
{
    const float *x = a->x;
#pragma omp parallel for schedule(static) if (a->n > BLOCK)
    for (int64_t i = 0; i < a->n; i += BLOCK)
        narrow(stored_of(a->y, a->dtype, i), x + i, a->dtype, i64_min(BLOCK, a->n - i));
}

void K(store_add)(struct stream *s, const struct convert *a)
{
    const float *x = a->x;
#pragma omp parallel for schedule(static) if (a->n > BLOCK)
    for (int64_t i = 0; i < a->n; i += BLOCK)
        block_add(stored_of(a->y, a->dtype, i), x + i, a->dtype,
                  i64_min(BLOCK, a->n - i));
}

void K(add_stored)(struct stream *s, const struct convert *a)
{
#pragma omp parallel for schedule(static) if (a->n > BLOCK)
    for (int64_t i = 0; i < a->n; i += CONVERT_RUN) {
        float widened[CONVERT_RUN];
        int64_t run = i64_min(CONVERT_RUN, a->n - i);
        widen(widened, element_of(a->x, a->dtype, i), a->dtype, run);
        block_add(stored_of(a->y, a->dtype, i), widened, a->dtype, run);
    }
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
