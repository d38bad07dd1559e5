#include "board/run_columns.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t block_bytes(const struct run_columns *c)
{
    size_t row = RUN_N_AXES * sizeof(double) + (size_t)c->n_floats * sizeof(float);
    return RUN_BLOCK_ROWS * row;
}

static double *axis_of(void *block, enum run_column axis)
{
    return (double *)block + (int64_t)axis * RUN_BLOCK_ROWS;
}

static float *floats_of(const struct run_columns *c, void *block, enum run_column column)
{
    float *first = (float *)(void *)((double *)block + RUN_N_AXES * RUN_BLOCK_ROWS);
    return first + (int64_t)((int)column - c->first) * RUN_BLOCK_ROWS;
}

/* -- rows ---------------------------------------------------------------------------- */

/* Free the blocks behind the last row, but for `spare` of them: a file that goes back and
 * forth would have us allocate at every row. */
static void free_blocks(struct run_columns *c, int64_t spare)
{
    int64_t n_needed = (c->n_rows + RUN_BLOCK_ROWS - 1) / RUN_BLOCK_ROWS + spare;
    while (c->n_blocks > n_needed)
        free(c->blocks[--c->n_blocks]);
}

void run_columns_reset(struct run_columns *c)
{
    c->n_rows = 0;
    free_blocks(c, 1);
}

void run_columns_release(struct run_columns *c)
{
    c->n_rows = 0;
    free_blocks(c, 0);
    free(c->blocks);
    *c = (struct run_columns){.first = c->first, .n_floats = c->n_floats};
}

double run_columns_at(const struct run_columns *c, int64_t row, enum run_column column)
{
    CHECK(row >= 0 && row < c->n_rows, "row %lld of %lld", (long long)row,
          (long long)c->n_rows);
    void *block = c->blocks[row / RUN_BLOCK_ROWS];
    if (column < RUN_N_AXES)
        return axis_of(block, column)[row % RUN_BLOCK_ROWS];
    return (double)floats_of(c, block, column)[row % RUN_BLOCK_ROWS];
}

void run_columns_cut(struct run_columns *c, double step)
{
    int64_t low = 0, high = c->n_rows; // the first row whose step is not below
    if (high == 0 || run_columns_at(c, high - 1, RUN_STEP) < step)
        return;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (run_columns_at(c, middle, RUN_STEP) < step)
            low = middle + 1;
        else
            high = middle;
    }
    c->n_rows = low;
    free_blocks(c, 1);
}

/* A double that no float holds is no smaller than the largest: shown as not finite. */
static float to_float(double x)
{
    return fabs(x) > 3.4028234e38 ? INFINITY : (float)x;
}

int run_columns_add(struct run_columns *c, const struct run_values *values)
{
    run_columns_cut(c, values->at[RUN_STEP]);
    int64_t at = c->n_rows % RUN_BLOCK_ROWS, block = c->n_rows / RUN_BLOCK_ROWS;
    if (block == c->n_blocks) {
        if (grow_array(&c->blocks, &c->capacity, c->n_blocks + 1, sizeof *c->blocks))
            return -1;
        c->blocks[block] = malloc(block_bytes(c));
        if (!c->blocks[block])
            return -1;
        c->n_blocks++;
    }
    for (int i = 0; i < RUN_N_AXES; i++)
        axis_of(c->blocks[block], (enum run_column)i)[at] = values->at[i];
    for (int i = c->first; i < c->first + c->n_floats; i++)
        floats_of(c, c->blocks[block], (enum run_column)i)[at] = to_float(values->at[i]);
    c->n_rows++;
    return 0;
}

/* -- down-sampled ---------------------------------------------------------------------- */

struct range { // of the points that are wanted
    double first, last;
    int64_t n_points;
};

/* Hand every point of the range to `fn`. */
typedef void point_fn(void *context, double x, double y);

static void each_point(const struct run_columns *c, enum run_column y, enum run_column x,
                       const struct range *wanted, point_fn *fn, void *context)
{
    for (int64_t b = 0, row = 0; row < c->n_rows; b++, row += RUN_BLOCK_ROWS) {
        const double *xs = axis_of(c->blocks[b], x);
        const float *ys = floats_of(c, c->blocks[b], y);
        int64_t n = i64_min(RUN_BLOCK_ROWS, c->n_rows - row);
        for (int64_t i = 0; i < n; i++)
            if (!isnan(ys[i]) && xs[i] >= wanted->first && xs[i] <= wanted->last &&
                isfinite(xs[i]))
                fn(context, xs[i], (double)ys[i]);
    }
}

static void widen(void *context, double x, double y)
{
    struct range *found = context;
    (void)y;
    found->first = fmin(found->first, x);
    found->last = fmax(found->last, x);
    found->n_points++;
}

struct sampling {
    struct run_bucket *buckets;
    int64_t n_buckets;
    bool is_whole;       // points come as they are, one a bucket
    int64_t next;        // of these
    double first, per_x; // buckets per unit of x / 2: halves do not overflow
};

static void put_in_bucket(void *context, double x, double y)
{
    struct sampling *s = context;
    double at = (x / 2 - s->first / 2) * s->per_x;
    int64_t i = s->is_whole ? s->next++ : (int64_t)fmin(at, (double)(s->n_buckets - 1));
    struct run_bucket *bucket = &s->buckets[i];
    if (isnan(bucket->x) || x < bucket->x)
        bucket->x = x;
    if (!isfinite(y))
        return;
    if (bucket->n++ == 0)
        bucket->min = bucket->max = y;
    bucket->min = fmin(bucket->min, y);
    bucket->max = fmax(bucket->max, y);
    bucket->sum += y;
}

int run_columns_series(const struct run_columns *c, enum run_column y, enum run_column x,
                       double from, double to, int64_t n_buckets,
                       struct run_series *series)
{
    const struct range wanted = {.first = from, .last = to};
    struct range found = {.first = RUN_LOST, .last = -RUN_LOST};
    *series = (struct run_series){0};
    CHECK(n_buckets >= 1 && n_buckets <= RUN_BUCKETS_MOST && x < RUN_N_AXES,
          "%lld buckets over column %d", (long long)n_buckets, (int)x);
    each_point(c, y, x, &wanted, widen, &found);
    series->n_points = found.n_points;
    if (found.n_points == 0)
        return 0;
    struct sampling s = {.n_buckets = i64_min(n_buckets, found.n_points),
                         .is_whole = found.n_points <= n_buckets,
                         .first = found.first};
    s.per_x = (double)n_buckets / fmax(found.last / 2 - found.first / 2, 0x1p-900);
    s.buckets = malloc((size_t)s.n_buckets * sizeof *s.buckets);
    if (!s.buckets)
        return -1;
    for (int64_t i = 0; i < s.n_buckets; i++)
        s.buckets[i] = (struct run_bucket){.x = RUN_NONE};
    each_point(c, y, x, &wanted, put_in_bucket, &s);
    for (int64_t i = 0; i < s.n_buckets; i++)
        if (!isnan(s.buckets[i].x))
            s.buckets[series->n_buckets++] = s.buckets[i];
    series->buckets = s.buckets;
    return 0;
}

void run_series_release(struct run_series *series)
{
    free(series->buckets);
    *series = (struct run_series){0};
}
