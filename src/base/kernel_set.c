#include "base/kernel_set.h"

#include <string.h>

#define KERNEL_SET_NAME(name, id) name,
#define KERNEL_SET_WORD(name, id) " " name

static const char *const names[] = {KERNEL_SETS(KERNEL_SET_NAME)};

const char *kernel_set_name(enum kernel_set set)
{
    return names[set];
}

int kernel_set_parse(enum kernel_set *set, const char *name, struct error *err)
{
    for (int i = 0; i < N_KERNEL_SETS; i++)
        if (strcmp(names[i], name) == 0) {
            *set = (enum kernel_set)i;
            return 0;
        }
    return error_set(err, ERROR_INPUT, "--cpu_kernels is '%s'; it must be one of%s", name,
                     KERNEL_SETS(KERNEL_SET_WORD));
}
