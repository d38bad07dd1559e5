/* The table of sets: what each needs, and how a lack of it is told. */
#include "device/kernel_sets.h"

#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#define IF_X86(table) (&(table))
extern const struct kernels kernels_cpu_avx2;
extern const struct kernels kernels_cpu_avx512;
extern const struct kernels kernels_cpu_amx;
#else
#define IF_X86(table) NULL
#endif
extern const struct kernels kernels_cpu_generic;

#define NEEDS_AVX2 (HAS_AVX2 | HAS_FMA | HAS_F16C | KEEPS_256_BITS)
#define NEEDS_AVX512                                                                     \
    (NEEDS_AVX2 | HAS_AVX512F | HAS_AVX512DQ | HAS_AVX512BW | HAS_AVX512VL |             \
     KEEPS_512_BITS)
#define NEEDS_AMX                                                                        \
    (NEEDS_AVX512 | HAS_AMX_TILE | HAS_AMX_BF16 | KEEPS_TILES | GRANTS_TILES |           \
     MULTIPLIES_TILES)

static const struct {
    uint32_t needs;
    const struct kernels *table;
} sets[N_KERNEL_SETS] = {
    [KERNEL_SET_GENERIC] = {0, &kernels_cpu_generic},
    [KERNEL_SET_AVX2] = {NEEDS_AVX2, IF_X86(kernels_cpu_avx2)},
    [KERNEL_SET_AVX512] = {NEEDS_AVX512, IF_X86(kernels_cpu_avx512)},
    [KERNEL_SET_AMX] = {NEEDS_AMX, IF_X86(kernels_cpu_amx)},
};

static const struct {
    uint32_t fact;
    uint32_t follows; // the fact without which this one is not worth telling
    const char *words;
} facts_told[] = {
    {HAS_AVX2, 0, "AVX2"},
    {HAS_FMA, 0, "FMA"},
    {HAS_F16C, 0, "F16C"},
    {KEEPS_256_BITS, HAS_AVX2, "an operating system that keeps 256-bit registers"},
    {HAS_AVX512F, 0, "AVX512F"},
    {HAS_AVX512DQ, 0, "AVX512DQ"},
    {HAS_AVX512BW, 0, "AVX512BW"},
    {HAS_AVX512VL, 0, "AVX512VL"},
    {KEEPS_512_BITS, HAS_AVX512F, "an operating system that keeps 512-bit registers"},
    {HAS_AMX_TILE, 0, "AMX-TILE"},
    {HAS_AMX_BF16, 0, "AMX-BF16"},
    {KEEPS_TILES, HAS_AMX_TILE, "an operating system that keeps tiles"},
    {GRANTS_TILES, KEEPS_TILES, "the operating system's permission to use tiles"},
    {MULTIPLIES_TILES, GRANTS_TILES, "a tile unit that multiplies right: a trial failed"},
};

const struct kernels *kernel_set_table(enum kernel_set set)
{
    return sets[set].table;
}

bool kernel_set_lacks(enum kernel_set set, uint32_t facts,
                      char words[KERNEL_SET_WORDS_BYTES])
{
    uint32_t missing = sets[set].needs & ~facts;
    size_t at = 0;
    words[0] = 0;
    if (!sets[set].table)
        snprintf(words, KERNEL_SET_WORDS_BYTES, "the instructions of x86-64");
    for (size_t i = 0; i < ARRAY_LEN(facts_told) && sets[set].table; i++)
        if ((missing & facts_told[i].fact) != 0 &&
            (facts & facts_told[i].follows) == facts_told[i].follows &&
            at < KERNEL_SET_WORDS_BYTES)
            at += (size_t)snprintf(words + at, KERNEL_SET_WORDS_BYTES - at, "%s%s",
                                   at > 0 ? ", " : "", facts_told[i].words);
    return missing != 0 || !sets[set].table;
}

static bool runs(enum kernel_set set, uint32_t facts)
{
    return sets[set].table && (sets[set].needs & ~facts) == 0;
}

int kernel_set_check(enum kernel_set wanted, uint32_t facts, struct error *err)
{
    char lacking[KERNEL_SET_WORDS_BYTES], here[64] = "";
    if (wanted == KERNEL_SET_AUTO || !kernel_set_lacks(wanted, facts, lacking))
        return 0;
    for (int i = KERNEL_SET_GENERIC; i < N_KERNEL_SETS; i++)
        if (runs((enum kernel_set)i, facts)) {
            size_t at = strlen(here);
            snprintf(here + at, sizeof here - at, "%s%s", at > 0 ? ", " : "",
                     kernel_set_name((enum kernel_set)i));
        }
    return error_set(err, ERROR_INPUT,
                     "cpu_kernels is '%s', and this processor lacks %s; here can be had: "
                     "%s, and auto, which takes the fastest",
                     kernel_set_name(wanted), lacking, here);
}

enum kernel_set kernel_set_for(enum kernel_set wanted, uint32_t facts, enum dtype dtype)
{
    int set = wanted == KERNEL_SET_AUTO ? N_KERNEL_SETS - 1 : (int)wanted;
    if (set == KERNEL_SET_AMX && dtype != DTYPE_BF16)
        set = KERNEL_SET_AVX512;
    while (set > KERNEL_SET_GENERIC && !runs((enum kernel_set)set, facts))
        set--;
    return (enum kernel_set)set;
}

bool kernel_set_lies(uint32_t facts, char words[KERNEL_SET_WORDS_BYTES])
{
    const uint32_t claims = HAS_AMX_TILE | HAS_AMX_BF16;
    return (facts & claims) == claims && kernel_set_lacks(KERNEL_SET_AMX, facts, words);
}
