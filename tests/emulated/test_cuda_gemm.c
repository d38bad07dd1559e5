/*
 * The products of the plug-in for NVIDIA's GPUs (cuda/cuda_gemm.c), where the library has
 * no product at all, so that our own kernels and the parts of the workspace compute all of
 * it: against the processor's. The workspace is small here, so that there are many parts.
 */
#include "device/cuda/cuda_gemm.h"
#include "device/cuda/cuda_product.h"
#include "emulated/emulated_test.h"

#define MOST 4096

/* -- a library that has nothing ------------------------------------------------------ */

static int n_asked;
static int64_t most_asked; // columns of one product

bool cuda_product_run(const struct cuda_product *p)
{
    assert_true(p->m > 0 && p->n > 0 && p->k > 0);
    assert_true(!p->bias || p->d_dtype == DTYPE_F32); // it adds no other
    most_asked = i64_max(most_asked, p->n);
    n_asked++;
    return false;
}

int cuda_product_open(void **ours, struct error *err)
{
    (void)err;
    *ours = gpu_alloc(CUDA_PRODUCT_OURS_BYTES);
    assert_non_null(*ours);
    return 0;
}

void cuda_product_close(void)
{
}

void gpu_allow_tf32(bool is_allowed)
{
    (void)is_allowed;
}

/* -- operands ------------------------------------------------------------------------ */

struct operand { // the same numbers for the host and the device
    _Alignas(64) unsigned char host[MOST * sizeof(float)];
    void *device;
    size_t bytes;
};

static uint32_t random_bits = 1;

static void fill(struct operand *x, enum dtype dtype, int64_t n)
{
    float values[MOST];
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        random_bits = random_bits * 1664525 + 1013904223;
        values[i] = (float)(random_bits >> 8) / (1 << 23) - 1;
    }
    dtype_store(x->host, values, dtype, n);
    x->bytes = (size_t)n * dtype_bytes(dtype);
    x->device = gpu_alloc(x->bytes);
    assert_non_null(x->device);
    gpu_copy(STREAM_COMPUTE, x->device, x->host, x->bytes, COPY_TO_DEVICE);
}

static void release(struct operand *x)
{
    gpu_synchronize(STREAM_COMPUTE);
    gpu_free(x->device, x->bytes);
}

/* What both computed: the same bits of float, within roundings of 16 bits otherwise. */
static void assert_same(const struct operand *x, enum dtype dtype, enum dtype of)
{
    static unsigned char got[MOST * sizeof(float)];
    float a[MOST], b[MOST];
    int64_t n = (int64_t)(x->bytes / dtype_bytes(dtype));
    read_device(got, x->device, x->bytes);
    dtype_load(a, x->host, dtype, n);
    dtype_load(b, got, dtype, n);
    double step = dtype == DTYPE_F32 ? 1e-6 : dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-7;
    for (int64_t i = 0; i < n; i++)
        if (of == DTYPE_F32)
            assert_int_equal(f32_bits(a[i]), f32_bits(b[i]));
        else
            assert_close(a[i], b[i], 2 * step * (1 + fabs((double)a[i])));
}

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

static struct stream *host_stream(enum dtype dtype)
{
    return device_stream(device_cpu(dtype), STREAM_COMPUTE);
}

/* -- tests --------------------------------------------------------------------------- */

struct shape {
    int64_t N, O, I;
};
static const struct shape shapes[] = {{1, 1, 1}, {7, 5, 300}, {70, 33, 17}, {33, 64, 48}};

static void check_forward(enum dtype dtype, const struct shape *shape, enum dtype y_dtype,
                          bool has_bias)
{
    struct operand w, x, y, bias;
    fill(&w, dtype, shape->O * shape->I);
    fill(&x, dtype, shape->N * shape->I);
    fill(&y, y_dtype, shape->N * shape->O);
    fill(&bias, DTYPE_F32, shape->O);
    struct weight weight = {
        .data = w.host, .dtype = dtype, .rows = shape->O, .cols = shape->I};
    struct linear l = {.w = &weight,
                       .x = x.host,
                       .y = y.host,
                       .y_dtype = y_dtype,
                       .bias = has_bias ? (const float *)bias.host : NULL,
                       .act = ACTIVATION_NONE,
                       .N = shape->N};
    device_cpu(dtype)->k->linear_fwd(host_stream(dtype), &l);
    weight.data = w.device;
    l.x = x.device;
    l.y = y.device;
    l.bias = has_bias ? bias.device : NULL;
    gpu_linear_fwd(STREAM_COMPUTE, dtype, &l);
    assert_same(&y, y_dtype, dtype);
    release(&w);
    release(&x);
    release(&y);
    release(&bias);
}

