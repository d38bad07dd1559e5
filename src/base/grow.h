/* grow - arrays that double, for what is counted only while it is read. */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

/* Make the array at *array, a pointer of any type, hold `need` > 0 elements of `size`
 * bytes; *capacity is how many it has memory for. -1: there is none, and both are as they
 * were. */
MUST_CHECK static inline int grow_array(void *array, int64_t *capacity, int64_t need,
                                        size_t size)
{
    void *elements;
    size_t n_bytes;
    if (need <= *capacity)
        return 0;
    int64_t wanted =
        i64_max(i64_max(need, 16), *capacity > INT64_MAX / 2 ? need : *capacity * 2);
    if (__builtin_mul_overflow((size_t)wanted, size, &n_bytes) || n_bytes > PTRDIFF_MAX)
        return -1;
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, n_bytes);
    if (!elements)
        return -1;
    memcpy(array, &elements, sizeof elements);
    *capacity = wanted;
    return 0;
}

#endif
