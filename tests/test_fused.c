/*
 * The fused multiply-add of kernels, as this file's instructions give it (on x86-64
 * without FMA: in double, rounded to odd), alone and by vectors, against fmaf().
 */
#define KERNEL_ISA fused
#include "device/cpu/cpu.h"
#include "test.h"

#include <math.h>

#define N 4096

static const uint32_t specials[] = {0,           0x80000000u, 1,           0x80000001u,
                                    0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7F7FFFFFu,
                                    0xFF7FFFFFu, 0x00800000u, 0x007FFFFFu, 0x3F800000u,
                                    0xBF800000u, 0x3F800001u, 0x33800000u, 0x34000000u};

enum kind { ANY, SPECIAL, NEAR_ONE, SHORT, SUBNORMAL, SMALL, N_KINDS };

static uint32_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state * 2685821657736338717u >> 32);
}

static float number(enum kind kind)
{
    uint32_t bits = random_bits(), sign_and_fraction = bits & 0x807FFFFFu;
    switch (kind) {
    case ANY:
        return f32_from_bits(bits);
    case SPECIAL:
        return f32_from_bits(specials[bits % 16]);
    case NEAR_ONE:
        return f32_from_bits(sign_and_fraction | (100 + random_bits() % 54) << 23);
    case SHORT: // products with halfway cases
        return f32_from_bits((bits & 0x80FF0000u) | 0x3F000000u);
    case SUBNORMAL:
        return f32_from_bits(sign_and_fraction);
    default: // products that are subnormal
        return f32_from_bits(sign_and_fraction | (60 + random_bits() % 10) << 23);
    }
}

/* An addend that leaves little of the product, or what is far below or above it. */
static float addend(float product)
{
    uint32_t choice = random_bits() % 4;
    if (choice == 0 || !isfinite(product))
        return number(random_bits() % N_KINDS);
    if (choice == 1)
        return ldexpf(product, (int)(random_bits() % 60) - 30);
    return f32_from_bits(f32_bits(-product) + random_bits() % 5 - 2);
}

static bool same(float x, float y)
{
    return f32_bits(x) == f32_bits(y) || (isnan(x) && isnan(y));
}

static void test_fused__rounds_once(void **state)
{
    static float a[N], b[N], c[N], alone[N], by_vectors[N];
    (void)state;
    for (int turn = 0; turn < 20 * N_KINDS * N_KINDS; turn++) {
        for (int i = 0; i < N; i++) {
            a[i] = number(random_bits() % 8 == 0 ? SPECIAL : (enum kind)(turn % N_KINDS));
            b[i] = number((enum kind)(turn / N_KINDS % N_KINDS));
            c[i] = addend(a[i] * b[i]);
        }
        for (int i = 0; i < N; i++)
            alone[i] = fused(a[i], b[i], c[i]);
        for (int i = 0; i < N; i += VEC)
            *(vec *)(by_vectors + i) =
                vec_fused(*vecs(a + i), *vecs(b + i), *vecs(c + i));
        for (int i = 0; i < N; i++) {
            float want = fmaf(a[i], b[i], c[i]);
            if (!same(alone[i], want) || !same(by_vectors[i], want))
                fail_msg("%a * %a + %a: %a alone, %a by vectors, not %a", (double)a[i],
                         (double)b[i], (double)c[i], (double)alone[i],
                         (double)by_vectors[i], (double)want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused__rounds_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
