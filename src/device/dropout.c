/*
 * The scalar definition of which elements are dropped; shared by all kernel tables.
 *
 * The fast kernels draw a whole group of 128 elements at once and must agree with
 * dropout_factor() element by element. The odd order of a group (block j decides the
 * elements j, 16+j, 32+j, ...) is what lets them compute 16 blocks side by side and use
 * each half-word vector for 16 neighbouring elements without a shuffle.
 */
#include "device/kernels.h"

#include <math.h>

#define BLOCKS_PER_GROUP 16

struct dropout dropout_none(void)
{
    return (struct dropout){.threshold = 0, .scale = 1.0F};
}

/* The scale is that of the rounded rate, so that the mean factor is exactly 1. */
struct dropout dropout_init(double rate, uint64_t seed, enum philox_use use, int layer,
                            int64_t step, int64_t first_sample)
{
    CHECK(rate >= 0 && rate <= 1, "dropout rate %g", rate);
    long threshold = lround(rate * 65536.0);
    bool keeps_some = threshold < 65536;
    return (struct dropout){
        .threshold = (uint32_t)threshold,
        .scale = keeps_some ? (float)(65536.0 / (double)(65536 - threshold)) : 0.0F,
        .key = philox_key(seed, use, (uint32_t)layer),
        .step = (uint32_t)step,
        .first_sample = (uint32_t)first_sample,
    };
}

float dropout_factor(const struct dropout *drop, int64_t b, int64_t row, int64_t C,
                     int64_t c)
{
    int64_t element = (drop->first_row + row) * i64_round_up(C, DROPOUT_GROUP) + c;
    int64_t group = element / DROPOUT_GROUP;
    int64_t in_group = element % DROPOUT_GROUP;
    int64_t block = in_group % BLOCKS_PER_GROUP;
    int64_t half = in_group / BLOCKS_PER_GROUP;

    uint32_t counter[4] = {(uint32_t)(group * BLOCKS_PER_GROUP + block),
                           drop->first_sample + (uint32_t)b, drop->step,
                           drop->key.seed_high};
    uint32_t words[4];
    philox_4x32(drop->key.k, counter, words);
    uint32_t bits = words[half / 2] >> (half % 2 ? 16 : 0) & 0xFFFF;
    return bits < drop->threshold ? 0.0F : drop->scale;
}
