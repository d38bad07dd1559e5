/*
 * Products of tiles: the twin in C against the order of sums written out with one fused
 * multiply-add at a time, and the unit's instructions (computed by amx_trap.c where there
 * is no unit) against the twin, bit for bit; among numbers that are subnormal, too.
 */
#include "test.h"

#include "device/cpu/cpu_flush.h"

#define N_DOTS 3
#define MOST_A ((size_t)16 * 32 * N_DOTS)

void tile_product_twin(float *c, const uint16_t *a, const uint16_t *b, int rows, int n);
#ifdef TEST_TILE_UNIT
void tile_product_unit(float *c, const uint16_t *a, const uint16_t *b, int rows, int n);
void amx_trap(void);
#endif

struct numbers {
    uint32_t next; // state of a generator: the test is always the same
    float c[3 * 256];
    uint16_t a[MOST_A], b[MOST_A];
};

static uint32_t draw(struct numbers *s)
{
    s->next = s->next * 1664525u + 1013904223u;
    return s->next >> 8;
}

/* A float of either sign whose exponent is one of n from the given one on. */
static float draw_float(struct numbers *s, uint32_t exponent, uint32_t n)
{
    uint32_t bits = draw(s) & 0x7FFFFFu;
    bits |= (exponent + draw(s) % n) << 23 | (draw(s) & 1) << 31;
    return f32_from_bits(bits);
}

static void draw_numbers(struct numbers *s, uint32_t exponent, uint32_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(s->c); i++)
        s->c[i] = draw_float(s, exponent * 2 > 127 ? exponent * 2 - 127 : 0, n);
    for (size_t i = 0; i < MOST_A; i++) {
        s->a[i] = (uint16_t)(f32_bits(draw_float(s, exponent, n)) >> 16);
        s->b[i] = (uint16_t)(f32_bits(draw_float(s, exponent, n)) >> 16);
    }
}

/* The definition, for one element. */
static float product(const struct numbers *s, float c, int row, int column)
{
    for (int i = 0; i < N_DOTS; i++) {
        float sum[2] = {0, 0};
        for (int k = 0; k < 32; k++) {
            uint16_t a = s->a[(row * N_DOTS + i) * 32 + k];
            uint16_t b = s->b[((i * 16 + k / 2) * 16 + column) * 2 + k % 2];
            sum[k % 2] = flush_fused_compared(bf16_to_f32(a), bf16_to_f32(b), sum[k % 2]);
        }
        c = flush_add_compared(c, flush_add_compared(sum[0], sum[1]));
    }
    return c;
}

/* Exponents around 1, around the square root of the least number, and at the least. */
static const struct {
    uint32_t exponent, n;
} ranges[] = {{120, 14}, {64, 3}, {60, 12}, {0, 4}, {50, 30}};

static void test_tiles__the_twin_adds_in_the_order_that_is_promised(void **state)
{
    (void)state;
    struct numbers s = {.next = 1}, before;
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        for (int rows = 16; rows > 0; rows -= 5) {
            draw_numbers(&s, ranges[i].exponent, ranges[i].n);
            before = s;
            tile_product_twin(s.c, s.a, s.b, rows, N_DOTS);
            for (int e = 0; e < rows * 16; e++) {
                float c = product(&s, before.c[e], e / 16, e % 16);
                float from_zero = product(&s, 0, e / 16, e % 16);
                assert_int_equal(f32_bits(s.c[e]), f32_bits(c));
                assert_int_equal(f32_bits(s.c[256 + e]), f32_bits(from_zero));
                assert_int_equal(f32_bits(s.c[512 + e]), f32_bits(before.c[e]));
            }
            size_t behind = (size_t)(256 - rows * 16) * sizeof *s.c; // not touched
            assert_memory_equal(s.c + rows * 16, before.c + rows * 16, behind);
        }
}

static void test_tiles__the_unit_gives_the_bits_of_its_twin(void **state)
{
    (void)state;
#ifdef TEST_TILE_UNIT
    struct numbers s = {.next = 2}, unit;
    amx_trap();
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        for (int rows = 16; rows > 0; rows -= 3) {
            draw_numbers(&s, ranges[i].exponent, ranges[i].n);
            unit = s;
            tile_product_twin(s.c, s.a, s.b, rows, N_DOTS);
            tile_product_unit(unit.c, unit.a, unit.b, rows, N_DOTS);
            assert_memory_equal(unit.c, s.c, sizeof s.c);
        }
#else
    skip(); // another kind of processor, or a compiler that does not know the unit
#endif
}

#ifdef __x86_64__
__attribute__((noinline)) static float fused_here(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* The processor's mode is what the comparisons have to reproduce. */
static void test_flush__comparing_gives_what_the_mode_gives(void **state)
{
    (void)state;
    struct numbers s = {.next = 3};
    int n_least = 0;
    for (int i = 0; i < 2000000; i++) {
        float a = draw_float(&s, 60, 8), b = draw_float(&s, 60, 8);
        float c = draw_float(&s, 0, 4);
        if (i % 2 == 0) { // a sum around the least number, by either side of it
            float about = f32_from_bits(0x00800000u + draw(&s) % 5 - 2);
            c = -fmaf(a, b, i % 4 == 0 ? about : -about);
        }
        uint32_t before = flush_begin();
        float sum = fused_here(a, b, c);
        flush_end(before);
        float compared = flush_fused_compared(a, b, c);
        if (f32_bits(sum) != f32_bits(compared))
            fail_msg("%a * %a + %a is %a, by comparing %a", (double)a, (double)b,
                     (double)c, (double)sum, (double)compared);
        n_least +=
            fabsf(fmaf(flush_operand(a), flush_operand(b), flush_operand(c))) <= FLT_MIN;
    }
    assert_true(n_least > 1000);
    // rounded to FLT_MIN as a subnormal, and less with more exponents: flushed
    float a = f32_from_bits(0x3F7FFFFFu), b = FLT_MIN;
    assert_int_equal(f32_bits(fmaf(a, b, 0)), f32_bits(FLT_MIN));
    assert_int_equal(f32_bits(flush_fused_compared(a, b, 0)), 0);
    uint32_t before = flush_begin();
    float sum = fused_here(a, b, 0);
    flush_end(before);
    assert_int_equal(f32_bits(sum), 0);
}
#endif

static void test_flush__the_mode_is_left_again(void **state)
{
    (void)state;
    volatile float small = FLT_MIN;
    uint32_t before = flush_begin();
    flush_end(before);
    assert_true(small / 2 > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles__the_twin_adds_in_the_order_that_is_promised),
        cmocka_unit_test(test_tiles__the_unit_gives_the_bits_of_its_twin),
#ifdef __x86_64__
        cmocka_unit_test(test_flush__comparing_gives_what_the_mode_gives),
#endif
        cmocka_unit_test(test_flush__the_mode_is_left_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
