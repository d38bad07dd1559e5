/*
 * run_columns - points of a run by column: axes as doubles, the rest as floats.
 *
 * Memory comes in blocks of rows, so that a table is never copied while it grows and
 * never has twice the memory that it needs. The steps of the rows rise strictly: a row
 * whose step is not above the last one's replaces all rows from its step on, as a resumed
 * run does.
 */
#ifndef BOARD_RUN_COLUMNS_H
#define BOARD_RUN_COLUMNS_H

#include "base/base.h"
#include "board/run_scan.h"

#define RUN_BLOCK_ROWS 8192

struct run_columns {     // of zeros but for the columns: empty
    int first, n_floats; // the columns beside the axes: first .. first + n_floats - 1
    void **blocks;       // axes (RUN_N_AXES, rows), then floats (n_floats, rows)
    int64_t n_blocks, n_rows, capacity; // capacity: of `blocks`
};

void run_columns_release(struct run_columns *c);
/* Without rows. */
void run_columns_reset(struct run_columns *c);

/* Append a row, after removing those of its step and later. -1: no memory. */
MUST_CHECK int run_columns_add(struct run_columns *c, const struct run_values *values);
/* Remove the rows of `step` and later. */
void run_columns_cut(struct run_columns *c, double step);

/* NAN where the row has none; 0 <= row < n_rows, column an axis or one of the table's. */
double run_columns_at(const struct run_columns *c, int64_t row, enum run_column column);

/* -- down-sampled ---------------------------------------------------------------------- */

#define RUN_BUCKETS_MOST 5000

struct run_bucket {
    double x; // of the first point in it
    double min, max, sum;
    int64_t n; // finite points; 0 with a point: all its points are not finite
};

struct run_series {
    struct run_bucket *buckets; // those with points, by rising x; malloc'ed
    int64_t n_buckets;
    int64_t n_points; // of the column in the whole range
};

/* The points of column y whose x is in [from, to], in n_buckets equal parts of that range
 * (of the points, where it is wider): 1 <= n_buckets <= RUN_BUCKETS_MOST. As many points as
 * buckets, or fewer, come as they are. -1: no memory. */
MUST_CHECK int run_columns_series(const struct run_columns *c, enum run_column y,
                                  enum run_column x, double from, double to,
                                  int64_t n_buckets, struct run_series *series);
void run_series_release(struct run_series *series);

#endif