static void test_products__forward_with_and_without_bias(void **state)
{
    (void)state;
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
            for (int has_bias = 0; has_bias < 2; has_bias++) {
                check_forward(dtypes[d], &shapes[s], dtypes[d], has_bias);
                check_forward(dtypes[d], &shapes[s], DTYPE_F32, has_bias);
            }
}

/* The library is asked for rows that fit, and for no more at a time. */
static void test_products__with_a_bias_come_in_parts(void **state)
{
    (void)state;
    const struct shape shape = {70, 33, 17};
    n_asked = 0;
    check_forward(DTYPE_BF16, &shape, DTYPE_BF16, true);
    int64_t rows = CUDA_PRODUCT_OURS_BYTES / (33 * (int64_t)sizeof(float));
    assert_true(rows < 70);
    int64_t n_parts = (70 + rows - 1) / rows;
    assert_int_equal(n_asked, n_parts);
    n_asked = 0;
    check_forward(DTYPE_BF16, &shape, DTYPE_F32, true);
    assert_int_equal(n_asked, 1 + n_parts); // once with its bias
}

static void test_products__come_in_even_parts(void **state)
{
    (void)state;
    int64_t most = CUDA_PRODUCT_OURS_BYTES / (int64_t)sizeof(float);
    const struct shape shape = {most + 64, 1, 2};
    n_asked = 0;
    most_asked = 0;
    check_forward(DTYPE_BF16, &shape, DTYPE_BF16, true);
    assert_int_equal(n_asked, 2);
    assert_true(most_asked >= shape.N / 2 && most_asked < shape.N / 2 + 64);
}

static void check_backward(enum dtype dtype, const struct shape *shape, enum dtype of_dx)
{
    struct operand w, dx, dy;
    int64_t dy_row = shape->O + 3;
    fill(&w, dtype, shape->O * shape->I);
    fill(&dy, dtype, shape->N * dy_row);
    fill(&dx, of_dx, shape->N * shape->I);
    struct weight weight = {
        .data = w.host, .dtype = dtype, .rows = shape->O, .cols = shape->I};
    struct linear_bwd_input l = {.dx = dx.host,
                                 .dx_dtype = of_dx,
                                 .dy = dy.host,
                                 .dy_row = dy_row,
                                 .w = &weight,
                                 .N = shape->N};
    device_cpu(dtype)->k->linear_bwd_input(host_stream(dtype), &l);
    weight.data = w.device;
    l.dx = dx.device;
    l.dy = dy.device;
    gpu_linear_bwd_input(STREAM_COMPUTE, dtype, &l);
    assert_same(&dx, of_dx, dtype);
    release(&w);
    release(&dx);
    release(&dy);
}

static void test_products__by_input(void **state)
{
    (void)state;
    const struct shape small[] = {{1, 1, 1}, {7, 5, 30}, {20, 33, 17}};
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
        for (size_t s = 0; s < ARRAY_LEN(small); s++) {
            check_backward(dtypes[d], &small[s], dtypes[d]);
            check_backward(dtypes[d], &small[s], DTYPE_F32);
        }
}

static void check_weight(enum dtype dtype, const struct shape *shape, enum dtype of_dw,
                         bool accumulate)
{
    struct operand x, dw, dy;
    int64_t dy_row = shape->O + 1;
    fill(&x, dtype, i64_max(shape->N, 1) * shape->I);
    fill(&dy, dtype, i64_max(shape->N, 1) * dy_row);
    fill(&dw, of_dw, shape->O * shape->I);
    struct weight weight = {
        .data = dw.host, .dtype = of_dw, .rows = shape->O, .cols = shape->I};
    struct linear_bwd_weight l = {.dw = &weight,
                                  .dy = dy.host,
                                  .x = x.host,
                                  .dy_row = dy_row,
                                  .accumulate = accumulate,
                                  .N = shape->N};
    device_cpu(dtype)->k->linear_bwd_weight(host_stream(dtype), &l);
    weight.data = dw.device;
    l.dy = dy.device;
    l.x = x.device;
    gpu_linear_bwd_weight(STREAM_COMPUTE, dtype, &l);
    assert_same(&dw, of_dw, dtype);
    release(&x);
    release(&dw);
    release(&dy);
}

