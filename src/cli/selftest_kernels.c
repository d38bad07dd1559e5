/* The sets of kernels as a table: what there is, what runs here and gives the bits of
 * generic, what is chosen. */
#include "cli/selftest_kernels.h"

#include "cli/options.h"
#include "device/kernel_check.h"
#include "device/kernel_sets.h"

#include <stdio.h>

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* words := "same", or the first kernel whose bits are not those of generic. */
static int compare_bits(enum kernel_set set, char words[64], bool *is_same,
                        struct error *err)
{
    const struct kernels *generic = kernel_set_table(KERNEL_SET_GENERIC);
    snprintf(words, 64, "same");
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        const char *different;
        if (kernel_check(kernel_set_table(set), generic, dtypes[i], &different, err))
            return -1;
        if (different) {
            *is_same = false;
            snprintf(words, 64, "DIFFER: %s in %s", different, dtype_name(dtypes[i]));
            return 0;
        }
    }
    return 0;
}

static int print_set(enum kernel_set set, bool *is_same, struct error *err)
{
    char lacking[KERNEL_SET_WORDS_BYTES], bits[64] = "-";
    bool is_lacking = kernel_set_lacks(set, processor_facts(), lacking);
    if (!is_lacking && compare_bits(set, bits, is_same, err))
        return -1;
    printf("%-8s  %-8s  %-9s  %-5s  %s\n", kernel_set_name(set),
           kernel_set_table(set) ? "yes" : "no", is_lacking ? "no" : "yes", bits,
           is_lacking ? lacking : "-");
    return 0;
}

int selftest_kernels(struct error *err)
{
    bool is_same = true;
    if (kernels_start(err))
        return -1;
    printf("%-8s  %-8s  %-9s  %-5s  %s\n", "set", "built in", "runs here", "bits",
           "what is lacking");
    for (int i = KERNEL_SET_GENERIC; i < N_KERNEL_SETS; i++)
        if (print_set((enum kernel_set)i, &is_same, err))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        printf("%s models compute with %s\n", dtype_name(dtypes[i]),
               kernels_best(dtypes[i])->name);
    if (print_check("the table", err))
        return -1;
    if (!is_same)
        return error_set(err, ERROR_RUNTIME,
                         "kernels of this processor do not give the bits of generic "
                         "ones: use cpu_kernels=generic, and report it");
    printf("%d kernels of each set give the bits of generic\n", kernel_check_count());
    return print_check("the table", err);
}
