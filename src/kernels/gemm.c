/*
 * Every product of the program goes through this function, so that its bits depend on
 * the values and on K alone.
 *
 * BLIS cuts K into blocks of a fixed size and adds them in order; rows, columns and
 * threads only decide who computes an element, not how. That holds with alpha = 1 and
 * beta 0 or 1 (no second rounding) and with the small-matrix path switched off, which
 * would pick another kernel by shape. tests/test_gemm_bits.c holds BLIS to it.
 */
#include "kernels/gemm.h"

#include <blis.h>
#include <omp.h>

void gemm_blis_threads(const struct gemm *g, int n_threads)
{
    float alpha = 1.0F;
    float beta = g->accumulate ? 1.0F : 0.0F;
    rntm_t rntm = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(n_threads, &rntm);
    bli_rntm_disable_l3_sup(&rntm);
    // BLIS takes non-const pointers to what it only reads
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &alpha,
                 (float *)(uintptr_t)g->a, g->a_row, g->a_col, (float *)(uintptr_t)g->b,
                 g->b_row, g->b_col, &beta, g->c, g->c_row, g->c_col, NULL, &rntm);
}

void gemm_blis(const struct gemm *g)
{
    // more threads than processors would spend their time spinning at BLIS's barriers
    int most = (int)i64_min(omp_get_max_threads(), omp_get_num_procs());
    gemm_blis_threads(g, omp_in_parallel() ? 1 : most);
}
