#include "device/kernels.h"

#include "device/cpu/gemm.h"

#include <omp.h>
#include <stdio.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

extern const struct kernels kernels_ref;
extern const struct kernels kernels_cpu_generic;
#ifdef __x86_64__
extern const struct kernels kernels_cpu_avx2;
#endif

#ifdef __x86_64__
/* The F16C instructions, by hand: not every compiler's __builtin_cpu_supports() knows the
 * name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C) != 0;
}
#endif

/* The table for instructions that not every processor of this kind has; NULL: none. */
static const struct kernels *special_kernels(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return &kernels_cpu_avx2;
#endif
    return NULL;
}

int kernels_list(const struct kernels **tables, int max_tables)
{
    int n = 0;
    if (n < max_tables)
        tables[n++] = &kernels_ref;
    if (n < max_tables)
        tables[n++] = &kernels_cpu_generic;
    const struct kernels *special = special_kernels();
    if (n < max_tables && special)
        tables[n++] = special;
    return n;
}

const struct kernels *kernels_best(void)
{
    const struct kernels *special = special_kernels();
    return special ? special : &kernels_cpu_generic;
}

int64_t linear_scratch(enum dtype weights, enum dtype grads, int64_t columns)
{
    if (weights == DTYPE_F32 && grads == DTYPE_F32)
        return 0;
    return i64_max(LINEAR_PANEL_ELEMENTS, LINEAR_PANEL_ROWS * columns);
}

int64_t attention_scratch(enum dtype stash, int64_t S, int64_t A, int64_t A_kv, int64_t D)
{
    return stash == DTYPE_F32 ? 0 : S * 2 * (A + A_kv) * D; // q, k, v and the output
}

int64_t kernel_partials(int64_t N, int64_t C)
{
    return i64_round_up(N, KERNEL_ROW_CHUNK) / KERNEL_ROW_CHUNK * C;
}

void kernels_set_threads(int n_threads)
{
    omp_set_num_threads(n_threads > 0 ? n_threads : 1);
}

int kernels_threads(void)
{
    return omp_get_max_threads();
}

void kernels_choose(void)
{
    gemm_choose();
}

int kernels_start(struct error *err)
{
    return gemm_start(err);
}

void kernels_words(char words[KERNELS_WORDS_BYTES])
{
    snprintf(words, KERNELS_WORDS_BYTES, "%s; products by BLIS %s, its kernels for %s",
             kernels_best()->name, gemm_version(), gemm_kernels_name());
}
