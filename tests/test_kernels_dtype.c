/*
 * Kernels that read or write stored numbers: every table must give the bits that the
 * scalar conversions of dtype.h give, for any length, alignment and number of threads,
 * and leave alone what lies beside.
 */
#include "kernel_test.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
static const int64_t counts[] = {0,    1,    7,    8,     9,     15,    1023,
                                 1024, 1025, 4001, 16383, 16384, 16385, 50003};

/* Calls `check` for every table, type and number of threads. */
static void for_each_dtype(void (*check)(const struct kernels *k, enum dtype dtype))
{
    static const int threads[] = {1, 2, 3, 5};
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            for (size_t n = 0; n < ARRAY_LEN(threads); n++) {
                kernels_set_threads(threads[n]);
                check(t.at[i], dtypes[d]);
            }
    kernels_set_threads(1);
}

/* -- elements of every kind ---------------------------------------------------------- */

static float *floats_new_any(int64_t n, uint64_t seed)
{
    struct rng r = {seed};
    float *x = words_new(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_any(&r);
    return x;
}

static void *stored_new_any(int64_t n, enum dtype dtype, uint64_t seed)
{
    float *x = floats_new_any(n, seed);
    void *y = words_new(n);
    for (int64_t i = 0; i < n; i++)
        set_element(y, dtype, i, x[i]);
    free(x);
    return y;
}

static void *copy_new(const void *x, int64_t n_words)
{
    void *y = words_new(n_words);
    memcpy(y, x, (size_t)n_words * 4);
    return y;
}

/* Numbers equal bit by bit, or NaN both: an addition may keep either NaN's bits. */
static void assert_same_stored(const void *got, const void *want, enum dtype dtype,
                               int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        float g = element(got, dtype, i), w = element(want, dtype, i);
        if (f32_bits(g) != f32_bits(w) && !(isnan(g) && isnan(w)))
            fail_msg("%s, %s: element %lld of %lld is %a, not %a", what,
                     dtype_name(dtype), (long long)i, (long long)n, (double)g, (double)w);
    }
}

/* -- flat ranges --------------------------------------------------------------------- */

#define SPARE 3 // elements on each side that must survive

/* The buffers of one check, n elements with spare ones before and after. */
struct flat {
    int64_t n, n_all;
    size_t skip; // bytes of stored elements before the range
    float *x;
    char *stored, *want;
};

static struct flat flat_open(int64_t n, enum dtype dtype)
{
    struct flat f = {.n = n, .n_all = n + 2 * SPARE};
    f.skip = SPARE * dtype_bytes(dtype);
    f.x = floats_new_any(f.n_all, 1);
    f.stored = stored_new_any(f.n_all, dtype, 2);
    f.want = copy_new(f.stored, f.n_all);
    return f;
}

static void flat_close(struct flat *f)
{
    free(f->x);
    free(f->stored);
    free(f->want);
}

static void check_load(const struct kernels *k, enum dtype dtype)
{
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        struct flat f = flat_open(counts[c], dtype);
        float *want = copy_new(f.x, f.n_all);
        for (int64_t i = SPARE; i < SPARE + f.n; i++)
            want[i] = element(f.stored, dtype, i);
        k->load(stream_of(k),
                &(struct convert){f.x + SPARE, f.stored + f.skip, dtype, f.n});
        assert_same_floats(f.x, want, f.n_all, "load");
        free(want);
        flat_close(&f);
    }
}

static void test_load__widens_every_element(void **state)
{
    (void)state;
    for_each_dtype(check_load);
}

static void check_store(const struct kernels *k, enum dtype dtype)
{
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        struct flat f = flat_open(counts[c], dtype);
        size_t bytes = (size_t)f.n_all * dtype_bytes(dtype);
        float *x = copy_new(f.x, f.n_all);
        for (int64_t i = SPARE; i < SPARE + f.n; i++)
            set_element(f.want, dtype, i, x[i]);
        k->store(stream_of(k),
                 &(struct convert){f.stored + f.skip, f.x + SPARE, dtype, f.n});
        assert_memory_equal(f.stored, f.want, bytes);
        assert_same_floats(f.x, x, f.n_all, "store's input");
        free(x);
        flat_close(&f);
    }
}

static void test_store__rounds_every_element_and_leaves_its_source(void **state)
{
    (void)state;
    for_each_dtype(check_store);
}

static void check_store_add(const struct kernels *k, enum dtype dtype)
{
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        struct flat f = flat_open(counts[c], dtype);
        for (int64_t i = SPARE; i < SPARE + f.n; i++)
            set_element(f.want, dtype, i, element(f.stored, dtype, i) + f.x[i]);
        k->store_add(stream_of(k),
                     &(struct convert){f.stored + f.skip, f.x + SPARE, dtype, f.n});
        assert_same_stored(f.stored, f.want, dtype, f.n_all, "store_add");
        flat_close(&f);
    }
}

