/* Sums over ranks: every table has the bits of the scalar conversions, added in order. */
#include "kernel_test.h"

static float widen(enum dtype dtype, uint16_t x)
{
    return dtype == DTYPE_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

static uint16_t narrow(enum dtype dtype, float x)
{
    return dtype == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
}

enum { N = 65536 + 5 }; // every half, and a rest that fills no vector

/* Three addends an element, two being the halves in another order; the result takes the
 * place of the second. */
static void check_sum(const struct kernels *k, enum dtype dtype)
{
    uint16_t *x = malloc(4 * N * sizeof *x), *y = x + N, *z = y + N, *before = z + N;
    assert_non_null(x);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (uint16_t)i;
        before[i] = y[i] = (uint16_t)(i * 40503u + 12345u);
        z[i] = (uint16_t)(i * 20011u + 777u);
    }
    const void *parts[] = {x, y, z};
    k->reduce(stream_of(k), &(struct reduction){.op = REDUCE_SUM,
                                                .dtype = dtype,
                                                .x = y,
                                                .parts = parts,
                                                .n_parts = 3,
                                                .n = N});
    for (int i = 0; i < N; i++) {
        float want = widen(dtype, x[i]) + widen(dtype, before[i]);
        want += widen(dtype, z[i]);
        if (isnan(want))
            assert_true(isnan(widen(dtype, y[i])));
        else
            assert_int_equal(y[i], narrow(dtype, want));
    }
    free(x);
}

static void test_reduce__sums_of_16_bits_are_rounded_once(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        check_sum(t.at[i], DTYPE_F16);
        check_sum(t.at[i], DTYPE_BF16);
    }
}

static void check_floats(const struct kernels *k, int n_parts, int64_t n)
{
    float *parts[5], *want = words_new(n), *top = words_new(n);
    for (int p = 0; p < n_parts; p++)
        parts[p] = floats_new_bell(n, 10 + (uint64_t)p);
    parts[n_parts - 1][n / 2] = NAN;
    for (int64_t i = 0; i < n; i++) {
        want[i] = top[i] = parts[0][i];
        for (int p = 1; p < n_parts; p++) {
            want[i] += parts[p][i];
            top[i] = top[i] > parts[p][i] || isnan(top[i]) ? top[i] : parts[p][i];
        }
    }
    float *out = words_new(n);
    struct reduction r = {.op = REDUCE_MAX,
                          .dtype = DTYPE_F32,
                          .x = out,
                          .parts = (const void *const *)(void *)parts,
                          .n_parts = n_parts,
                          .n = n};
    k->reduce(stream_of(k), &r);
    assert_true(isnan(out[n / 2]));
    out[n / 2] = top[n / 2] = 0;
    assert_same_floats(out, top, n, "maximum over ranks");
    r.op = REDUCE_SUM;
    r.x = parts[0];
    k->reduce(stream_of(k), &r);
    assert_true(isnan(parts[0][n / 2]));
    parts[0][n / 2] = want[n / 2] = 0;
    assert_same_floats(parts[0], want, n, "sum over ranks");
    for (int p = 0; p < n_parts; p++)
        free(parts[p]);
    free(want);
    free(top);
    free(out);
}

static void test_reduce__floats_are_combined_in_order(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++)
        for (int n_parts = 2; n_parts <= 5; n_parts++)
            check_floats(t.at[i], n_parts, n_parts == 3 ? 5000 : 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce__sums_of_16_bits_are_rounded_once),
        cmocka_unit_test(test_reduce__floats_are_combined_in_order),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
