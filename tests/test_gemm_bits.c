/*
 * The promise that layouts and processors rest on: an element of a product is one chain
 * of operations, written down in kernels.h. So neither the instruction set, nor the number
 * of threads, nor a split of the rows or of the columns over calls, nor the other rows and
 * columns may change a bit of one.
 */
#include "kernel_test.h"

#include <float.h>

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

/* -- the contract -------------------------------------------------------------------- */

/* One element, as kernels.h says. */
static float chain(const struct gemm *g, int64_t i, int64_t j, float before)
{
    enum { BLOCK = 256 };
    float c = before;
    for (int64_t first = 0; first < g->k; first += BLOCK) {
        float p = 0;
        for (int64_t k = first; k < i64_min(first + BLOCK, g->k); k++)
            p = fmaf(g->a[i * g->a_row + k * g->a_col], g->b[k * g->b_row + j * g->b_col],
                     p);
        c = first > 0 || g->accumulate ? c + p : p;
    }
    return c;
}

static void assert_same_number(float got, float want, const struct gemm *g, int64_t i,
                               int64_t j, const char *what)
{
    if (isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof got) == 0)
        return;
    fail_msg("%s, %lld x %lld x %lld: C(%lld, %lld) is %a, not %a", what, (long long)g->m,
             (long long)g->n, (long long)g->k, (long long)i, (long long)j, (double)got,
             (double)want);
}

/* p's product by every table, on each number of threads: its elements are the chain, and
 * what lies between them stays. */
static void check_chain(const struct product *p, const int *threads, size_t n_threads)
{
    struct tables t = all_tables();
    struct gemm g = p->g;
    int64_t n = room(g.m, g.n);
    float *want = words_new(n), *got = words_new(n);
    memcpy(want, p->c, (size_t)n * sizeof *want);
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j++) {
            int64_t at = i * g.c_row + j * g.c_col;
            want[at] = chain(&g, i, j, p->c[at]);
        }
    g.c = got;
    for (int table = 1; table < t.n; table++)
        for (size_t i = 0; i < n_threads; i++) {
            char what[80];
            snprintf(what, sizeof what, "%s, %d threads", t.at[table]->name, threads[i]);
            kernels_set_threads(threads[i]);
            memcpy(got, p->c, (size_t)n * sizeof *got);
            t.at[table]->gemm(stream_of(t.at[table]), &g);
            for (int64_t at = 0; at < n; at++)
                assert_same_number(got[at], want[at], &g, at / g.n, at % g.n, what);
        }
    kernels_set_threads(1);
    free(want);
    free(got);
}

static void test_gemm__is_the_chain_of_the_contract(void **state)
{
    (void)state;
    static const int64_t depths[] = {1,   2,   31,  255, 256,  257,  511,
                                     512, 513, 767, 900, 1025, 1281, 2100};
    static const int threads[] = {1, 2, 3};
    struct rng r = {17};
    for (unsigned i = 0; i < 3 * ARRAY_LEN(depths); i++) {
        struct product p =
            product_open(1 + rng_below(&r, 70), 1 + rng_below(&r, 100),
                         depths[i % ARRAY_LEN(depths)], i % 3, i / 3 % 3, i / 9 % 3);
        p.g.accumulate = i % 2;
        check_chain(&p, threads, ARRAY_LEN(threads));
        product_close(&p);
    }
}

/* Whole, and a few rows, which are divided by columns alone; K beyond what is packed at a
 * time. The threads are more than the processors. */
static void test_gemm__many_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } sizes[] = {{400, 330, 300}, {3, 1200, 513}, {1500, 20, 257},
                 {6, 40, 9000},   {33, 65, 4000}, {130, 1100, 600}};
    static const int threads[] = {1, 2, 3, 8, 32, 128};
    for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
        struct product p = product_open(sizes[i].m, sizes[i].n, sizes[i].k, i % 3,
                                        (i + 1) % 3, i % 2 ? BY_ROWS : WITH_GAP);
        p.g.accumulate = i % 2;
        check_chain(&p, threads, ARRAY_LEN(threads));
        product_close(&p);
    }
}

/* Numbers whose sums overflow, are subnormal or are none: in the same elements. */
static void test_gemm__has_the_same_infinities_and_nans(void **state)
{
    (void)state;
    static const int threads[] = {1, 2};
    static const float odd[] = {INFINITY, -INFINITY, NAN,        FLT_MAX, -FLT_MAX,
                                FLT_MIN,  0x1p-149F, -0x1p-140F, 0.0F,    -0.0F};
    struct rng r = {5};
    for (unsigned pattern = 0; pattern < 9; pattern++) {
        struct product p =
            product_open(29, 71, 300, pattern % 3, pattern / 3, pattern % 2);
        for (int64_t i = 0; i < room(29, 300); i++)
            if (rng_below(&r, 200) == 0)
                p.a[i] = odd[rng_below(&r, (int64_t)ARRAY_LEN(odd))];
        for (int64_t i = 0; i < room(300, 71); i++)
            if (pattern % 2 && rng_below(&r, 2000) == 0)
                p.b[i] = odd[rng_below(&r, (int64_t)ARRAY_LEN(odd))];
            else if (pattern == 8)
                p.b[i] *= 0x1p-126F;
        p.g.accumulate = pattern % 4 == 1;
        check_chain(&p, threads, ARRAY_LEN(threads));
        product_close(&p);
    }
}

static void test_gemm__a_sum_of_nothing_is_zero(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 1; i < t.n; i++) {
        struct product p = product_open(5, 7, 3, BY_ROWS, BY_ROWS, BY_ROWS);
        p.g.k = 0;
        float first = p.c[0];
        p.g.accumulate = true;
        t.at[i]->gemm(stream_of(t.at[i]), &p.g);
        assert_memory_equal(p.c, &first, sizeof first);
        p.g.accumulate = false;
        t.at[i]->gemm(stream_of(t.at[i]), &p.g);
        for (int64_t at = 0; at < 5 * 7; at++)
            assert_true(p.c[at] == 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm__is_the_chain_of_the_contract),
        cmocka_unit_test(test_gemm__many_threads_do_not_change_a_bit),
        cmocka_unit_test(test_gemm__has_the_same_infinities_and_nans),
        cmocka_unit_test(test_gemm__a_sum_of_nothing_is_zero),
        cmocka_unit_test(test_gemm__agrees_with_the_reference_for_all_strides),
        cmocka_unit_test(test_gemm__agrees_with_the_reference_at_the_edges_of_its_blocks),
        cmocka_unit_test(test_gemm__overwrites_nan_unless_it_accumulates),
        cmocka_unit_test(test_gemm__number_of_threads_does_not_change_a_bit),
        cmocka_unit_test(test_gemm__split_of_the_rows_does_not_change_a_bit),
        cmocka_unit_test(test_gemm__split_of_the_columns_does_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
