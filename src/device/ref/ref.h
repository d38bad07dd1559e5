/*
 * ref - the reference kernels: the definition of correct, against which the fast tables
 * are judged.
 *
 * Plain scalar loops, one thread. Every sum runs in double, in index order, and is
 * rounded once, where it is stored; what is kept in 16 bits is rounded before anything
 * uses it. Nothing is allocated. The contracts are those of the members of the same name
 * in kernels.h.
 */
#ifndef DEVICE_REF_REF_H
#define DEVICE_REF_REF_H

#include "device/device.h"

extern const struct kernels kernels_ref;

/* Program order is the reference's stream. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REF_KERNEL(name, args) void ref_##name(struct stream *s, const struct args *a);
OPERATIONS(REF_KERNEL)
#undef REF_KERNEL

/* Zero what kernel_partials(N, C) counts. */
void ref_clear_partials(float *partial, int64_t N, int64_t C);

/* Element i of x, and of y := value rounded. */
float ref_element(const void *x, enum dtype dtype, int64_t i);
void ref_set_element(void *y, enum dtype dtype, int64_t i, float value);
/* The same of a tensor of the device's type. */
double ref_get(const struct stream *s, const void *x, int64_t i);
void ref_set(const struct stream *s, void *y, int64_t i, double value);
/* What is left of a number when the device's type has rounded it; with float itself it
 * stays as it is. */
double ref_rounded(const struct stream *s, double value);

#endif
