/*
 * Products of more rows and columns than a table takes at a time, in every type; sums left
 * in their chunks; rows that are added and looked up.
 */
#include "kernel_test.h"

struct problem {
    int64_t N, I, O, dy_row;
    enum dtype dtype;
    struct weight w;
    void *x, *dy;
    float *bias;
};

static struct problem problem_new(enum dtype dtype, int64_t N, int64_t I, int64_t O)
{
    return (struct problem){.N = N,
                            .I = I,
                            .O = O,
                            .dy_row = O + 7,
                            .dtype = dtype,
                            .w = {.data = stored_new_bell(O * I, dtype, 1),
                                  .dtype = dtype,
                                  .rows = O,
                                  .cols = I},
                            .x = stored_new_bell(N * I, dtype, 3),
                            .dy = stored_new_bell(N * (O + 7), dtype, 4),
                            .bias = floats_new_bell(O, 5)};
}

static void problem_free(struct problem *p)
{
    void *all[] = {p->w.data, p->x, p->dy, p->bias};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

/* Within `part` of the typical size of an element. */
static void assert_near(const void *got, const void *want, enum dtype dtype, int64_t n,
                        double part, const char *what, const char *table)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += fabs((double)element(want, dtype, i)) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)element(got, dtype, i), w = (double)element(want, dtype, i);
        if (!(fabs(g - w) <= part * (mean + fabs(w))))
            fail_msg("%s of %s in %s: element %lld is %.9g, not %.9g", what, table,
                     dtype_name(dtype), (long long)i, g, w);
    }
}

/* One unit of the last place of what a result is rounded to. */
static double rounding(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 2e-6 : dtype == DTYPE_F16 ? 1e-3 : 8e-3;
}

struct results { // of T, but for the sums
    void *y, *act_y, *dx, *dw;
    float *y_sum, *dx_sum, *dw_sum;
};

static struct results run(const struct kernels *k, const struct problem *p, bool is_fused,
                          bool accumulate)
{
    struct stream *s = typed_stream_of(k, p->dtype);
    int64_t NO = p->N * p->O, NI = p->N * p->I, OI = p->O * p->I;
    struct results r = {.y = words_new(NO),
                        .act_y = words_new(NO),
                        .dx = words_new(NI),
                        .dw = stored_new_bell(OI, p->dtype, 2),
                        .y_sum = words_new(NO),
                        .dx_sum = words_new(NI),
                        .dw_sum = floats_new_bell(OI, 2)};
    struct weight dw = p->w, dw_sum = p->w;
    struct linear fwd = {.w = &p->w,
                         .x = p->x,
                         .y = r.y,
                         .y_dtype = p->dtype,
                         .bias = p->bias,
                         .act = ACTIVATION_GELU_TANH,
                         .act_y = r.act_y,
                         .is_fused = is_fused,
                         .N = p->N};
    struct linear_bwd_input by_input = {r.dx, p->dtype, p->dy, p->dy_row, &p->w, p->N};
    struct linear_bwd_weight by_weight = {&dw, p->dy, p->x, p->dy_row, accumulate, p->N};
    k->linear_fwd(s, &fwd);
    k->linear_bwd_input(s, &by_input);
    dw.data = r.dw;
    k->linear_bwd_weight(s, &by_weight);
    fwd.y = r.y_sum;
    fwd.y_dtype = by_input.dx_dtype = dw_sum.dtype = DTYPE_F32;
    fwd.act = ACTIVATION_NONE;
    fwd.bias = NULL;
    by_input.dx = r.dx_sum;
    dw_sum.data = r.dw_sum;
    by_weight.dw = &dw_sum;
    k->linear_fwd(s, &fwd);
    k->linear_bwd_input(s, &by_input);
    k->linear_bwd_weight(s, &by_weight);
    return r;
}

static void results_free(struct results *r)
{
    void *all[] = {r->y, r->act_y, r->dx, r->dw, r->y_sum, r->dx_sum, r->dw_sum};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

/* What is given in 16 bits is what is given in floats, rounded. */
static void assert_rounded(const void *got, const float *sums, enum dtype dtype,
                           int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        float want;
        set_element(&want, dtype, 0, sums[i]);
        if (element(got, dtype, i) != element(&want, dtype, 0))
            fail_msg("%s in %s: element %lld is %.9g, of %.9g", what, dtype_name(dtype),
                     (long long)i, (double)element(got, dtype, i), (double)sums[i]);
    }
}

static void check_products(enum dtype dtype, int64_t N, int64_t I, int64_t O)
{
    struct tables t = all_tables();
    struct problem p = problem_new(dtype, N, I, O);
    double unit = rounding(dtype);
    for (int variant = 0; variant < 2; variant++) {
        struct results want = run(t.at[0], &p, false, variant > 0);
        for (int i = 1; i < t.n; i++) {
            const char *name = t.at[i]->name;
            struct results got = run(t.at[i], &p, variant > 0, variant > 0);
            assert_near(got.y, want.y, dtype, N * O, unit, "y", name);
            assert_near(got.act_y, want.act_y, dtype, N * O, unit, "act_y", name);
            assert_near(got.dx, want.dx, dtype, N * I, unit, "dx", name);
            assert_near(got.dw, want.dw, dtype, O * I, unit, "dw", name);
            assert_near(got.y_sum, want.y_sum, DTYPE_F32, N * O, 3e-6, "y", name);
            assert_near(got.dx_sum, want.dx_sum, DTYPE_F32, N * I, 1e-5, "dx", name);
            assert_near(got.dw_sum, want.dw_sum, DTYPE_F32, O * I, 5e-6, "dw", name);
            assert_rounded(got.y, got.y_sum, dtype, N * O, "y");
            assert_rounded(got.dx, got.dx_sum, dtype, N * I, "dx");
            if (variant == 0)
                assert_rounded(got.dw, got.dw_sum, dtype, O * I, "dw");
            results_free(&got);
        }
        results_free(&want);
    }
    problem_free(&p);
}

