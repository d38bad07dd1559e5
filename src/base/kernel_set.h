/*
 * kernel_set - the sets of kernels by name: what the key cpu_kernels and the options of
 * that name say. device/kernel_sets.h has what they are and which of them run here.
 */
#ifndef BASE_KERNEL_SET_H
#define BASE_KERNEL_SET_H

#include "base/base.h"
#include "base/error.h"

/* The name, and the end of the enumerator. */
#define KERNEL_SETS(X)                                                                   \
    X("auto", AUTO)                                                                      \
    X("generic", GENERIC)                                                                \
    X("avx2", AVX2)                                                                      \
    X("avx512", AVX512)                                                                  \
    X("amx", AMX)

#define KERNEL_SET_ENUMERATOR(name, id) KERNEL_SET_##id,
enum kernel_set { // each runs where those after it run
    KERNEL_SETS(KERNEL_SET_ENUMERATOR) N_KERNEL_SETS
};

const char *kernel_set_name(enum kernel_set set);
/* The set that the option --cpu_kernels names. */
MUST_CHECK int kernel_set_parse(enum kernel_set *set, const char *name,
                                struct error *err);

#endif
