/*
 * The products of gpu_runtime.h by cuBLASLt (cuda_product.h), which has columns where we
 * have rows: y (N, O) in rows is its matrix (O, N), w (O, I) its (I, O).
 *
 *   forward    (O, N) = w^T x        by input  (I, N) = w dy        by weight  (I, O) = x dy^T
 *
 * Two things the library does otherwise than kernels.h says: a bias of float is not among
 * those that it adds to a result of 16 bits, and it adds to what is there before it rounds,
 * not after. Such products are computed in parts that fit into half of the workspace, each
 * followed by a kernel that adds and rounds.
 */
#include "device/cuda/cuda_gemm.h"

#include "device/cuda/cuda_product.h"
#include "device/cuda/cuda_product_args.h"

#define THREADS 256
/* Parts begin at multiples of this: what is aligned stays so. */
#define PART_UNIT 64

static void *part; // CUDA_PRODUCT_OURS_BYTES of the workspace

int cuda_gemm_open(struct error *err)
{
    return cuda_product_open(&part, err);
}

void cuda_gemm_close(void)
{
    cuda_product_close();
    part = NULL;
}

size_t gpu_workspace_bytes(void)
{
    return GPU_WORKSPACE_BYTES;
}

/* -- kernels ------------------------------------------------------------------------- */

extern gpu_kernel gpu_product_bias_f32, gpu_product_bias_f16, gpu_product_bias_bf16;
extern gpu_kernel gpu_product_add_f32, gpu_product_add_f16, gpu_product_add_bf16;
extern gpu_kernel gpu_product_plain_f32, gpu_product_plain_f16, gpu_product_plain_bf16;

static void launch(gpu_kernel *kernel, const char *name, int64_t n, const void *args,
                   size_t args_bytes)
{
    struct gpu_launch l = {
        .kernel = kernel,
        .name = name,
        .blocks = {(uint32_t)((n + THREADS - 1) / THREADS), 1, 1},
        .threads = THREADS,
        .args = args,
        .args_bytes = args_bytes,
    };
    gpu_launch(STREAM_COMPUTE, &l);
}

static void launch_bias(enum dtype dtype, const struct product_bias_args *a)
{
    static gpu_kernel *const kernels[] = {gpu_product_bias_f32, gpu_product_bias_f16,
                                          gpu_product_bias_bf16};
    launch(kernels[dtype], "product_bias", a->n, a, sizeof *a);
}

static void launch_add(enum dtype dtype, const struct product_add_args *a)
{
    static gpu_kernel *const kernels[] = {gpu_product_add_f32, gpu_product_add_f16,
                                          gpu_product_add_bf16};
    launch(kernels[dtype], "product_add", a->n, a, sizeof *a);
}

static void launch_plain(enum dtype dtype, const struct product_plain_args *a)
{
    static gpu_kernel *const kernels[] = {gpu_product_plain_f32, gpu_product_plain_f16,
                                          gpu_product_plain_bf16};
    launch(kernels[dtype], "product_plain", a->m * a->n, a, sizeof *a);
}

/* The product of cuda_product.h by our own kernel: rows of one are columns of the other. */
static void run_plainly(const struct cuda_product *p)
{
    struct product_plain_args a = {
        .a = p->b,
        .a_row = p->b_transposed ? 1 : p->b_ld,
        .a_col = p->b_transposed ? p->b_ld : 1,
        .b = p->a,
        .b_row = p->a_transposed ? 1 : p->a_ld,
        .b_col = p->a_transposed ? p->a_ld : 1,
        .d = p->d,
        .d_row = p->d_ld,
        .d_col = 1,
        .bias = p->bias,
        .m = p->n,
        .n = p->m,
        .k = p->k,
        .is_float = p->d_dtype == DTYPE_F32,
        .accumulate = p->accumulate,
    };
    launch_plain(p->dtype, &a);
}

static void run(const struct cuda_product *p)
{
    if (!cuda_product_run(p))
        run_plainly(p);
}

static void *at(const void *x, int64_t elements, enum dtype dtype)
{
    return (char *)(uintptr_t)x + elements * (int64_t)dtype_bytes(dtype);
}

/* Of N > 0 rows of C elements, those of a part: about as many in each, so that none is so
 * short that the GPU is half empty. */
static int64_t rows_of_part(int64_t N, int64_t C, enum dtype dtype)
{
    int64_t most = (int64_t)(CUDA_PRODUCT_OURS_BYTES / ((size_t)C * dtype_bytes(dtype)));
    CHECK(most > 0, "a row of %lld elements is longer than the workspace", (long long)C);
    most = most > PART_UNIT ? most / PART_UNIT * PART_UNIT : most;
    int64_t n_parts = (N + most - 1) / most, rows = (N + n_parts - 1) / n_parts;
    return i64_min(most, (rows + PART_UNIT - 1) / PART_UNIT * PART_UNIT);
}

/* -- linear -------------------------------------------------------------------------- */

static struct cuda_product forward(enum dtype dtype, const struct linear *l)
{
    const struct weight *w = l->w;
    return (struct cuda_product){
        .m = w->rows,
        .n = l->N,
        .k = w->cols,
        .a = w->data,
        .a_ld = w->cols,
        .a_transposed = true,
        .b = l->x,
        .b_ld = w->cols,
        .dtype = dtype,
        .d = l->y,
        .d_ld = w->rows,
        .d_dtype = l->y_dtype,
        .bias = l->act == ACTIVATION_NONE ? l->bias : NULL,
        .is_by_column = true,
    };
}

