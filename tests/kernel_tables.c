#include "kernel_tables.h"

#include "device/kernel_sets.h"

#ifdef __x86_64__

extern const struct kernels kernels_cpu_avx512_emulated;
extern const struct kernels kernels_cpu_amx_emulated;
void amx_trap(void);

static bool can_run(enum kernel_set set)
{
    char lacking[KERNEL_SET_WORDS_BYTES];
    return !kernel_set_lacks(set, processor_facts(), lacking);
}

static int list_emulated(const struct kernels **tables, int max_tables)
{
    int n = 0;
#ifdef TEST_EMULATED
    if (n + 2 <= max_tables && can_run(KERNEL_SET_AVX2)) {
        tables[n++] = &kernels_cpu_avx512_emulated;
        tables[n++] = &kernels_cpu_amx_emulated;
    }
#endif
    if (n < max_tables && can_run(KERNEL_SET_AVX512) && !can_run(KERNEL_SET_AMX)) {
        tables[n++] = kernel_set_table(KERNEL_SET_AMX);
        amx_trap();
    }
    return n;
}

#else

static int list_emulated(const struct kernels **tables, int max_tables)
{
    (void)tables;
    (void)max_tables;
    return 0;
}

#endif

int kernel_tables(const struct kernels **tables, int max_tables)
{
    int n = kernels_list(tables, max_tables);
    return n + list_emulated(tables + n, max_tables - n);
}
