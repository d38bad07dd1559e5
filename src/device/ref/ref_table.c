/* The table of the reference kernels. */
#include "device/ref/ref.h"

#define ENTRY(name, args) .name = ref_##name,
const struct kernels kernels_ref = {.name = "ref", OPERATIONS(ENTRY)};
