/*
 * philox - random numbers by counter: a pure function of (key, counter), no state.
 *
 * Philox-4x32-10 (Salmon et al., SC'11). A number is addressed by what it is for, never
 * by who draws it, so the layout of ranks, threads and batches cannot change it:
 *
 *   key     = { seed, use << 24 | layer }
 *   counter = { element low, element high or sample, step, seed high }
 *
 * Kernels of a GPU include this, too: the header is C++ as well.
 */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include "base/base.h"

enum philox_use { // one stream of numbers each; the values are part of every result
    PHILOX_INIT = 1,
    PHILOX_DROP_EMBEDDING = 2,
    PHILOX_DROP_ATTENTION = 3,
    PHILOX_DROP_ATTN_OUT = 4,
    PHILOX_DROP_MLP_OUT = 5,
    PHILOX_SAMPLE_TOKEN = 6,
    PHILOX_SAMPLE_PROMPT = 7,
};

struct philox_key {
    uint32_t k[2];
    uint32_t seed_high;
};

static inline struct philox_key philox_key(uint64_t seed, enum philox_use use,
                                           uint32_t layer)
{
    struct philox_key key = {{(uint32_t)seed, (uint32_t)use << 24 | (layer & 0xFFFFFF)},
                             (uint32_t)(seed >> 32)};
    return key;
}

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* out[0..3] := four independent uniform 32-bit words for this counter. */
HOST_AND_DEVICE static inline void philox_4x32(const uint32_t key[2],
                                               const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* x[i] := element first + i of a stream of standard normal numbers times std, i < n. */
void philox_normal_fill(float *x, int64_t n, struct philox_key key, uint64_t first,
                        double std);

/* One uniform number in [0, 1), with 24 random bits. */
float philox_uniform(struct philox_key key, uint64_t index, uint32_t step);

#endif
