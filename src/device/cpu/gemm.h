/* gemm - matrix products through BLIS; the one place that knows a BLAS. */
#ifndef DEVICE_CPU_GEMM_H
#define DEVICE_CPU_GEMM_H

#include "base/error.h"
#include "device/kernels.h"

/* As kernels.h says. Outside a parallel region it uses all threads, inside one thread. */
void gemm_blis(struct stream *s, const struct gemm *g);

/* The same cut into shares, one per thread: the same bits. */
void gemm_blis_shares(const struct gemm *g, int n_shares);

/* Panels of 16-bit weights, widened: 4 MB, so that one and its result fit the cache; and
 * the rows that one has at least, and a multiple of. */
#define LINEAR_PANEL_ELEMENTS ((int64_t)1 << 20)
#define LINEAR_PANEL_ROWS 512

/* -- before the first GEMM ----------------------------------------------------------- */

struct gemm_processor { // what the choice of BLIS's kernels depends on
    char vendor[13];    // as CPUID spells it
    int family;
    bool has_avx512; // F, DQ, BW and VL, and the system keeps their registers
};
/* Whether to make BLIS use its AVX-512 kernels; otherwise BLIS chooses. */
bool gemm_wants_avx512(const struct gemm_processor *p);

/* Make the choice, once for the process; a BLIS_ARCH_TYPE in the environment wins. The
 * first GEMM does it, too, but should find no other threads that read the environment. */
void gemm_choose(void);

/* The version of BLIS, and the name by which it calls the kernels that are in use. */
const char *gemm_version(void);
const char *gemm_kernels_name(void);

/* Allocate what GEMMs on all threads need, or fail for lack of memory. */
MUST_CHECK int gemm_start(struct error *err);

#endif
