/*
 * The promise that layouts rest on: an element of a product has the same bits whoever
 * computes it. So neither the number of threads, nor a split of the rows or of the
 * columns over calls, nor the other rows and columns may change one.
 */
#include "kernel_test.h"

#include "device/cpu/gemm.h"

/* How a matrix lies in memory: by rows, by columns, or by rows with a gap behind each. */
enum lie { BY_ROWS, BY_COLUMNS, WITH_GAP };

static int64_t row_stride(enum lie lie, int64_t columns)
{
    return lie == BY_COLUMNS ? 1 : lie == BY_ROWS ? columns : columns + 5;
}

static int64_t column_stride(enum lie lie, int64_t rows)
{
    return lie == BY_COLUMNS ? rows : 1;
}

/* Words that hold rows x columns in any of the lies. */
static int64_t room(int64_t rows, int64_t columns)
{
    return rows * (columns + 5);
}

struct product {
    struct gemm g;
    float *a, *b, *c;
};

static struct product product_open(int64_t m, int64_t n, int64_t k, enum lie a,
                                   enum lie b, enum lie c)
{
    struct product p = {.a = floats_new_bell(room(m, k), 1),
                        .b = floats_new_bell(room(k, n), 2),
                        .c = floats_new_bell(room(m, n), 3)};
    p.g = (struct gemm){.m = m,
                        .n = n,
                        .k = k,
                        .a = p.a,
                        .a_row = row_stride(a, k),
                        .a_col = column_stride(a, m),
                        .b = p.b,
                        .b_row = row_stride(b, n),
                        .b_col = column_stride(b, k),
                        .c = p.c,
                        .c_row = row_stride(c, n),
                        .c_col = column_stride(c, m)};
    return p;
}

static void product_close(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

/* -- values -------------------------------------------------------------------------- */

/* The same product of absolute values: what rounding errors are relative to. */
static void best_gemm(const struct gemm *g)
{
    kernels_best(DTYPE_F32)->gemm(stream_of(kernels_best(DTYPE_F32)), g);
}

static float *magnitudes(const struct product *p, const struct kernels *ref)
{
    struct gemm g = p->g;
    float *a = words_new(room(g.m, g.k)), *b = words_new(room(g.k, g.n));
    float *c = floats_new_set(room(g.m, g.n), 0);
    for (int64_t i = 0; i < room(g.m, g.k); i++)
        a[i] = fabsf(p->a[i]);
    for (int64_t i = 0; i < room(g.k, g.n); i++)
        b[i] = fabsf(p->b[i]);
    g.a = a;
    g.b = b;
    g.c = c;
    g.accumulate = false;
    ref->gemm(stream_of(ref), &g);
    free(a);
    free(b);
    return c;
}

/* `got` and `want` hold C in the strides of g; elements between them must be as `before`.
 * Allowed: 1e-6 of the sum of |a| |b|, and of what was there before. */
static void assert_product(const struct gemm *g, const float *got, const float *want,
                           const float *magnitude, const float *before, const char *what)
{
    bool *is_element = calloc((size_t)room(g->m, g->n), sizeof *is_element);
    assert_non_null(is_element);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            int64_t at = i * g->c_row + j * g->c_col;
            double allowed = 1e-6 * ((double)magnitude[at] + fabs((double)want[at]));
            is_element[at] = true;
            if (!(fabs((double)got[at] - (double)want[at]) <= allowed))
                fail_msg("%s, %lld x %lld x %lld: C(%lld, %lld) is %.9g, not %.9g", what,
                         (long long)g->m, (long long)g->n, (long long)g->k, (long long)i,
                         (long long)j, (double)got[at], (double)want[at]);
        }
    }
    for (int64_t at = 0; at < room(g->m, g->n); at++)
        if (!is_element[at])
            assert_memory_equal(&got[at], &before[at], sizeof got[at]);
    free(is_element);
}

static void check_value(const struct tables *t, int64_t m, int64_t n, int64_t k,
                        const enum lie lies[3], bool accumulate)
{
    kernels_set_threads(1);
    struct product p = product_open(m, n, k, lies[0], lies[1], lies[2]);
    size_t bytes = (size_t)room(m, n) * sizeof(float);
    float *want = words_new(room(m, n)), *got = words_new(room(m, n));
    float *magnitude = magnitudes(&p, t->at[0]);
    struct gemm g = p.g;
    g.accumulate = accumulate;
    g.c = want;
    memcpy(want, p.c, bytes);
    t->at[0]->gemm(stream_of(t->at[0]), &g);
    for (int i = 1; i < t->n; i++) {
        g.c = got;
        memcpy(got, p.c, bytes);
        t->at[i]->gemm(stream_of(t->at[i]), &g);
        assert_product(&g, got, want, magnitude, p.c, t->at[i]->name);
    }
    free(want);
    free(got);
    free(magnitude);
    product_close(&p);
}

