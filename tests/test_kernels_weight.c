/* Products with weights of every type, and what lies in stashes: every table against the
 * reference, whose definition is in kernels.h. */
#include "kernel_test.h"

struct problem {
    int64_t N, I, O;
    enum dtype dtype;
    struct weight w, dw;
    float *x, *dy, *bias, *scratch;
};

static struct weight weight_new(enum dtype dtype, int64_t rows, int64_t cols,
                                uint64_t seed)
{
    float *x = floats_new_bell(rows * cols, seed);
    struct weight w = {
        .data = words_new(rows * cols), .dtype = dtype, .rows = rows, .cols = cols};
    dtype_store(w.data, x, dtype, rows * cols);
    free(x);
    return w;
}

static struct problem problem_new(enum dtype dtype, int64_t N, int64_t I, int64_t O)
{
    return (struct problem){.N = N,
                            .I = I,
                            .O = O,
                            .dtype = dtype,
                            .w = weight_new(dtype, O, I, 1),
                            .dw = weight_new(dtype, O, I, 2),
                            .x = floats_new_bell(N * I, 3),
                            .dy = floats_new_bell(N * O, 4),
                            .bias = floats_new_bell(O, 5),
                            .scratch = words_new(linear_scratch(dtype, dtype, I) + 1)};
}

static void problem_free(struct problem *p)
{
    void *all[] = {p->w.data, p->dw.data, p->x, p->dy, p->bias, p->scratch};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

/* Within `part` of the typical size of an element. */
static void assert_near(const float *got, const float *want, int64_t n, double part,
                        const char *what, const char *table)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += fabs((double)want[i]) / (double)n;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <=
              part * (mean + fabs((double)want[i]))))
            fail_msg("%s of %s: element %lld is %.9g, not %.9g", what, table,
                     (long long)i, (double)got[i], (double)want[i]);
}

/* One unit of the last place of what a result is rounded to. */
static double rounding(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 2e-6 : dtype == DTYPE_F16 ? 1e-3 : 8e-3;
}

struct results {
    float *y, *act_y, *dx, *dw;
    void *stash;
};

static struct results run(const struct kernels *k, const struct problem *p, bool is_fused,
                          bool accumulate)
{
    struct stream *s = typed_stream_of(k, p->dtype);
    int64_t NO = p->N * p->O, OI = p->O * p->I;
    struct results r = {.y = words_new(NO),
                        .act_y = words_new(NO),
                        .dx = words_new(p->N * p->I),
                        .dw = words_new(OI),
                        .stash = words_new(NO)};
    struct weight dw = p->dw;
    dw.data = words_new(OI);
    memcpy(dw.data, p->dw.data, (size_t)OI * dtype_bytes(p->dtype));
    k->linear_fwd(s, &(struct linear){.w = &p->w,
                                      .x = p->x,
                                      .y = r.y,
                                      .stash = r.stash,
                                      .bias = p->bias,
                                      .act = ACTIVATION_GELU,
                                      .act_y = r.act_y,
                                      .is_fused = is_fused,
                                      .scratch = p->scratch,
                                      .N = p->N});
    k->linear_bwd_input(
        s, &(struct linear_bwd_input){
               .dx = r.dx, .dy = p->dy, .w = &p->w, .scratch = p->scratch, .N = p->N});
    k->linear_bwd_weight(s, &(struct linear_bwd_weight){.dw = &dw,
                                                        .dy = p->dy,
                                                        .x = p->x,
                                                        .accumulate = accumulate,
                                                        .scratch = p->scratch,
                                                        .N = p->N});
    dtype_load(r.dw, dw.data, p->dtype, OI);
    free(dw.data);
    return r;
}

