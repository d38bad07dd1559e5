/*
 * Attention over more queries and wider heads than the fast tables take at a time,
 * against the reference. Sums are long here, so what is allowed is relative to their root
 * mean square, not to each; in 16 bits a few may be a unit off (test_kernels.c says why).
 */
#include "kernel_test.h"

#include <math.h>

enum { S = 650, A = 2, D = 144, H = A * D };

struct run {
    void *out, *dqkv; // of T
    float *lse;
};

static struct run run_open(const struct kernels *k, enum dtype dtype,
                           const int32_t *first_key)
{
    void *qkv = stored_new_bell(S * 3 * H, dtype, 1);
    void *dout = stored_new_bell(S * H, dtype, 2);
    float *delta = floats_new_set(A * S, NAN);
    struct run run = {.out = floats_new_set(S * H, NAN),
                      .lse = floats_new_set(A * S, NAN),
                      .dqkv = floats_new_set(S * 3 * H, NAN)};
    struct attention at = {.B = 1,
                           .S = S,
                           .A = A,
                           .D = D,
                           .out = run.out,
                           .lse = run.lse,
                           .drop = dropout_init(0.1, 7, PHILOX_DROP_ATTENTION, 1, 2, 3),
                           .first_key = first_key};
    typed_attention_fwd(k, dtype, at, qkv);
    typed_attention_bwd(k, dtype,
                        (struct attention_bwd){.fwd = at, .dout = dout, .delta = delta},
                        qkv, run.dqkv);
    free(qkv);
    free(dout);
    free(delta);
    return run;
}

static void run_close(struct run *run)
{
    free(run->out);
    free(run->lse);
    free(run->dqkv);
}

static void assert_near(const void *got, const void *want, enum dtype dtype, int64_t n,
                        const char *what)
{
    double squares = 0, unit = dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-7;
    int64_t n_off = 0;
    for (int64_t i = 0; i < n; i++)
        squares += pow((double)element(want, dtype, i), 2);
    double typical = sqrt(squares / (double)n);
    for (int64_t i = 0; i < n; i++) {
        double w = (double)element(want, dtype, i);
        double off = fabs((double)element(got, dtype, i) - w);
        double allowed = 1e-6 * fabs(w) + 1e-5 * typical;
        double most = dtype == DTYPE_F32 ? allowed : allowed + unit * (fabs(w) + typical);
        if (!(off <= most))
            fail_msg("element %lld of %s in %s is off by %g, allowed %g", (long long)i,
                     what, dtype_name(dtype), off, most);
        n_off += off > allowed;
    }
    if (n_off * 100 > n * 3)
        fail_msg("%lld of %lld elements of %s in %s are off", (long long)n_off,
                 (long long)n, what, dtype_name(dtype));
}

static void check(enum dtype dtype, const int32_t *first_key)
{
    struct tables t = all_tables(); // the reference first
    struct run want = run_open(t.at[0], dtype, first_key);
    for (int i = 1; i < t.n; i++) {
        struct run got = run_open(t.at[i], dtype, first_key);
        assert_near(got.out, want.out, dtype, S * H, "out");
        assert_near(got.lse, want.lse, DTYPE_F32, A * S, "lse");
        assert_near(got.dqkv, want.dqkv, dtype, S * 3 * H, "dqkv");
        run_close(&got);
    }
    run_close(&want);
}

static void test_attention__of_many_queries_and_wide_heads_agrees(void **state)
{
    (void)state;
    check(DTYPE_F32, NULL);
    check(DTYPE_BF16, NULL);
}

static void test_attention__of_long_and_short_documents_agrees(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 3, 130, 140, 600, S};
    int32_t *first_key = words_new(S);
    for (size_t i = 0; i + 1 < ARRAY_LEN(starts); i++)
        for (int64_t s = starts[i]; s < starts[i + 1]; s++)
            first_key[s] = (int32_t)starts[i];
    check(DTYPE_F32, first_key);
    check(DTYPE_F16, first_key);
    free(first_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention__of_many_queries_and_wide_heads_agrees),
        cmocka_unit_test(test_attention__of_long_and_short_documents_agrees),
    };
    kernels_set_threads(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
