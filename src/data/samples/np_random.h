/*
 * np_random - numpy.random.RandomState(seed).shuffle, bit for bit.
 *
 * MT19937 (Matsumoto and Nishimura 1998); an index in [0, i] is drawn by masking and
 * rejecting, as numpy's random_interval does. It fixes the order of documents and samples
 * that Megatron and FleetX would train in; everything else random here is philox.
 */
#ifndef DATA_SAMPLES_NP_RANDOM_H
#define DATA_SAMPLES_NP_RANDOM_H

#include "base/base.h"

struct np_random {
    uint32_t state[624];
    int next; // of state; 624: the next block is due
};

void np_random_init(struct np_random *r, uint32_t seed);
void np_random_shuffle(struct np_random *r, int64_t *values, int64_t n);

#endif