static void results_free(struct results *r)
{
    void *all[] = {r->y, r->act_y, r->dx, r->dw, r->stash};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void check_products(enum dtype dtype, int64_t N, int64_t I, int64_t O)
{
    struct tables t = all_tables();
    struct problem p = problem_new(dtype, N, I, O);
    for (int variant = 0; variant < 2; variant++) {
        struct results want = run(t.at[0], &p, false, variant > 0);
        for (int i = 1; i < t.n; i++) {
            const char *name = t.at[i]->name;
            struct results got = run(t.at[i], &p, variant > 0, variant > 0);
            assert_near(got.y, want.y, N * O, rounding(dtype), "y", name);
            assert_near(got.act_y, want.act_y, N * O, rounding(dtype), "act_y", name);
            assert_near(got.dx, want.dx, N * I, 1e-5, "dx", name);
            assert_near(got.dw, want.dw, O * I, rounding(dtype), "dw", name);
            float *stashed = words_new(N * O);
            dtype_load(stashed, got.stash, dtype, N * O);
            assert_same_floats(stashed, got.y, N * O, "what is stashed and gone on with");
            free(stashed);
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
        check_products(dtypes[d], 33, 70, 1100); // three panels of rows
        check_products(dtypes[d], 1030, 17, 40); // two parts when fused
    }
}

/* Attention's backward and GELU's take a stash as they take its numbers in floats. */
static void check_stash(const struct kernels *k, enum dtype dtype)
{
    enum { B = 2, S = 150, A = 4, A_KV = 2, D = 8, ROW = (A + 2 * A_KV) * D, N = B * S };
    struct stream *s = typed_stream_of(k, dtype);
    float *qkv = floats_new_bell(N * ROW, 1), *dout = floats_new_bell(N * A * D, 2);
    float *out = words_new(N * A * D), *lse = words_new(N * A), *delta = words_new(N * A);
    float *want = words_new(N * ROW), *got = words_new(N * ROW);
    uint16_t *qkv16 = words_new(N * ROW), *out16 = words_new(N * A * D);
    float *scratch = words_new(attention_scratch(dtype, S, A, A_KV, D));
    struct attention at = {.B = B,
                           .S = S,
                           .A = A,
                           .A_kv = A_KV,
                           .D = D,
                           .out = out,
                           .lse = lse,
                           .drop = dropout_init(0.2, 7, PHILOX_DROP_ATTENTION, 1, 2, 3)};
    k->stash_store(s, qkv16, qkv, N * ROW);
    attention_fwd(k, at, qkv);
    k->stash_store(s, out16, out, N * A * D);
    struct attention_bwd bwd = {.fwd = at, .dout = dout, .delta = delta};
    attention_bwd(k, bwd, qkv, want);
    bwd.fwd.q = qkv16;
    bwd.fwd.k = qkv16 + A * D;
    bwd.fwd.v = qkv16 + (A + A_KV) * D;
    bwd.fwd.q_row = bwd.fwd.kv_row = ROW;
    bwd.fwd.out = out16;
    bwd.dq = got;
    bwd.dk = got + A * D;
    bwd.dv = got + (A + A_KV) * D;
    bwd.is_stashed = true;
    bwd.scratch = scratch;
    k->attention_bwd(s, &bwd);
    assert_same_floats(got, want, N * ROW, "attention_bwd of a stash");

    float *columns = words_new(N * D);
    k->stash_columns(s, columns, qkv16, A * D, N, D, ROW);
    for (int64_t i = 0; i < N * D; i++)
        assert_true(columns[i] == qkv[i / D * ROW + A * D + i % D]);
    assert_same_floats(k->stash_load(s, qkv16, scratch, S * D), qkv, S * D, "stash_load");

    float *bias = floats_new_bell(ROW, 3), *partial = words_new(kernel_partials(N, ROW));
    float db[2][ROW];
    floats_set(db[0], 2 * ROW, 0);
    gelu_fwd(k, want, qkv, bias, N, ROW);
    struct activation_fwd fwd = {ACTIVATION_GELU, got, NULL, bias, qkv16, N, ROW};
    k->activation_fwd(s, &fwd);
    assert_same_floats(got, want, N * ROW, "gelu of a stash");
    gelu_bwd(k, want, got, db[0], want, qkv, bias, partial, N, ROW);
    struct activation_bwd gelu = {.act = ACTIVATION_GELU,
                                  .dx = got,
                                  .db = db[1],
                                  .dy = got,
                                  .b = bias,
                                  .stash = qkv16,
                                  .partial = partial,
                                  .N = N,
                                  .C = ROW};
    k->activation_bwd(s, &gelu);
    assert_same_floats(got, want, N * ROW, "gelu_bwd of a stash");
    assert_same_floats(db[1], db[0], ROW, "gelu_bwd's sums");
    void *all[] = {qkv,   dout,  out,     lse,     delta, want,   got,
                   qkv16, out16, scratch, columns, bias,  partial};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void test_stash__is_taken_as_its_numbers_are(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        check_stash(t.at[i], DTYPE_F16);
        check_stash(t.at[i], DTYPE_BF16);
    }
}

/* What is stored is added as its numbers are. */
static void check_add_stored(const struct kernels *k, enum dtype dtype)
{
    enum { N = 20000 };
    float *x = floats_new_bell(N, 1), *y = floats_new_bell(N, 2);
    uint16_t *x16 = words_new(N), *got = words_new(N), *want = words_new(N);
    dtype_store(x16, x, dtype, N);
    dtype_load(x, x16, dtype, N);
    dtype_store(got, y, dtype, N);
    dtype_store(want, y, dtype, N);
    k->store_add(stream_of(k), want, x, dtype, N);
    k->add_stored(stream_of(k), got, x16, dtype, N);
    assert_memory_equal(got, want, N * sizeof *got);
    void *all[] = {x, y, x16, got, want};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void test_add_stored__adds_the_numbers(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        check_add_stored(t.at[i], DTYPE_F16);
        check_add_stored(t.at[i], DTYPE_BF16);
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
    k->add_partials(stream_of(k), sums[1][0], partial, N, 2 * C, C);
    k->add_partials(stream_of(k), sums[1][1], partial + C, N, 2 * C, C);
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
    k->add_rows(stream_of(k), x, y, rows, N, C);
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
    float *wte = floats_new_bell(V * H, 1), *wpe = floats_new_bell(P * H, 2);
    float *want = words_new(N * H), *got = words_new(N * H);
    uint16_t *wte16 = words_new(V * H), *wpe16 = words_new(P * H);
    k->store_rounded(stream_of(k), wte16, wte, dtype, V * H);
    k->store_rounded(stream_of(k), wpe16, wpe, dtype, P * H);
    struct weight w = {.data = wte, .rows = V, .cols = H};
    struct weight p = {.data = wpe, .rows = P, .cols = H};
    struct embedding e = {.wte = &w,
                          .wpe = has_wpe ? &p : NULL,
                          .tokens = tokens,
                          .positions = positions,
                          .B = 2,
                          .S = N / 2,
                          .H = H,
                          .drop = dropout_init(0.3, 5, PHILOX_DROP_EMBEDDING, 0, 1, 2)};
    k->embedding_fwd(stream_of(k), want, &e);
    w.data = wte16;
    p.data = wpe16;
    w.dtype = p.dtype = dtype;
    k->embedding_fwd(stream_of(k), got, &e);
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
        cmocka_unit_test(test_stash__is_taken_as_its_numbers_are),
        cmocka_unit_test(test_add_stored__adds_the_numbers),
        cmocka_unit_test(test_partials__added_later_are_the_sums),
        cmocka_unit_test(test_add_rows__adds_to_the_rows_named),
        cmocka_unit_test(test_embedding__of_16_bits_has_the_numbers_of_32),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
