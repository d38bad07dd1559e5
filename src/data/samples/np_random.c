#include "data/samples/np_random.h"

#include "base/beat.h"

#define N 624
#define M 397
#define SHUFFLE_BLOCK 65536 // values between two beats

void np_random_init(struct np_random *r, uint32_t seed)
{
    r->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = r->state[i - 1];
        r->state[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    r->next = N;
}

static void next_block(uint32_t s[N])
{
    for (int i = 0; i < N; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
        s[i] = s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
}

static uint32_t draw_u32(struct np_random *r)
{
    if (r->next == N) {
        next_block(r->state);
        r->next = 0;
    }
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static uint64_t draw_u64(struct np_random *r)
{
    uint64_t high = draw_u32(r);
    return high << 32 | draw_u32(r);
}

/* Uniform in [0, max], max > 0: as many bits as max has, until they fit. */
static uint64_t draw_up_to(struct np_random *r, uint64_t max)
{
    uint64_t mask = UINT64_MAX >> __builtin_clzll(max), value;
    do
        value = (max <= UINT32_MAX ? draw_u32(r) : draw_u64(r)) & mask;
    while (value > max);
    return value;
}

void np_random_shuffle(struct np_random *r, int64_t *values, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        if (i % SHUFFLE_BLOCK == 0)
            beat_aside();
        uint64_t j = draw_up_to(r, (uint64_t)i);
        int64_t kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}
