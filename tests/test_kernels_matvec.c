/*
 * A matrix times a few rows: near the reference for every type of matrix, and each row
 * the same bits whatever rows stand beside it and whoever computes it.
 */
#include "kernel_test.h"

enum { ROWS_MOST = 37, OUT_MOST = 70 };

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
static const int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, ROWS_MOST};
static const int64_t widths[] = {1, 7, 15, 16, 17, 64, 100, 1023, 1024, 1025, 3072};

/* w (O, I) and x (R, I), bell-shaped: as they are stored, and what that stands for. */
struct operands {
    int64_t O, I;
    enum dtype dtype;
    float *b, *rounded_w, *rounded_x;
    void *w, *x;
};

static struct operands operands_open(int64_t O, int64_t I, enum dtype dtype)
{
    struct operands p = {.O = O,
                         .I = I,
                         .dtype = dtype,
                         .b = floats_new_bell(O, 2),
                         .rounded_w = words_new(O * I),
                         .rounded_x = words_new(ROWS_MOST * I),
                         .w = stored_new_bell(O * I, dtype, 3),
                         .x = stored_new_bell(ROWS_MOST * I, dtype, 1)};
    dtype_load(p.rounded_w, p.w, dtype, O * I);
    dtype_load(p.rounded_x, p.x, dtype, ROWS_MOST * I);
    return p;
}

static void operands_close(struct operands *p)
{
    void *all[] = {p->x, p->b, p->rounded_w, p->rounded_x, p->w};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

/* Rows first .. first + R of x. */
static void multiply(const struct kernels *k, const struct operands *p, void *y,
                     enum dtype y_dtype, const float *b, int64_t first, int64_t R)
{
    matvec(k, y, y_dtype, p->w, p->dtype, element_at(p->x, p->dtype, first * p->I), b, R,
           p->O, p->I);
}

/* In double; a sum of n products is off by a few roundings of its largest part. */
static void assert_near_sums(const float *y, const struct operands *p, bool has_bias,
                             int64_t R)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < p->O; o++) {
            double sum = has_bias ? (double)p->b[o] : 0, size = fabs(sum);
            for (int64_t i = 0; i < p->I; i++) {
                double part = (double)p->rounded_w[o * p->I + i] *
                              (double)p->rounded_x[r * p->I + i];
                sum += part;
                size += fabs(part);
            }
            assert_close(y[r * p->O + o], sum, 2e-7 * size + 1e-7);
        }
}

static void test_matvec__is_near_the_sums_in_double(void **state)
{
    (void)state;
    enum { O = 5, R = 6 };
    struct tables t = all_tables();
    for (int k = 0; k < t.n; k++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
                struct operands p = operands_open(O, widths[w], dtypes[d]);
                float y[R * O];
                multiply(t.at[k], &p, y, DTYPE_F32, p.b, 0, R);
                assert_near_sums(y, &p, true, R);
                multiply(t.at[k], &p, y, DTYPE_F32, NULL, 0, R);
                assert_near_sums(y, &p, false, R);
                operands_close(&p);
            }
}

/* All rows at once, by any number of threads, against one by one; and what is rounded
 * against what is not. */
static void check_rows(const struct kernels *k, enum dtype dtype, int64_t O, int64_t I)
{
    struct operands p = operands_open(O, I, dtype);
    float *alone = floats_new_set(ROWS_MOST * O, NAN);
    float *together = words_new(ROWS_MOST * O + 1);
    uint16_t *stored = words_new(ROWS_MOST * O), *want = words_new(ROWS_MOST * O);
    kernels_set_threads(1);
    for (int64_t r = 0; r < ROWS_MOST; r++)
        multiply(k, &p, alone + r * O, DTYPE_F32, p.b, r, 1);
    multiply(k, &p, stored, dtype, p.b, 0, ROWS_MOST);
    dtype_store(want, alone, dtype, ROWS_MOST * O);
    assert_memory_equal(stored, want, (size_t)(ROWS_MOST * O) * dtype_bytes(dtype));
    for (size_t n = 0; n < ARRAY_LEN(row_counts); n++)
        for (int threads = 1; threads <= 3; threads++) {
            int64_t R = row_counts[n], first = (ROWS_MOST - R) / 2;
            kernels_set_threads(threads);
            floats_set(together, ROWS_MOST * O + 1, -1.5F);
            multiply(k, &p, together, DTYPE_F32, p.b, first, R);
            assert_same_floats(together, alone + first * O, R * O, "rows together");
            assert_true(together[R * O] == -1.5F);
        }
    kernels_set_threads(1);
    free(alone);
    free(together);
    free(stored);
    free(want);
    operands_close(&p);
}

static void test_matvec__a_row_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        {1, 3}, {OUT_MOST, 16}, {OUT_MOST, 100}, {7, 1025}, {9, 2048}};
    struct tables t = all_tables();
    for (int k = 0; k < t.n; k++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
                check_rows(t.at[k], dtypes[d], shapes[s][0], shapes[s][1]);
}

/* Where a row of the matrix begins in memory changes nothing either. */
static void test_matvec__alignment_does_not_change_a_bit(void **state)
{
    (void)state;
    enum { O = 3, I = 77, R = 5 };
    struct tables t = all_tables();
    for (int k = 0; k < t.n; k++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
            struct operands p = operands_open(O, I, dtypes[d]), away = p;
            float want[R * O], got[R * O];
            char *moved = words_new(O * I + 1);
            away.w = moved + dtype_bytes(dtypes[d]);
            memcpy(away.w, p.w, O * I * dtype_bytes(dtypes[d]));
            multiply(t.at[k], &p, want, DTYPE_F32, p.b, 0, R);
            multiply(t.at[k], &away, got, DTYPE_F32, p.b, 0, R);
            assert_same_floats(got, want, R * O, "a moved matrix");
            free(moved);
            operands_close(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matvec__is_near_the_sums_in_double),
        cmocka_unit_test(test_matvec__a_row_does_not_depend_on_its_neighbours),
        cmocka_unit_test(test_matvec__alignment_does_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
