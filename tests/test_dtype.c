/*
 * The conversions between storage types: against arithmetic in double, and against the
 * instructions whose bits they promise, where the processor has them.
 */
#include "test.h"

#include "base/dtype.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define TARGET_F16C __attribute__((target("avx,f16c")))

TARGET_F16C static uint16_t hardware_to_f16(float x)
{
    __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
    return (uint16_t)_mm_extract_epi16(half, 0);
}

TARGET_F16C static float hardware_to_f32(uint16_t half)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_set1_epi16((short)half)));
}

static bool has_hardware(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C) != 0;
}
#else // what the compiler makes of its own type: on AArch64 one instruction
__extension__ typedef _Float16 float16;

static uint16_t hardware_to_f16(float x)
{
    float16 half = (float16)x;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

static float hardware_to_f32(uint16_t bits)
{
    float16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

static bool has_hardware(void)
{
    return true;
}
#endif

/* -- what the formats are, in double ------------------------------------------------- */

struct format {
    int n_fraction, least_exponent; // of the smallest normal number: 2^least_exponent
    double largest;
    uint16_t infinity;
    uint16_t (*narrow)(float x);
    float (*widen)(uint16_t half);
};

static const struct format f16 = {10, -14, 65504, 0x7C00, f32_to_f16, f16_to_f32};
static const struct format bf16 = {7, -126, 0x1.FEp127, 0x7F80, f32_to_bf16, bf16_to_f32};

static double value_of(const struct format *f, uint16_t half)
{
    int size = half & 0x7FFF, unit = 1 << f->n_fraction;
    int exponent = size / unit, fraction = size % unit;
    double value =
        exponent == 0
            ? ldexp(fraction, f->least_exponent - f->n_fraction)
            : ldexp(unit + fraction, f->least_exponent - f->n_fraction + exponent - 1);
    return half & 0x8000 ? -value : value;
}

/* x as the nearest number of the format, by rounding to a whole number of its units. */
static double nearest(const struct format *f, float x)
{
    int exponent = 0;
    frexp((double)x, &exponent); // |x| = [0.5, 1) * 2^exponent
    int unit = (exponent - 1 < f->least_exponent ? f->least_exponent : exponent - 1) -
               f->n_fraction;
    double rounded = ldexp(nearbyint(ldexp((double)x, -unit)), unit);
    return fabs(rounded) > f->largest ? copysign((double)INFINITY, (double)x) : rounded;
}

static void check_narrow(const struct format *f, uint32_t bits)
{
    float x = f32_from_bits(bits);
    uint16_t half = f->narrow(x);
    if (isnan(x)) {
        // the sign, the leading bits of the fraction, and the bit that makes it quiet
        uint32_t kept = bits >> (23 - f->n_fraction) & ((1u << f->n_fraction) - 1);
        uint32_t want =
            (bits >> 16 & 0x8000) | f->infinity | kept | 1u << (f->n_fraction - 1);
        assert_int_equal(half, want);
        return;
    }
    double want = nearest(f, x);
    double got = (half & 0x7FFF) == f->infinity
                     ? copysign((double)INFINITY, half & 0x8000 ? -1.0 : 1.0)
                     : value_of(f, half);
    if (!(got == want) || (half >> 15) != (signbit(x) ? 1 : 0))
        fail_msg("%a (bits %08x) became %04x = %a, not %a", (double)x, bits, half, got,
                 want);
}

/* -- the tests ----------------------------------------------------------------------- */

static void test_dtype__names_and_sizes(void **state)
{
    (void)state;
    assert_string_equal(dtype_name(DTYPE_F32), "float32");
    assert_string_equal(dtype_name(DTYPE_F16), "float16");
    assert_string_equal(dtype_name(DTYPE_BF16), "bfloat16");
    assert_int_equal(dtype_bytes(DTYPE_F32), 4);
    assert_int_equal(dtype_bytes(DTYPE_F16), 2);
    assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
}

static void check_every_half(const struct format *f)
{
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t half = (uint16_t)h, size = half & 0x7FFF;
        float x = f->widen(half);
        assert_int_equal(signbit(x) ? 1 : 0, half >> 15);
        if (size > f->infinity) {
            assert_true(isnan(x));
            assert_int_equal(f->narrow(x), half | 1u << (f->n_fraction - 1));
            continue;
        }
        if (size == f->infinity)
            assert_true(isinf(x));
        else
            assert_true((double)x == value_of(f, half));
        assert_int_equal(f->narrow(x), half);
    }
}

static void test_widening__of_every_half_is_exact_and_comes_back(void **state)
{
    (void)state;
    check_every_half(&f16);
    check_every_half(&bf16);
}

/* The middle between two neighbours, and the floats on both sides of it. */
static void check_every_border(const struct format *f)
{
    for (uint16_t size = 0; size < f->infinity; size++) {
        double above = size + 1 == f->infinity ? ldexp(1, ilogb(f->largest) + 1)
                                               : value_of(f, (uint16_t)(size + 1));
        double middle = (value_of(f, size) + above) / 2;
        uint32_t bits = f32_bits((float)middle);
        for (uint32_t near = bits > 2 ? bits - 2 : 0; near <= bits + 2; near++) {
            check_narrow(f, near);
            check_narrow(f, near | 0x80000000u);
        }
    }
}

static void test_narrowing__rounds_to_nearest_even_at_every_border(void **state)
{
    (void)state;
    check_every_border(&f16);
    check_every_border(&bf16);
}

static void test_narrowing__is_right_all_over_the_floats(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        check_narrow(&f16, (uint32_t)bits);
        check_narrow(&bf16, (uint32_t)bits);
    }
}

static void test_conversion__has_the_bits_of_the_instructions(void **state)
{
    (void)state;
    if (!has_hardware())
        skip();
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t got = f32_bits(f16_to_f32((uint16_t)h));
        uint32_t want = f32_bits(hardware_to_f32((uint16_t)h));
        if (got != want)
            fail_msg("half %04x became %08x, not %08x", h, got, want);
    }
    // every upper half of a float, with lower halves around each border
    static const uint32_t lower[] = {0,      1,      2,      0x0FFE, 0x0FFF, 0x1000,
                                     0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001,
                                     0x7FFF, 0x8000, 0x8001, 0xEFFF, 0xF000, 0xFFFF};
    for (uint32_t upper = 0; upper < 65536; upper++)
        for (size_t i = 0; i < ARRAY_LEN(lower); i++) {
            float x = f32_from_bits(upper << 16 | lower[i]);
            if (f32_to_f16(x) != hardware_to_f16(x))
                fail_msg("float %08x became %04x, not %04x", upper << 16 | lower[i],
                         f32_to_f16(x), hardware_to_f16(x));
        }
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 101) {
        float x = f32_from_bits((uint32_t)bits);
        if (f32_to_f16(x) != hardware_to_f16(x))
            fail_msg("float %08x became %04x, not %04x", (uint32_t)bits, f32_to_f16(x),
                     hardware_to_f16(x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype__names_and_sizes),
        cmocka_unit_test(test_widening__of_every_half_is_exact_and_comes_back),
        cmocka_unit_test(test_narrowing__rounds_to_nearest_even_at_every_border),
        cmocka_unit_test(test_narrowing__is_right_all_over_the_floats),
        cmocka_unit_test(test_conversion__has_the_bits_of_the_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