static void test_gemm__agrees_with_the_reference_for_all_strides(void **state)
{
    (void)state;
    struct tables t = all_tables();
    struct rng r = {2024};
    for (unsigned pattern = 0; pattern < 27; pattern++) {
        enum lie lies[3] = {pattern % 3, pattern / 3 % 3, pattern / 9};
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_value(&t, 1 + rng_below(&r, 90), 1 + rng_below(&r, 90),
                        1 + rng_below(&r, 300), lies, accumulate);
    }
}

static void test_gemm__agrees_with_the_reference_at_the_edges_of_its_blocks(void **state)
{
    (void)state;
    struct tables t = all_tables();
    static const int64_t sizes[] = {1, 2, 5, 6, 7, 15, 16, 17, 31, 33};
    static const int64_t depths[] = {1, 3, 255, 256, 257, 1000};
    const enum lie lies[3] = {BY_ROWS, BY_COLUMNS, BY_ROWS};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t j = 0; j < ARRAY_LEN(sizes); j++)
            check_value(&t, sizes[i], sizes[j], depths[(i + j) % ARRAY_LEN(depths)], lies,
                        (i + j) % 2);
}

static void test_gemm__overwrites_nan_unless_it_accumulates(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        struct product p = product_open(19, 37, 11, BY_ROWS, BY_ROWS, BY_ROWS);
        floats_set(p.c, 19 * 37, NAN);
        t.at[i]->gemm(stream_of(t.at[i]), &p.g);
        for (int64_t at = 0; at < 19 * 37; at++)
            assert_true(isfinite(p.c[at]));
        p.c[40] = NAN;
        p.g.accumulate = true;
        t.at[i]->gemm(stream_of(t.at[i]), &p.g);
        assert_true(isnan(p.c[40]) && isfinite(p.c[41]));
        product_close(&p);
    }
}

/* -- bits ---------------------------------------------------------------------------- */

struct bits_case {
    int64_t m, n, k;
    enum lie a, b, c;
    bool accumulate;
};

/* The products of GPT-2 124M (hidden 768) for N tokens and odd ones. Forward: x W^T;
 * input gradients: dy W; weight gradients: dy^T x, accumulated. */
static const struct bits_case bits_cases[] = {
    {64, 2304, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false},  // qkv
    {65, 768, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false},   // attention output
    {128, 3072, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false}, // mlp in
    {64, 768, 3072, BY_ROWS, BY_COLUMNS, BY_ROWS, false},  // mlp out
    {1024, 192, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false}, // a slice of many tokens
    {48, 5031, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false},  // a slice of the logits
    {1, 768, 768, BY_ROWS, BY_COLUMNS, BY_ROWS, false},    // one token
    {64, 768, 2304, BY_ROWS, BY_ROWS, BY_ROWS, false},     // d of qkv input
    {96, 768, 3072, BY_ROWS, BY_ROWS, BY_ROWS, false},     // d of mlp input
    {130, 768, 768, BY_ROWS, BY_ROWS, BY_ROWS, true},
    {768, 768, 64, BY_COLUMNS, BY_ROWS, BY_ROWS, true},   // d of a square weight
    {2304, 200, 130, BY_COLUMNS, BY_ROWS, BY_ROWS, true}, // d of the qkv weight
    {300, 768, 512, BY_COLUMNS, BY_ROWS, BY_ROWS, true},  // d of an embedding
    {128, 128, 64, WITH_GAP, BY_COLUMNS, BY_ROWS, false}, // attention scores
    {128, 64, 128, BY_ROWS, WITH_GAP, WITH_GAP, true},    // attention output
    {37, 41, 43, BY_ROWS, BY_ROWS, BY_ROWS, false},
    {131, 257, 1025, BY_COLUMNS, BY_COLUMNS, BY_ROWS, false},
    {259, 127, 511, BY_ROWS, BY_COLUMNS, BY_COLUMNS, true},
    {7, 3, 5, BY_ROWS, BY_COLUMNS, BY_ROWS, false},
};

struct bits_run {
    const struct bits_case *bc;
    struct product p;
    float *start, *want; // C before, and after the whole product with one thread
};

static struct bits_run bits_open(const struct bits_case *bc)
{
    struct bits_run run = {.bc = bc,
                           .p = product_open(bc->m, bc->n, bc->k, bc->a, bc->b, bc->c)};
    size_t bytes = (size_t)room(bc->m, bc->n) * sizeof(float);
    run.p.g.accumulate = bc->accumulate;
    run.start = words_new(room(bc->m, bc->n));
    run.want = words_new(room(bc->m, bc->n));
    memcpy(run.start, run.p.c, bytes);
    kernels_set_threads(1);
    best_gemm(&run.p.g);
    memcpy(run.want, run.p.c, bytes);
    return run;
}

static void bits_close(struct bits_run *run)
{
    free(run->start);
    free(run->want);
    product_close(&run->p);
}

