/*
 * The choice of BLIS's kernels, and their buffers.
 *
 * BLIS knows processors by name, and takes AVX2 kernels on those that are newer than
 * itself or whose name a cloud hides. So the choice is made here, by what CPUID says the
 * processor can do; BLIS reads it from the environment when it is called first.
 *
 * BLIS allocates its buffers when a GEMM needs them, aborts the program when that fails,
 * and pools them for later GEMMs: so one GEMM on each thread allocates all of them
 * beforehand. A GEMM as small as that would be over before the next thread's begins, and
 * both would use the same buffers; so its kernel waits until all threads are in theirs.
 */
#include "device/cpu/gemm.h"

#include <blis.h>
#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef BLIS_CONFIG_SKX // on x86-64 alone
#include <cpuid.h>
#endif

#define ENV_CHOICE "BLIS_ARCH_TYPE"
#define KERNEL_STACK_BYTES (1 << 20) // at least twice what the deepest kernel takes

/* -- the choice ---------------------------------------------------------------------- */

bool gemm_wants_avx512(const struct gemm_processor *p)
{
    enum { ZEN_4 = 0x19 };
    // up to Zen 4 AMD computes 512 bits in two halves: BLIS's AVX2 kernels are as fast
    bool computes_halves = strcmp(p->vendor, "AuthenticAMD") == 0 && p->family <= ZEN_4;
    return p->has_avx512 && !computes_halves;
}

#ifdef BLIS_CONFIG_SKX
static struct gemm_processor this_processor(void)
{
    struct gemm_processor p = {0};
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) {
        memcpy(p.vendor, &ebx, 4);
        memcpy(p.vendor + 4, &edx, 4);
        memcpy(p.vendor + 8, &ecx, 4);
    }
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
        unsigned family = eax >> 8 & 0xf;
        p.family = (int)(family == 0xf ? family + (eax >> 20 & 0xff) : family);
    }
    // these ask whether the system keeps the registers (XCR0), too
    p.has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return p;
}

#endif

/* The variable is unset again: processes started from here may run elsewhere. */
static void choose_kernels(void)
{
    bool is_chosen = false;
#ifdef BLIS_CONFIG_SKX
    struct gemm_processor p = this_processor();
    if (!getenv(ENV_CHOICE) && gemm_wants_avx512(&p)) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)BLIS_ARCH_SKX);
        is_chosen = setenv(ENV_CHOICE, id, 0) == 0;
    }
#endif
    bli_init();
    if (is_chosen)
        unsetenv(ENV_CHOICE);
}

void gemm_choose(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_kernels);
}

const char *gemm_version(void)
{
    gemm_choose();
    return bli_info_get_version_str();
}

const char *gemm_kernels_name(void)
{
    gemm_choose();
    return bli_arch_string(bli_arch_query_id());
}

/* -- the buffers --------------------------------------------------------------------- */

/* Of the GEMMs that start together; mutable, but touched by them alone. */
static pthread_barrier_t all_in_a_product;

static void wait_for_all(dim_t m, dim_t n, dim_t k, float *restrict alpha,
                         float *restrict a, float *restrict b, float *restrict beta,
                         float *restrict c, inc_t rs_c, inc_t cs_c,
                         auxinfo_t *restrict data, cntx_t *restrict cntx)
{
    (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)b, (void)beta;
    (void)c, (void)rs_c, (void)cs_c, (void)data, (void)cntx;
    pthread_barrier_wait(&all_in_a_product);
}

/* One GEMM of size 1, by the kernel of `cntx`, or by BLIS's own for NULL. */
static void multiply_one(int n_threads, cntx_t *cntx)
{
    float one = 1, a = 0, b = 0, c = 0;
    rntm_t rntm = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(n_threads, &rntm);
    bli_rntm_disable_l3_sup(&rntm);
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, 1, 1, 1, &one, &a, 1, 1, &b, 1, 1,
                 &one, &c, 1, 1, cntx, &rntm);
}

/* Packed panels of both factors. */
static size_t bytes_per_thread(void)
{
    enum { FACTOR_A, FACTOR_B, N_FACTORS };
    size_t total = 0;
    for (dim_t i = FACTOR_A; i < N_FACTORS; i++) {
        pool_t *pool = bli_pba_pool(i, bli_pba_query());
        total += bli_pool_block_size(pool) + bli_pool_align_size(pool);
    }
    return total;
}

static size_t stack_bytes(void)
{
    enum { USUAL = 8 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return USUAL;
    return limit.rlim_cur;
}

/* The stack of the first thread grows as it is used, and a process without memory for
 * that dies; those of other threads are mapped from their start. */
static void __attribute__((noinline)) grow_stack(void)
{
    enum { PAGE = 4096 };
    volatile char stack[KERNEL_STACK_BYTES];
    for (size_t i = sizeof stack; i > 0; i -= i < PAGE ? i : PAGE)
        stack[i - 1] = 0;
}

/* A thread that allocates gets 64 MiB of addresses for a heap of its own: where they are
 * limited, that would be what buffers and stacks need. */
static void share_one_heap(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

/* Whether so many bytes can be had now. */
static bool can_have(size_t n_bytes)
{
    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    munmap(memory, n_bytes);
    return true;
}

int gemm_start(struct error *err)
{
    enum { SMALL_THINGS = 1 << 20 }; // what BLIS and OpenMP note about themselves
    int n = omp_get_max_threads();
    gemm_choose();
    share_one_heap();
    size_t needed = (size_t)n * bytes_per_thread() + (size_t)(n - 1) * stack_bytes();
    if (!can_have(needed + KERNEL_STACK_BYTES + SMALL_THINGS))
        return error_set(err, ERROR_RUNTIME,
                         "not enough memory: %d threads need %.1f MB for the buffers of "
                         "matrix products before anything else; lower num_threads, or "
                         "raise the limit on memory (ulimit -v)",
                         n, (double)needed / 1e6);
    if (stack_bytes() >= 2 * KERNEL_STACK_BYTES)
        grow_stack();
    cntx_t cntx = *bli_gks_query_cntx();
    bli_func_set_dt((void_fp)(uintptr_t)wait_for_all, BLIS_FLOAT,
                    bli_cntx_get_l3_vir_ukrs(BLIS_GEMM_UKR, &cntx));
#pragma omp parallel num_threads(n)
    {
#pragma omp single // all wait at its end; OpenMP may give fewer threads than n
        pthread_barrier_init(&all_in_a_product, NULL, (unsigned)omp_get_num_threads());
        multiply_one(1, &cntx);
    }
    pthread_barrier_destroy(&all_in_a_product);
    multiply_one(n, NULL);
    return 0;
}
