/* The sets of kernels as a table: what there is, what can run here, what is chosen. */
#include "cli/selftest_kernels.h"

#include "cli/options.h"
#include "device/kernel_sets.h"

#include <stdio.h>

static void print_set(enum kernel_set set)
{
    char lacking[KERNEL_SET_WORDS_BYTES];
    bool is_lacking = kernel_set_lacks(set, processor_facts(), lacking);
    printf("%-8s  %-8s  %-9s  %s\n", kernel_set_name(set),
           kernel_set_table(set) ? "yes" : "no", is_lacking ? "no" : "yes",
           is_lacking ? lacking : "-");
}

int selftest_kernels(struct error *err)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    printf("%-8s  %-8s  %-9s  %s\n", "set", "built in", "runs here", "what is lacking");
    for (int i = KERNEL_SET_GENERIC; i < N_KERNEL_SETS; i++)
        print_set((enum kernel_set)i);
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        printf("%s models compute with %s\n", dtype_name(dtypes[i]),
               kernels_best(dtypes[i])->name);
    return print_check("the table", err);
}
