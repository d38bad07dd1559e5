/*
 * Every GEMM of the program goes through this function, so that its bits depend on the
 * values and on K alone.
 *
 * BLIS cuts K into blocks of a fixed size and adds them in order; rows, columns and
 * threads only decide who computes an element, not how. That holds with alpha = 1 and
 * beta 0 or 1 (no second rounding) and with the small-matrix path switched off, which
 * would pick another kernel by shape. tests/test_gemm_bits.c holds BLIS to it.
 *
 * So a GEMM is cut into a share of rows and columns for each thread, and BLIS computes
 * each share on one thread. What BLIS's threads would pack once for all is packed more
 * than once, but no thread waits before the end: BLIS's threads spin at many barriers per
 * GEMM, and one that is descheduled holds up all others.
 */
#include "device/cpu/gemm.h"

#include <blis.h>
#include <omp.h>

/* What BLIS's kernels compute at once divides these, or nearly. */
#define SHARE_ROWS_UNIT 12
#define SHARE_COLUMNS_UNIT 16
/* Beyond this number shares would be so small that packing them counts. */
#define SHARES_MOST 8

/* The whole GEMM by n_threads of BLIS's. */
static void multiply(const struct gemm *g, int n_threads)
{
    float alpha = 1.0F;
    float beta = g->accumulate ? 1.0F : 0.0F;
    rntm_t rntm = BLIS_RNTM_INITIALIZER;
    gemm_choose();
    bli_rntm_set_num_threads(n_threads, &rntm);
    bli_rntm_disable_l3_sup(&rntm);
    // BLIS takes non-const pointers to what it only reads
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &alpha,
                 (float *)(uintptr_t)g->a, g->a_row, g->a_col, (float *)(uintptr_t)g->b,
                 g->b_row, g->b_col, &beta, g->c, g->c_row, g->c_col, NULL, &rntm);
}

/* Into how many parts the rows are cut, each of which packs all columns of its share of
 * B, while each part of the columns packs all rows of its share of A. */
static int n_row_parts(const struct gemm *g, int n_shares)
{
    int best = 1;
    for (int rows = 2; rows <= n_shares; rows++)
        if (n_shares % rows == 0 &&
            n_shares / rows * g->m + rows * g->n < n_shares / best * g->m + best * g->n)
            best = rows;
    return best;
}

/* Where part i of n_parts of `n` begins. */
static int64_t part_begin(int64_t n, int64_t unit, int i, int n_parts)
{
    int64_t n_units = (n + unit - 1) / unit;
    return i64_min(n_units * i / n_parts * unit, n);
}

static void multiply_share(const struct gemm *g, int share, int n_shares)
{
    int rows = n_row_parts(g, n_shares), columns = n_shares / rows;
    int i = share / columns, j = share % columns;
    int64_t m = part_begin(g->m, SHARE_ROWS_UNIT, i, rows);
    int64_t n = part_begin(g->n, SHARE_COLUMNS_UNIT, j, columns);
    struct gemm part = *g;
    part.m = part_begin(g->m, SHARE_ROWS_UNIT, i + 1, rows) - m;
    part.n = part_begin(g->n, SHARE_COLUMNS_UNIT, j + 1, columns) - n;
    part.a += m * g->a_row;
    part.b += n * g->b_col;
    part.c += m * g->c_row + n * g->c_col;
    if (part.m > 0 && part.n > 0)
        multiply(&part, 1);
}

void gemm_blis_shares(const struct gemm *g, int n_shares)
{
#pragma omp parallel for num_threads(n_shares) schedule(static, 1)
    for (int share = 0; share < n_shares; share++)
        multiply_share(g, share, n_shares);
}

void gemm_blis(struct stream *s, const struct gemm *g)
{
    (void)s;
    // more threads than processors would only wait for each other
    int n_threads = (int)i64_min(omp_get_max_threads(), omp_get_num_procs());
    if (omp_in_parallel() || n_threads == 1)
        multiply(g, 1);
    else if (n_threads > SHARES_MOST)
        multiply(g, n_threads);
    else
        gemm_blis_shares(g, n_threads);
}
