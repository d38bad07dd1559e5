/*
 * Products of weights too large to be packed at once: k in several slabs, rows in several
 * strips. A sample of the elements is the chain of the contract, and every table gives the
 * same bits on any number of threads.
 */
#include "kernel_contract.h"

#define SAMPLES 300

/* x (+)= A B^T or the like by one of the kernels, n elements of type dtype. */
struct long_product {
    int64_t N, I, O;
    enum dtype dtype, out_dtype;
    bool is_weight; // of linear_bwd_weight, accumulated; otherwise of linear_bwd_input
    void *dy, *other, *start;
};

static int64_t n_out(const struct long_product *p)
{
    return (p->is_weight ? p->O : p->N) * p->I;
}

static void *elements_new(int64_t n, enum dtype dtype, uint64_t seed)
{
    float *x = floats_new_bell(n, seed);
    void *y = words_new(n);
    for (int64_t i = 0; i < n; i++)
        set_element(y, dtype, i, x[i]);
    free(x);
    return y;
}

static struct long_product long_open(int64_t N, int64_t I, int64_t O, enum dtype dtype,
                                     enum dtype out_dtype, bool is_weight)
{
    struct long_product p = {N, I, O, dtype, out_dtype, is_weight, NULL, NULL, NULL};
    p.dy = elements_new(N * O, dtype, 1);
    p.other = elements_new((is_weight ? N : O) * I, dtype, 2);
    p.start = elements_new(n_out(&p), out_dtype, 3);
    return p;
}

static void long_close(struct long_product *p)
{
    free(p->dy);
    free(p->other);
    free(p->start);
}

static void *long_run(const struct long_product *p, const struct kernels *k)
{
    size_t bytes = (size_t)n_out(p) * dtype_bytes(p->out_dtype);
    void *out = words_new(n_out(p));
    memcpy(out, p->start, bytes);
    struct weight w = {.dtype = p->dtype, .rows = p->O, .cols = p->I};
    struct stream *s = typed_stream_of(k, p->dtype);
    if (p->is_weight) {
        w.data = out;
        w.dtype = p->out_dtype;
        k->linear_bwd_weight(
            s, &(struct linear_bwd_weight){&w, p->dy, p->other, p->O, true, p->N});
    } else {
        w.data = p->other;
        k->linear_bwd_input(
            s, &(struct linear_bwd_input){out, p->out_dtype, p->dy, p->O, &w, p->N});
    }
    return out;
}

/* Element i as the contract says. */
static float long_want(const struct long_product *p, int64_t i)
{
    int64_t row = i / p->I, column = i % p->I;
    struct operand b = {p->other, p->dtype, column, p->I};
    if (!p->is_weight) {
        struct operand a = {p->dy, p->dtype, row * p->O, 1};
        return rounded_to(p->out_dtype, contract_sum(false, 0, &a, &b, p->O));
    }
    struct operand a = {p->dy, p->dtype, row, p->O};
    float before = element(p->start, p->out_dtype, i);
    if (p->out_dtype == DTYPE_F32)
        return contract_sum(true, before, &a, &b, p->N);
    return rounded_to(p->out_dtype, before + contract_sum(false, 0, &a, &b, p->N));
}

static void check_long(struct long_product p)
{
    static const int threads[] = {1, 2, 8};
    struct tables t = all_tables();
    struct rng r = {9};
    void *first = NULL;
    size_t bytes = (size_t)n_out(&p) * dtype_bytes(p.out_dtype);
    for (int i = t.n - 1; i > 1; i--) // generic takes minutes
        for (size_t j = 0; j < ARRAY_LEN(threads); j++) {
            kernels_set_threads(threads[j]);
            void *out = long_run(&p, t.at[i]);
            for (int sample = 0; !first && sample < SAMPLES; sample++) {
                int64_t at = rng_below(&r, n_out(&p));
                float want = long_want(&p, at), got = element(out, p.out_dtype, at);
                if (memcmp(&got, &want, sizeof got) != 0)
                    fail_msg("%s, %s: element %lld is %a, not %a", t.at[i]->name,
                             dtype_name(p.dtype), (long long)at, (double)got,
                             (double)want);
            }
            if (first) {
                assert_memory_equal(out, first, bytes);
                free(out);
            } else {
                first = out;
            }
        }
    kernels_set_threads(1);
    free(first);
    long_close(&p);
}

static void test_products__rows_in_several_strips(void **state)
{
    (void)state;
    check_long(long_open(640, 1100, 1500, DTYPE_BF16, DTYPE_BF16, false));
    check_long(long_open(640, 1100, 1500, DTYPE_F16, DTYPE_F16, false));
    check_long(long_open(1500, 1100, 640, DTYPE_BF16, DTYPE_BF16, true));
}

static void test_products__k_in_many_slabs(void **state)
{
    (void)state;
    check_long(long_open(50, 90, 50304, DTYPE_BF16, DTYPE_BF16, false));
    check_long(long_open(50, 90, 50304, DTYPE_F32, DTYPE_F32, false));
    check_long(long_open(9000, 130, 50, DTYPE_BF16, DTYPE_F32, true));
    check_long(long_open(9000, 130, 50, DTYPE_F16, DTYPE_F16, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products__rows_in_several_strips),
        cmocka_unit_test(test_products__k_in_many_slabs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
