#include "base/philox.h"

#include "base/real.h"

#include <math.h>

/* Box-Muller in double: elements 2i and 2i+1 are the cosine and the sine of block i. */
static void normal_pair(double pair[2], struct philox_key key, uint64_t block)
{
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, key.seed_high};
    uint32_t r[4];
    philox_4x32(key.k, counter, r);
    // 53 bits each; u1 in (0, 1] so that its logarithm is finite
    double u1 = ((double)(((uint64_t)r[0] << 32 | r[1]) >> 11) + 1.0) * 0x1p-53;
    double u2 = (double)(((uint64_t)r[2] << 32 | r[3]) >> 11) * 0x1p-53;
    double radius = sqrt(-2.0 * real_log(u1));
    struct real_sin_cos at = real_sin_cos(6.283185307179586 * u2);
    pair[0] = radius * at.cos;
    pair[1] = radius * at.sin;
}

void philox_normal_fill(float *x, int64_t n, struct philox_key key, uint64_t first,
                        double std)
{
    double pair[2];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 2 == 0)
            normal_pair(pair, key, index / 2);
        x[i] = (float)(std * pair[index % 2]);
    }
}

float philox_uniform(struct philox_key key, uint64_t index, uint32_t step)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), step, key.seed_high};
    uint32_t r[4];
    philox_4x32(key.k, counter, r);
    return (float)(r[0] >> 8) * 0x1p-24F;
}