static void test_linear__products_of_every_type_are_the_reference_s(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
        check_products(dtypes[d], 1, 3, 2);
        check_products(dtypes[d], 33, 70, 1100);
        check_products(dtypes[d], 1030, 17, 40);
        check_products(dtypes[d], 40, 1100, 33);
    }
}

/* Sums over rows that were left in their chunks are those that were not. */
static void check_partials(const struct kernels *k)
{
    enum { N = 200, C = 37 };
    float *x = floats_new_bell(N * C, 1), *dy = floats_new_bell(N * C, 2);
    float *g = floats_new_bell(C, 3), *dx[2] = {words_new(N * C), words_new(N * C)};
    float *mean = words_new(N), *rstd = words_new(N), *y = words_new(N * C);
    float *partial = words_new(kernel_partials(N, 2 * C)), sums[2][2][C];
    layernorm_fwd(k, y, mean, rstd, x, g, g, N, C);
    floats_set(sums[0][0], 4 * C, 0);
    floats_set(dx[0], N * C, 0);
    floats_set(dx[1], N * C, 0);
    layernorm_bwd(k, dx[0], sums[0][0], sums[0][1], dy, x, g, mean, rstd, partial, N, C);
    layernorm_bwd(k, dx[1], NULL, NULL, dy, x, g, mean, rstd, partial, N, C);
    k->add_partials(stream_of(k),
                    &(struct add_partials){sums[1][0], partial, N, 2 * C, C});
    k->add_partials(stream_of(k),
                    &(struct add_partials){sums[1][1], partial + C, N, 2 * C, C});
    assert_same_floats(dx[1], dx[0], N * C, "layernorm_bwd's dx");
    assert_same_floats(sums[1][0], sums[0][0], 2 * C, "sums of layernorm_bwd");
    void *all[] = {x, dy, g, dx[0], dx[1], mean, rstd, y, partial};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void test_partials__added_later_are_the_sums(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++)
        check_partials(t.at[i]);
}

/* -- rows ---------------------------------------------------------------------------- */

static void check_add_rows(const struct kernels *k)
{
    enum { ROWS = 9, C = 37, N = 4 };
    static const int32_t rows[N] = {8, 0, 3, 5};
    float *x = floats_new_bell(ROWS * C, 1), *y = floats_new_bell(N * C, 2);
    float *want = words_new(ROWS * C);
    memcpy(want, x, ROWS * C * sizeof *x);
    for (int i = 0; i < N * C; i++)
        want[rows[i / C] * C + i % C] += y[i];
    k->add_rows(stream_of(k), &(struct add_rows){x, y, rows, N, C});
    assert_same_floats(x, want, ROWS * C, "add_rows");
    free(x);
    free(y);
    free(want);
}

static void test_add_rows__adds_to_the_rows_named(void **state)
{
    (void)state;
    for_each_table(check_add_rows);
}

/* A table of 16 bits gives the rows of the same numbers in 32. */
static void check_typed_embedding(const struct kernels *k, enum dtype dtype, bool has_wpe)
{
    enum { V = 5, P = 4, N = 6, H = 1100 };
    static const int32_t tokens[N] = {4, -1, 0, 2, -1, 3},
                         positions[N] = {0, 1, 2, 3, 0, 2};
    float *wte = words_new(V * H), *wpe = words_new(P * H);
    float *want = words_new(N * H), *got = words_new(N * H);
    uint16_t *wte16 = stored_new_bell(V * H, dtype, 1);
    uint16_t *wpe16 = stored_new_bell(P * H, dtype, 2);
    dtype_load(wte, wte16, dtype, V * H);
    dtype_load(wpe, wpe16, dtype, P * H);
    struct weight w = {.data = wte, .rows = V, .cols = H};
    struct weight p = {.data = wpe, .rows = P, .cols = H};
    struct embedding e = {.x = want,
                          .wte = &w,
                          .wpe = has_wpe ? &p : NULL,
                          .tokens = tokens,
                          .positions = positions,
                          .B = 2,
                          .S = N / 2,
                          .H = H};
    k->embedding_fwd(stream_of(k), &e);
    w.data = wte16;
    p.data = wpe16;
    w.dtype = p.dtype = dtype;
    e.x = got;
    k->embedding_fwd(stream_of(k), &e);
    for (int64_t i = 0; i < N * H; i++)
        assert_true(got[i] == want[i]);
    void *all[] = {wte, wpe, want, got, wte16, wpe16};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void check_typed_embeddings(const struct kernels *k)
{
    for (int i = 0; i < 4; i++)
        check_typed_embedding(k, i % 2 ? DTYPE_F16 : DTYPE_BF16, i / 2 > 0);
}

static void test_embedding__of_16_bits_has_the_numbers_of_32(void **state)
{
    (void)state;
    for_each_table(check_typed_embeddings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear__products_of_every_type_are_the_reference_s),
        cmocka_unit_test(test_partials__added_later_are_the_sums),
        cmocka_unit_test(test_add_rows__adds_to_the_rows_named),
        cmocka_unit_test(test_embedding__of_16_bits_has_the_numbers_of_32),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