static void check_add_stored(const struct kernels *k, enum dtype dtype)
{
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        struct flat f = flat_open(counts[c], dtype);
        char *x = stored_new_any(f.n_all, dtype, 3);
        for (int64_t i = SPARE; i < SPARE + f.n; i++)
            set_element(f.want, dtype, i,
                        element(f.stored, dtype, i) + element(x, dtype, i));
        k->add_stored(stream_of(k),
                      &(struct convert){f.stored + f.skip, x + f.skip, dtype, f.n});
        assert_same_stored(f.stored, f.want, dtype, f.n_all, "add_stored");
        free(x);
        flat_close(&f);
    }
}

static void test_add_stored__adds_in_float_and_rounds_once(void **state)
{
    (void)state;
    for_each_dtype(check_add_stored);
}

static void test_store_add__adds_in_float_and_rounds_once(void **state)
{
    (void)state;
    for_each_dtype(check_store_add);
}

/* -- sums of squares ----------------------------------------------------------------- */

static void check_squares(const struct kernels *k, enum dtype dtype)
{
    enum { N = 5 * KERNEL_SQUARE_CHUNK + 77 };
    double got[6], want[6];
    float *x = floats_new_bell(N, 5);
    void *stored = words_new(N);
    for (int64_t i = 0; i < N; i++) {
        set_element(stored, dtype, i, x[i]);
        x[i] = element(stored, dtype, i);
    }
    k->sum_squares(stream_of(k), &(struct sum_squares){want, x, DTYPE_F32, N});
    k->sum_squares(stream_of(k), &(struct sum_squares){got, stored, dtype, N});
    assert_memory_equal(got, want, sizeof want);
    free(x);
    free(stored);
}

static void test_sum_squares__of_stored_numbers_is_that_of_the_widened(void **state)
{
    (void)state;
    for_each_dtype(check_squares);
}

/* -- the optimizer ------------------------------------------------------------------- */

static const struct adamw_rule step = {.lr = 0.01,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .decay = 0.1,
                                       .bias1 = 0.19,
                                       .bias2 = 0.0975,
                                       .grad_scale = 1.0 / 3};

struct state { // of n parameters
    int64_t n;
    float *master, *exp_avg, *exp_avg_sq, *grad;
    char *stored_grad, *param;
    enum dtype dtype;
};

static struct state state_open(int64_t n, enum dtype dtype)
{
    struct state s = {.n = n,
                      .master = floats_new_bell(n, 11),
                      .exp_avg = floats_new_bell(n, 12),
                      .exp_avg_sq = floats_new_bell(n, 13),
                      .grad = floats_new_bell(n, 14),
                      .stored_grad = words_new(n),
                      .param = words_new(n),
                      .dtype = dtype};
    for (int64_t i = 0; i < n; i++) {
        s.exp_avg_sq[i] *= s.exp_avg_sq[i];
        set_element(s.stored_grad, dtype, i, s.grad[i]);
        s.grad[i] = element(s.stored_grad, dtype, i);
    }
    return s;
}

static void state_close(struct state *s)
{
    float *all[] = {s->master, s->exp_avg, s->exp_avg_sq, s->grad};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    free(s->stored_grad);
    free(s->param);
}

/* Elements first .. end with stored gradients and parameters. */
static void update_stored(const struct state *s, const struct kernels *k,
                          const struct adamw_rule *a, int64_t first, int64_t end)
{
    size_t skip = (size_t)first * dtype_bytes(s->dtype);
    k->adamw(stream_of(k), &(struct adamw){.rule = *a,
                                           .master = s->master + first,
                                           .param = s->param + skip,
                                           .param_dtype = s->dtype,
                                           .grad = s->stored_grad + skip,
                                           .grad_dtype = s->dtype,
                                           .exp_avg = s->exp_avg + first,
                                           .exp_avg_sq = s->exp_avg_sq + first,
                                           .n = end - first});
}

static void update_floats(const struct state *s, const struct kernels *k,
                          const struct adamw_rule *a)
{
    k->adamw(stream_of(k), &(struct adamw){.rule = *a,
                                           .master = s->master,
                                           .grad = s->grad,
                                           .exp_avg = s->exp_avg,
                                           .exp_avg_sq = s->exp_avg_sq,
                                           .n = s->n});
}

static void assert_same_states(const struct state *got, const struct state *want)
{
    assert_same_floats(got->master, want->master, want->n, "master");
    assert_same_floats(got->exp_avg, want->exp_avg, want->n, "exp_avg");
    assert_same_floats(got->exp_avg_sq, want->exp_avg_sq, want->n, "exp_avg_sq");
}

