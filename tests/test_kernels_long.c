/*
 * Attention over more queries and wider heads than the fast tables take at a time,
 * against the reference. Sums are long here, so what is allowed is relative to their root
 * mean square, not to each.
 */
#include "kernel_test.h"

#include <math.h>

enum { S = 650, A = 2, D = 144, H = A * D };

struct run {
    float *out, *lse, *dqkv;
};

static struct run run_open(const struct kernels *k, const int32_t *first_key)
{
    float *qkv = floats_new_bell(S * 3 * H, 1), *dout = floats_new_bell(S * H, 2);
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
    attention_fwd(k, at, qkv);
    attention_bwd(k, (struct attention_bwd){.fwd = at, .dout = dout, .delta = delta}, qkv,
                  run.dqkv);
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

static void assert_near(const float *got, const float *want, int64_t n, const char *what)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)want[i] * (double)want[i];
    double typical = sqrt(squares / (double)n);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        double allowed = 1e-6 * fabs((double)want[i]) + 1e-5 * typical;
        if (!(off <= allowed))
            fail_msg("element %lld of %s is off by %g, allowed %g", (long long)i, what,
                     off, allowed);
    }
}

static void check(const int32_t *first_key)
{
    struct tables t = all_tables(); // the reference first
    struct run want = run_open(t.at[0], first_key);
    for (int i = 1; i < t.n; i++) {
        struct run got = run_open(t.at[i], first_key);
        assert_near(got.out, want.out, S * H, "out");
        assert_near(got.lse, want.lse, A * S, "lse");
        assert_near(got.dqkv, want.dqkv, S * 3 * H, "dqkv");
        run_close(&got);
    }
    run_close(&want);
}

static void test_attention__of_many_queries_and_wide_heads_agrees(void **state)
{
    (void)state;
    check(NULL);
}

static void test_attention__of_long_and_short_documents_agrees(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 3, 130, 140, 600, S};
    int32_t *first_key = words_new(S);
    for (size_t i = 0; i + 1 < ARRAY_LEN(starts); i++)
        for (int64_t s = starts[i]; s < starts[i + 1]; s++)
            first_key[s] = (int32_t)starts[i];
    check(first_key);
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
