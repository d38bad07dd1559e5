#include "parallel/reducer.h"

#include <stdlib.h>

int reducer_init(struct reducer *r, struct comm *group, int64_t min_bytes, int max_ranges,
                 struct error *err)
{
    *r = (struct reducer){
        .group = group, .min_bytes = min_bytes, .max_requests = max_ranges};
    r->requests = calloc((size_t)max_ranges, sizeof *r->requests);
    if (!r->requests)
        return error_set(err, ERROR_RUNTIME, "out of memory for %d reductions",
                         max_ranges);
    return 0;
}

void reducer_release(struct reducer *r)
{
    free(r->requests);
    *r = (struct reducer){0};
}

static void flush_range(struct reducer *r)
{
    if (r->end == r->first)
        return;
    CHECK(r->n_requests < r->max_requests, "%d ranges", r->n_requests);
    comm_allreduce_start(r->group, r->first, r->dtype,
                         (r->end - r->first) / (int64_t)dtype_bytes(r->dtype),
                         &r->requests[r->n_requests++]);
    r->first = r->end = NULL;
}

/* Layers end from the last to the first, so a range usually ends where the one before it
 * begins, but for the gap that aligns parameters: gaps are zero on every rank. */
static bool touches(const struct reducer *r, const char *end, enum dtype dtype)
{
    enum { MOST_GAP = 128 };
    return r->end > r->first && dtype == r->dtype && end <= r->first &&
           r->first - end < MOST_GAP;
}

void reducer_add(struct reducer *r, void *x, enum dtype dtype, int64_t n)
{
    char *first = x, *end = first + n * (int64_t)dtype_bytes(dtype);
    if (n == 0)
        return;
    if (touches(r, end, dtype)) {
        r->first = first;
    } else {
        flush_range(r);
        r->first = first;
        r->end = end;
        r->dtype = dtype;
    }
    if (r->end - r->first >= r->min_bytes)
        flush_range(r);
}

int reducer_wait(struct reducer *r, struct error *err)
{
    int rc = 0;
    flush_range(r);
    for (int i = 0; i < r->n_requests; i++)
        if (comm_wait(&r->requests[i], err))
            rc = -1;
    r->n_requests = 0;
    return rc;
}
