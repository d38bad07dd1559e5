/* The table of this compilation's kernels. */
#include "device/cpu/cpu.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const struct kernels K(kernels_cpu);

#define ENTRY(name, args) .name = K(name),
const struct kernels K(kernels_cpu) = {.name = TEXT(KERNEL_ISA), OPERATIONS(ENTRY)};
