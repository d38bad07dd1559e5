/* safetensors_dtype - what the three safetensors_*.c files share; nobody else's. */
#ifndef CKPT_SAFETENSORS_DTYPE_H
#define CKPT_SAFETENSORS_DTYPE_H

#include "ckpt/safetensors.h"

struct safetensors_dtype_row {
    const char *name; // as in the file
    int64_t n_bits;   // of one element
};
extern const struct safetensors_dtype_row safetensors_dtypes[N_SAFETENSORS_DTYPES];

/* Set t->n_elements and *n_bytes from dtype and shape; false when a dim is negative, a
 * product overflows, or the elements do not fill whole bytes. */
bool safetensors_count(struct safetensors_tensor *t, int64_t *n_bytes);

/* A new last tensor with a copy of the name, all else zero; NULL: out of memory. */
struct safetensors_tensor *safetensors_add(struct safetensors *st, const char *name);

#endif
