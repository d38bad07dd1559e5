/*
 * What this processor and its operating system can do: instructions by CPUID, registers
 * that are kept for a thread by XCR0, tiles by the system's permission and by a trial.
 * Leaf 0x1d of CPUID, the shape of tiles, is not asked: some clouds hide it.
 */
#include "device/kernel_sets.h"

#include <pthread.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

static const struct {
    enum { LEAF_1_ECX, LEAF_7_EBX, LEAF_7_EDX, XCR0, N_WORDS } word;
    uint32_t bits;
    uint32_t fact;
} sources[] = {
    {LEAF_1_ECX, 1u << 12, HAS_FMA},           {LEAF_1_ECX, 1u << 29, HAS_F16C},
    {LEAF_7_EBX, 1u << 5, HAS_AVX2},           {LEAF_7_EBX, 1u << 16, HAS_AVX512F},
    {LEAF_7_EBX, 1u << 17, HAS_AVX512DQ},      {LEAF_7_EBX, 1u << 30, HAS_AVX512BW},
    {LEAF_7_EBX, 1u << 31, HAS_AVX512VL},      {LEAF_7_EDX, 1u << 22, HAS_AMX_BF16},
    {LEAF_7_EDX, 1u << 24, HAS_AMX_TILE},      {XCR0, 3u << 1, KEEPS_256_BITS},
    {XCR0, 3u << 1 | 7u << 5, KEEPS_512_BITS}, {XCR0, 3u << 17, KEEPS_TILES},
};

static uint32_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static uint32_t ask_processor(void)
{
    const uint32_t osxsave = 1u << 27; // XGETBV can be used
    uint32_t words[N_WORDS] = {0}, facts = 0;
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d))
        words[LEAF_1_ECX] = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        words[LEAF_7_EBX] = b;
        words[LEAF_7_EDX] = d;
    }
    if ((words[LEAF_1_ECX] & osxsave) != 0)
        words[XCR0] = xcr0();
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        if ((words[sources[i].word] & sources[i].bits) == sources[i].bits)
            facts |= sources[i].fact;
    return facts;
}

/* The permission is the process's, for good; its threads and children have it, too. */
static uint32_t find_facts(void)
{
    const uint32_t tiles = HAS_AMX_TILE | HAS_AMX_BF16 | KEEPS_TILES;
    uint32_t facts = ask_processor();
    if ((facts & tiles) != tiles ||
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0)
        return facts;
    return facts | GRANTS_TILES | (tile_trial_is_right() ? MULTIPLIES_TILES : 0);
}

#else

static uint32_t find_facts(void)
{
    return 0; // none that a set of other processors would need
}

#endif

static uint32_t found; // written once

static void find_once(void)
{
    found = find_facts();
}

uint32_t processor_facts(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_once);
    return found;
}
