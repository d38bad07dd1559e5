/* grow - arrays that double, for what is counted only while it is read. */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include "base/base.h"

#include <stdlib.h>

/* `array` with room for `need` > 0 elements of `size` bytes, moved if it must; *capacity
 * is what it has room for. NULL when there is no memory: `array` is then as it was. */
static inline void *grow_array(void *array, int64_t *capacity, int64_t need, size_t size)
{
    if (need <= *capacity)
        return array;
    int64_t wanted =
        i64_max(i64_max(need, 16), *capacity > INT64_MAX / 2 ? need : *capacity * 2);
    size_t n_bytes;
    if (__builtin_mul_overflow((size_t)wanted, size, &n_bytes) || n_bytes > PTRDIFF_MAX)
        return NULL;
    void *larger = realloc(array, n_bytes);
    if (larger)
        *capacity = wanted;
    return larger;
}

#endif