static void test_products__by_weight(void **state)
{
    (void)state;
    const struct shape small[] = {{1, 1, 1}, {30, 5, 7}, {20, 70, 33}};
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
        for (size_t s = 0; s < ARRAY_LEN(small); s++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                check_weight(dtypes[d], &small[s], dtypes[d], accumulate);
                check_weight(dtypes[d], &small[s], DTYPE_F32, accumulate);
            }
}

/* Rounded once, then added and rounded again: 1 + 2^-8 becomes 1 in bfloat16, twice; the
 * sum of both parts at once would be 1 + 2^-7. */
static void test_products__are_rounded_before_they_are_added(void **state)
{
    (void)state;
    uint16_t one = f32_to_bf16(1), small = f32_to_bf16(0x1p-8F);
    uint16_t rows_x[2] = {one, small}, rows_dy[2] = {one, one}, dw_host = small;
    uint16_t *x = gpu_alloc(sizeof rows_x), *dy = gpu_alloc(sizeof rows_dy);
    uint16_t *dw = gpu_alloc(sizeof dw_host), got;
    gpu_copy(STREAM_COMPUTE, x, rows_x, sizeof rows_x, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, dy, rows_dy, sizeof rows_dy, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, dw, &dw_host, sizeof dw_host, COPY_TO_DEVICE);
    struct weight weight = {.data = dw, .dtype = DTYPE_BF16, .rows = 1, .cols = 1};
    struct linear_bwd_weight l = {
        .dw = &weight, .dy = dy, .x = x, .dy_row = 1, .accumulate = true, .N = 2};
    gpu_linear_bwd_weight(STREAM_COMPUTE, DTYPE_BF16, &l);
    read_device(&got, dw, sizeof got);
    assert_int_equal(got, one);
    gpu_free(x, sizeof rows_x);
    gpu_free(dy, sizeof rows_dy);
    gpu_free(dw, sizeof dw_host);
}

/* Rows, columns, both transposed, and columns that lie apart in two ways. */
static void test_products__of_any_strides(void **state)
{
    (void)state;
    static const struct {
        int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    } strides[] = {
        {300, 1, 9, 1, 9, 1},
        {1, 5, 1, 300, 9, 1},
        {301, 1, 9, 1, 1, 5},
        {700, 2, 1, 301, 20, 2},
    };
    for (size_t s = 0; s < ARRAY_LEN(strides); s++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            struct operand a, b, c;
            fill(&a, DTYPE_F32, MOST);
            fill(&b, DTYPE_F32, MOST);
            fill(&c, DTYPE_F32, 300);
            struct gemm g = {.m = 5,
                             .n = 9,
                             .k = 290,
                             .a = (float *)a.host,
                             .b = (float *)b.host,
                             .c = (float *)c.host,
                             .a_row = strides[s].a_row,
                             .a_col = strides[s].a_col,
                             .b_row = strides[s].b_row,
                             .b_col = strides[s].b_col,
                             .c_row = strides[s].c_row,
                             .c_col = strides[s].c_col,
                             .accumulate = accumulate};
            device_cpu(DTYPE_F32)->k->gemm(host_stream(DTYPE_F32), &g);
            g.a = a.device;
            g.b = b.device;
            g.c = c.device;
            gpu_gemm(STREAM_COMPUTE, &g);
            assert_same(&c, DTYPE_F32, DTYPE_F32);
            release(&a);
            release(&b);
            release(&c);
        }
}

static int start(void **state)
{
    struct error err;
    assert_ok(kernels_start(&err), err);
    start_device(state);
    assert_ok(cuda_gemm_open(&err), err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products__forward_with_and_without_bias),
        cmocka_unit_test(test_products__with_a_bias_come_in_parts),
        cmocka_unit_test(test_products__come_in_even_parts),
        cmocka_unit_test(test_products__by_input),
        cmocka_unit_test(test_products__by_weight),
        cmocka_unit_test(test_products__are_rounded_before_they_are_added),
        cmocka_unit_test(test_products__of_any_strides),
    };
    return cmocka_run_group_tests(tests, start, stop_device);
}