/* One update of stored numbers, in one piece and in pieces of odd lengths, against one of
 * floats on one thread. */
static void check_adamw(const struct kernels *k, enum dtype dtype)
{
    enum { N = 40007 };
    for (int is_l2 = 0; is_l2 < 2; is_l2++) {
        struct adamw_rule a = step;
        struct state whole = state_open(N, dtype), pieces = state_open(N, dtype);
        struct state floats = state_open(N, dtype);
        a.is_l2 = is_l2;
        update_floats(&floats, k, &a);
        update_stored(&whole, k, &a, 0, N);
        for (int64_t first = 0, n = 1; first < N; first += n, n = n * 3 + 1)
            update_stored(&pieces, k, &a, first, i64_min(N, first + n));
        assert_same_states(&whole, &floats);
        assert_same_states(&pieces, &floats);
        for (int64_t i = 0; i < N; i++)
            set_element(floats.param, dtype, i, floats.master[i]);
        assert_same_stored(whole.param, floats.param, dtype, N, "param");
        assert_same_stored(pieces.param, floats.param, dtype, N, "param in pieces");
        state_close(&whole);
        state_close(&pieces);
        state_close(&floats);
    }
}

static void test_adamw__on_stored_numbers_has_the_bits_of_floats_however_cut(void **state)
{
    (void)state;
    for_each_dtype(check_adamw);
}

static void test_adamw__parameters_that_are_their_own_master_stay_so(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        struct state want = state_open(100, DTYPE_F32), got = state_open(100, DTYPE_F32);
        update_floats(&want, t.at[i], &step);
        free(got.param);
        got.param = (char *)got.master;
        update_stored(&got, t.at[i], &step, 0, 100);
        assert_same_states(&got, &want);
        got.param = NULL;
        state_close(&want);
        state_close(&got);
    }
}

/* By hand, first step from zero moments: with L2 the decay passes through the moments, so
 * that a parameter without gradient moves by the whole rate, whatever the decay. */
static void test_adam__with_l2_decays_through_the_gradient(void **state)
{
    (void)state;
    struct tables t = all_tables();
    for (int i = 0; i < t.n; i++) {
        float p[] = {2, -2, 1}, g[] = {0, 0, -3}, m[3] = {0}, v[3] = {0};
        struct adamw_rule a = {.lr = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .epsilon = 1e-12,
                               .decay = 0.5,
                               .bias1 = 0.1,
                               .bias2 = 0.01,
                               .grad_scale = 2,
                               .is_l2 = true};
        t.at[i]->adamw(stream_of(t.at[i]), &(struct adamw){.rule = a,
                                                           .master = p,
                                                           .grad = g,
                                                           .exp_avg = m,
                                                           .exp_avg_sq = v,
                                                           .n = 3});
        static const double gradients[] = {1, -1, -5.5}; // 2 g + 0.5 p
        static const double moved[] = {1.9, -1.9, 1.1};
        for (int j = 0; j < 3; j++) {
            assert_close(m[j], 0.1 * gradients[j], 1e-6);
            assert_close(v[j], 0.01 * gradients[j] * gradients[j], 1e-6);
            assert_close(p[j], moved[j], 1e-5);
        }
    }
}

/* Against the reference, in double. */
static void test_adam__agrees_with_the_reference(void **state)
{
    (void)state;
    enum { N = 3001 };
    struct tables t = all_tables();
    struct adamw_rule a = step;
    a.is_l2 = true;
    for (int i = 1; i < t.n; i++) {
        struct state want = state_open(N, DTYPE_F16), got = state_open(N, DTYPE_F16);
        update_stored(&want, t.at[0], &a, 0, N);
        update_stored(&got, t.at[i], &a, 0, N);
        for (int64_t j = 0; j < N; j++) {
            assert_close(got.master[j], want.master[j], 2e-6);
            assert_close(got.exp_avg[j], want.exp_avg[j], 1e-6);
            assert_close(got.exp_avg_sq[j], want.exp_avg_sq[j], 3e-6);
        }
        state_close(&want);
        state_close(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load__widens_every_element),
        cmocka_unit_test(test_store__rounds_every_element_and_leaves_its_source),
        cmocka_unit_test(test_add_stored__adds_in_float_and_rounds_once),
        cmocka_unit_test(test_store_add__adds_in_float_and_rounds_once),
        cmocka_unit_test(test_sum_squares__of_stored_numbers_is_that_of_the_widened),
        cmocka_unit_test(
            test_adamw__on_stored_numbers_has_the_bits_of_floats_however_cut),
        cmocka_unit_test(test_adamw__parameters_that_are_their_own_master_stay_so),
        cmocka_unit_test(test_adam__with_l2_decays_through_the_gradient),
        cmocka_unit_test(test_adam__agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