void gpu_linear_fwd(enum stream_name s, enum dtype dtype, const struct linear *l)
{
    CHECK(s == STREAM_COMPUTE, "products run on one stream");
    struct cuda_product p = forward(dtype, l);
    bool is_by_parts = p.bias && p.d_dtype != DTYPE_F32;
    if (p.n == 0 || (!is_by_parts && cuda_product_run(&p)))
        return;
    if (!p.bias) {
        run_plainly(&p);
        return;
    }
    int64_t n_rows = rows_of_part(l->N, p.m, DTYPE_F32);
    for (int64_t r = 0; r < l->N; r += n_rows) {
        struct cuda_product rows = p;
        rows.n = i64_min(n_rows, l->N - r);
        rows.b = at(p.b, r * p.k, dtype);
        rows.d = part;
        rows.d_dtype = DTYPE_F32;
        rows.bias = NULL;
        run(&rows);
        struct product_bias_args a = {
            .y = at(p.d, r * p.m, p.d_dtype),
            .x = part,
            .bias = p.bias,
            .n = rows.n * p.m,
            .C = p.m,
            .is_float = p.d_dtype == DTYPE_F32,
        };
        launch_bias(dtype, &a);
    }
}

void gpu_linear_bwd_input(enum stream_name s, enum dtype dtype,
                          const struct linear_bwd_input *l)
{
    CHECK(s == STREAM_COMPUTE, "products run on one stream");
    struct cuda_product p = {
        .m = l->w->cols,
        .n = l->N,
        .k = l->w->rows,
        .a = l->w->data,
        .a_ld = l->w->cols,
        .b = l->dy,
        .b_ld = l->dy_row,
        .dtype = dtype,
        .d = l->dx,
        .d_ld = l->w->cols,
        .d_dtype = l->dx_dtype,
        .is_by_column = true,
    };
    if (p.n > 0)
        run(&p);
}

/* Rows of dw at a time: their sums are rounded, and then added. */
static void add_rounded(const struct cuda_product *p)
{
    int64_t n_rows = rows_of_part(p->n, p->m, p->d_dtype);
    for (int64_t o = 0; o < p->n; o += n_rows) {
        struct cuda_product rows = *p;
        rows.n = i64_min(n_rows, p->n - o);
        rows.b = at(p->b, o, p->dtype);
        rows.d = part;
        rows.accumulate = false;
        run(&rows);
        struct product_add_args a = {
            .y = at(p->d, o * p->m, p->d_dtype), .x = part, .n = rows.n * p->m};
        launch_add(p->d_dtype, &a);
    }
}

void gpu_linear_bwd_weight(enum stream_name s, enum dtype dtype,
                           const struct linear_bwd_weight *l)
{
    CHECK(s == STREAM_COMPUTE, "products run on one stream");
    struct cuda_product p = {
        .m = l->dw->cols,
        .n = l->dw->rows,
        .k = l->N,
        .a = l->x,
        .a_ld = l->dw->cols,
        .b = l->dy,
        .b_ld = l->dy_row,
        .b_transposed = true,
        .dtype = dtype,
        .d = l->dw->data,
        .d_ld = l->dw->cols,
        .d_dtype = l->dw->dtype,
        .accumulate = l->accumulate,
    };
    if (p.k == 0) {
        if (!p.accumulate)
            gpu_fill(s, p.d, 0, (size_t)(p.m * p.n) * dtype_bytes(p.d_dtype));
        return;
    }
    if (p.accumulate && p.d_dtype != DTYPE_F32)
        add_rounded(&p);
    else
        run(&p);
}

/* -- products of float --------------------------------------------------------------- */

/* One matrix as the library takes it: element (i, j) lies `i_step` i + `j_step` j further.
 * Columns of i with j_step between them, or the transpose of the other way round. */
static bool columns_of(int64_t i_step, int64_t j_step, int64_t n_i, int64_t n_j,
                       int64_t *ld, bool *is_transposed)
{
    *is_transposed = !(i_step == 1 || n_i == 1);
    if (*is_transposed && !(j_step == 1 || n_j == 1))
        return false;
    int64_t least = *is_transposed ? n_j : n_i, step = *is_transposed ? i_step : j_step;
    int64_t n_steps = *is_transposed ? n_i : n_j;
    *ld = n_steps == 1 ? i64_max(step, least) : step;
    return *ld >= least;
}

void gpu_gemm(enum stream_name s, const struct gemm *g)
{
    CHECK(s == STREAM_COMPUTE, "products run on one stream");
    struct cuda_product p = {
        .m = g->n,
        .n = g->m,
        .k = g->k,
        .a = g->b,
        .b = g->a,
        .dtype = DTYPE_F32,
        .d = g->c,
        .d_dtype = DTYPE_F32,
        .accumulate = g->accumulate,
        .is_by_column = true,
    };
    bool is_transposed = false;
    if (g->m == 0 || g->n == 0)
        return;
    // the library's a (m, k) is our b transposed, its b our a, its d our c
    if (g->k > 0 && columns_of(g->b_col, g->b_row, p.m, p.k, &p.a_ld, &p.a_transposed) &&
        columns_of(g->a_col, g->a_row, p.k, p.n, &p.b_ld, &p.b_transposed) &&
        columns_of(g->c_col, g->c_row, p.m, p.n, &p.d_ld, &is_transposed) &&
        !is_transposed && cuda_product_run(&p))
        return;
    struct product_plain_args a = {
        .a = g->a,
        .a_row = g->a_row,
        .a_col = g->a_col,
        .b = g->b,
        .b_row = g->b_row,
        .b_col = g->b_col,
        .d = g->c,
        .d_row = g->c_row,
        .d_col = g->c_col,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .is_float = true,
        .accumulate = g->accumulate,
    };
    launch_plain(DTYPE_F32, &a);
}
