/* hash_bytes - a number for bytes, for tables in memory; low bits are as good as high. */
#ifndef TEXT_HASH_BYTES_H
#define TEXT_HASH_BYTES_H

#include "base/base.h"

#include <string.h>

/* Eight bytes at a time: words may be as long as a text. */
static inline uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n;
    while (n > 0) {
        uint64_t x = 0;
        size_t k = n < sizeof x ? n : sizeof x;
        memcpy(&x, bytes, k);
        h = (h ^ x) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
        bytes += k;
        n -= k;
    }
    return h ^ h >> 32;
}

#endif
