/* Sums of elements of 16 bits: the loops for this processor have the bits of those in
 * plain C, and both those of the scalar conversions. */
#include "test.h"

#include "comm/comm_combine.h"

static float widen(enum dtype dtype, uint16_t x)
{
    return dtype == DTYPE_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

static uint16_t narrow(enum dtype dtype, float x)
{
    return dtype == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
}

enum { N = 65536 + 5 }; // every half, and a rest that fills no vector

/* Two addends an element, the second being the halves in another order. */
static void check_sum(const struct comm_op *op, enum dtype dtype)
{
    uint16_t *x = malloc(3 * N * sizeof *x), *y = x + N, *out = y + N;
    float *sum = malloc(N * sizeof *sum);
    assert_true(x && sum);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (uint16_t)i;
        y[i] = (uint16_t)(i * 40503u + 12345u);
    }
    assert_int_equal(op->elem_bytes, sizeof *x);
    op->widen(sum, x, false, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(f32_bits(sum[i]), f32_bits(widen(dtype, x[i])));
    op->widen(sum, y, true, N);
    op->narrow(out, sum, N);
    for (int i = 0; i < N; i++) {
        float want = widen(dtype, x[i]) + widen(dtype, y[i]);
        if (isnan(want))
            assert_true(isnan(widen(dtype, out[i])));
        else
            assert_int_equal(out[i], narrow(dtype, want));
    }
    free(x);
    free(sum);
}

static void test_sum_half__is_rounded_once_and_the_same_on_every_processor(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16};
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
        check_sum(comm_op_sum_half(dtypes[d], false), dtypes[d]);
        check_sum(comm_op_sum_half(dtypes[d], true), dtypes[d]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_half__is_rounded_once_and_the_same_on_every_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