/* C as it was, before another way to compute it is tried. */
static void bits_restart(struct bits_run *run)
{
    memcpy(run->p.c, run->start,
           (size_t)room(run->bc->m, run->bc->n) * sizeof *run->start);
}

static void assert_bits(const struct bits_run *run, const char *how)
{
    char what[120];
    snprintf(what, sizeof what, "%lld x %lld x %lld %s", (long long)run->bc->m,
             (long long)run->bc->n, (long long)run->bc->k, how);
    assert_same_floats(run->p.c, run->want, room(run->bc->m, run->bc->n), what);
}

static void multiply_rows(const struct gemm *g, int64_t first, int64_t n)
{
    struct gemm part = *g;
    part.m = n;
    part.a += first * g->a_row;
    part.c += first * g->c_row;
    best_gemm(&part);
}

static void multiply_columns(const struct gemm *g, int64_t first, int64_t n)
{
    struct gemm part = *g;
    part.n = n;
    part.b += first * g->b_col;
    part.c += first * g->c_col;
    best_gemm(&part);
}

static void test_gemm__number_of_threads_does_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bits_cases); i++) {
        struct bits_run run = bits_open(&bits_cases[i]);
        for (int threads = 2; threads <= 3; threads++) {
            kernels_set_threads(threads);
            bits_restart(&run);
            best_gemm(&run.p.g);
            assert_bits(&run, "with more threads");
        }
        for (int shares = 2; shares <= 8; shares++) {
            bits_restart(&run);
            gemm_blis_shares(&run.p.g, shares);
            assert_bits(&run, "in shares");
        }
        bits_close(&run);
    }
}

/* Split points: near both ends, at the middle, off the sizes of any register block. */
static int64_t split_point(int64_t n, int which)
{
    const int64_t points[] = {1, n / 2, n / 3 + 1, n - 1};
    return points[which];
}

static void check_splits(void (*multiply)(const struct gemm *, int64_t, int64_t),
                         bool is_by_rows, const char *how)
{
    for (size_t i = 0; i < ARRAY_LEN(bits_cases); i++) {
        struct bits_run run = bits_open(&bits_cases[i]);
        int64_t n = is_by_rows ? run.bc->m : run.bc->n;
        for (int which = 0; which < 4 && n > 1; which++) {
            int64_t at = split_point(n, which);
            kernels_set_threads(1 + which % 2);
            bits_restart(&run);
            multiply(&run.p.g, 0, at);
            multiply(&run.p.g, at, n - at);
            assert_bits(&run, how);
        }
        bits_close(&run);
    }
}

static void test_gemm__split_of_the_rows_does_not_change_a_bit(void **state)
{
    (void)state;
    check_splits(multiply_rows, true, "split by rows");
}

static void test_gemm__split_of_the_columns_does_not_change_a_bit(void **state)
{
    (void)state;
    check_splits(multiply_columns, false, "split by columns");
}

/* -- the choice of kernels ---------------------------------------------------------- */

static void test_gemm__takes_avx512_where_it_is_faster(void **state)
{
    (void)state;
    static const struct {
        struct gemm_processor processor;
        bool wants;
    } cases[] = {
        {{"GenuineIntel", 6, true}, true},      // Skylake-X and later
        {{"GenuineIntel", 6, false}, false},    // Haswell; a system without the registers
        {{"AuthenticAMD", 0x17, false}, false}, // Zen 2
        {{"AuthenticAMD", 0x19, true}, false},  // Zen 4: in halves
        {{"AuthenticAMD", 0x1a, true}, true},   // Zen 5
        {{"CentaurHauls", 7, true}, true},      // whoever has it
        {{"", 0, false}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(gemm_wants_avx512(&cases[i].processor), cases[i].wants);
}

/* What is chosen for this process is not left to those that it starts. */
static void test_gemm__leaves_the_environment_as_it_was(void **state)
{
    (void)state;
    const char *before = getenv("BLIS_ARCH_TYPE");
    struct error err;
    kernels_set_threads(3);
    assert_int_equal(kernels_start(&err), 0);
    assert_true(getenv("BLIS_ARCH_TYPE") == before);
    assert_true(strlen(gemm_kernels_name()) > 0);
    kernels_set_threads(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm__leaves_the_environment_as_it_was),
        cmocka_unit_test(test_gemm__takes_avx512_where_it_is_faster),
        cmocka_unit_test(test_gemm__agrees_with_the_reference_for_all_strides),
        cmocka_unit_test(test_gemm__agrees_with_the_reference_at_the_edges_of_its_blocks),
        cmocka_unit_test(test_gemm__overwrites_nan_unless_it_accumulates),
        cmocka_unit_test(test_gemm__number_of_threads_does_not_change_a_bit),
        cmocka_unit_test(test_gemm__split_of_the_rows_does_not_change_a_bit),
        cmocka_unit_test(test_gemm__split_of_the_columns_does_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
