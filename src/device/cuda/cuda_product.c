#include "device/cuda/cuda_product.h"

#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_internal.h"

#include <string.h>

#define LIBRARY_BYTES (GPU_WORKSPACE_BYTES - CUDA_PRODUCT_OURS_BYTES)
#define MOST_CHOICES 256
#define MOST_ASKED 16
/* Columns that an algorithm is chosen at: tokens of a usual micro-batch. */
#define USUAL_COLUMNS 4096

/* What a choice depends on. Compared as bytes: made of zeros first. */
struct question {
    int64_t m, n, k, a_ld, b_ld, d_ld;
    uint8_t dtype, d_dtype, a_transposed, b_transposed;
    uint8_t has_bias, accumulate, is_by_column, tf32;
    uint8_t a_align, b_align, d_align, unused[5];
};

struct choice {
    struct question of;
    bool is_used, is_possible;
    int64_t columns; // that it is known to run with
    cublasLtMatmulAlgo_t algo;
};

/* One process has one GPU, and products run on one of its streams. */
static struct {
    struct cuda_blas blas;
    cublasLtHandle_t library;
    void *workspace;
    bool allow_tf32;
    struct choice choices[MOST_CHOICES];
    int next; // to be forgotten when there are too many
} products;

/* -- the library --------------------------------------------------------------------- */

static bool went(cublasStatus_t rc, const char *what)
{
    if (rc != CUBLAS_STATUS_SUCCESS)
        cuda_failed(what, products.blas.cublasLtGetStatusString(rc));
    return rc == CUBLAS_STATUS_SUCCESS;
}

int cuda_product_open(void **ours, struct error *err)
{
    if (cuda_blas_open(&products.blas, err))
        return -1;
    memset(products.choices, 0, sizeof products.choices);
    products.workspace = gpu_alloc(GPU_WORKSPACE_BYTES);
    if (!products.workspace)
        return error_set(
            err, ERROR_RUNTIME,
            "cannot get %.0f MB of the GPU's memory for matrix products: %.0f "
            "MB are left; " CUDA_HOLDERS,
            (double)GPU_WORKSPACE_BYTES / 1e6, (double)gpu_memory_left() / 1e6);
    *ours = (char *)products.workspace + LIBRARY_BYTES;
    cublasStatus_t rc = products.blas.cublasLtCreate(&products.library);
    if (rc == CUBLAS_STATUS_SUCCESS)
        return 0;
    products.library = NULL;
    cuda_product_close();
    return error_set(err, ERROR_RUNTIME, "cannot start cuBLASLt: %s",
                     products.blas.cublasLtGetStatusString(rc));
}

void cuda_product_close(void)
{
    if (products.library)
        (void)products.blas.cublasLtDestroy(products.library);
    products.library = NULL;
    if (products.workspace)
        gpu_free(products.workspace, GPU_WORKSPACE_BYTES);
    products.workspace = NULL;
}

size_t cuda_product_version(void)
{
    return products.blas.cublasLtGetVersion();
}

void gpu_allow_tf32(bool is_allowed)
{
    products.allow_tf32 = is_allowed;
}

/* -- one product in the library's words ---------------------------------------------- */

struct words {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

static cudaDataType_t type_of(enum dtype dtype)
{
    static const cudaDataType_t types[] = {
        [DTYPE_F32] = CUDA_R_32F, [DTYPE_F16] = CUDA_R_16F, [DTYPE_BF16] = CUDA_R_16BF};
    return types[dtype];
}

static cublasStatus_t set(struct words *w, cublasLtMatmulDescAttributes_t what,
                          const void *value, size_t bytes)
{
    return products.blas.cublasLtMatmulDescSetAttribute(&w->operation, what, value,
                                                        bytes);
}

static bool put_operation(struct words *w, const struct cuda_product *p, bool tf32)
{
    const cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t bias_type = CUDA_R_32F;
    cublasStatus_t rc = products.blas.cublasLtMatmulDescInit_internal(
        &w->operation, sizeof w->operation,
        tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set(w, CUBLASLT_MATMUL_DESC_TRANSA, p->a_transposed ? &transposed : &plain,
                 sizeof plain);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set(w, CUBLASLT_MATMUL_DESC_TRANSB, p->b_transposed ? &transposed : &plain,
                 sizeof plain);
    if (rc == CUBLAS_STATUS_SUCCESS && p->bias) {
        rc = set(w, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        if (rc == CUBLAS_STATUS_SUCCESS)
            rc =
                set(w, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
        if (rc == CUBLAS_STATUS_SUCCESS)
            rc = set(w, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    }
    return went(rc, "cannot describe a matrix product");
}

static bool put_layouts(struct words *w, const struct cuda_product *p, int64_t n)
{
    uint64_t m = (uint64_t)p->m, k = (uint64_t)p->k, columns = (uint64_t)n;
    cudaDataType_t type = type_of(p->dtype);
    cublasStatus_t rc = products.blas.cublasLtMatrixLayoutInit_internal(
        &w->a, sizeof w->a, type, p->a_transposed ? k : m, p->a_transposed ? m : k,
        p->a_ld);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = products.blas.cublasLtMatrixLayoutInit_internal(
            &w->b, sizeof w->b, type, p->b_transposed ? columns : k,
            p->b_transposed ? k : columns, p->b_ld);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = products.blas.cublasLtMatrixLayoutInit_internal(
            &w->d, sizeof w->d, type_of(p->d_dtype), m, columns, p->d_ld);
    return went(rc, "cannot describe a matrix");
}

/* -- choosing ------------------------------------------------------------------------ */

/* The largest power of two, 16 at most, that divides an address and what lies between
 * columns: vectors of 16 bytes are the longest that kernels load. */
static uint8_t alignment(const void *data, int64_t ld, enum dtype dtype)
{
    uint64_t bits = (uint64_t)(uintptr_t)data | (uint64_t)ld * dtype_bytes(dtype) | 16;
    return (uint8_t)(bits & -bits);
}

static struct question question_of(const struct cuda_product *p, int64_t n)
{
    struct question q;
    memset(&q, 0, sizeof q);
    q.m = p->m;
    q.n = n;
    q.k = p->k;
    q.a_ld = p->a_ld;
    q.b_ld = p->b_ld;
    q.d_ld = p->d_ld;
    q.dtype = (uint8_t)p->dtype;
    q.d_dtype = (uint8_t)p->d_dtype;
    q.a_transposed = p->a_transposed;
    q.b_transposed = p->b_transposed;
    q.has_bias = p->bias != NULL;
    q.accumulate = p->accumulate;
    q.is_by_column = p->is_by_column;
    q.tf32 = products.allow_tf32 && p->dtype == DTYPE_F32;
    q.a_align = alignment(p->a, p->a_ld, p->dtype);
    q.b_align = alignment(p->b, p->b_ld, p->dtype);
    q.d_align = alignment(p->d, p->d_ld, p->d_dtype);
    return q;
}

static cublasStatus_t prefer(cublasLtMatmulPreferenceOpaque_t *wish,
                             const struct question *q)
{
    const size_t bytes = LIBRARY_BYTES;
    // partial sums of a split k, where it may be split, stay float and are added in order
    const uint32_t schemes = q->is_by_column ? CUBLASLT_REDUCTION_SCHEME_NONE
                                             : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t value;
    } values[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, q->a_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, q->b_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, q->d_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, q->d_align},
    };
    cublasStatus_t rc =
        products.blas.cublasLtMatmulPreferenceInit_internal(wish, sizeof *wish);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = products.blas.cublasLtMatmulPreferenceSetAttribute(
            wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (size_t i = 0; i < ARRAY_LEN(values) && rc == CUBLAS_STATUS_SUCCESS; i++)
        rc = products.blas.cublasLtMatmulPreferenceSetAttribute(
            wish, values[i].what, &values[i].value, sizeof values[i].value);
    return rc;
}

static bool splits_k(const cublasLtMatmulAlgo_t *algo)
{
    int32_t parts = 1;
    size_t written;
    return products.blas.cublasLtMatmulAlgoConfigGetAttribute(
               algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written) !=
               CUBLAS_STATUS_SUCCESS ||
           parts > 1;
}

/* Ask the library; what it likes best comes first. */
static void choose(struct choice *c, struct words *w, const struct cuda_product *p,
                   int64_t columns)
{
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found[MOST_ASKED];
    int n_found = 0;
    c->is_possible = false;
    c->columns = columns;
    if (!put_layouts(w, p, columns) ||
        !went(prefer(&wish, &c->of), "cannot describe a wish") ||
        products.blas.cublasLtMatmulAlgoGetHeuristic(
            products.library, &w->operation, &w->a, &w->b, &w->d, &w->d, &wish,
            MOST_ASKED, found, &n_found) != CUBLAS_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n_found && !c->is_possible; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            !(c->of.is_by_column && splits_k(&found[i].algo))) {
            c->algo = found[i].algo;
            c->is_possible = true;
        }
}

/* The answer to a question, asked at `columns` when it is new. */
static struct choice *choice_of(const struct question *q, struct words *w,
                                const struct cuda_product *p, int64_t columns)
{
    for (int i = 0; i < MOST_CHOICES; i++)
        if (products.choices[i].is_used && !memcmp(&products.choices[i].of, q, sizeof *q))
            return &products.choices[i];
    struct choice *c = &products.choices[products.next];
    products.next = (products.next + 1) % MOST_CHOICES;
    c->of = *q;
    c->is_used = true;
    choose(c, w, p, columns);
    return c;
}

/* That the algorithm runs with this many columns as well. */
static bool runs_with(struct choice *c, struct words *w, int64_t columns)
{
    cublasLtMatmulHeuristicResult_t result;
    if (!c->is_possible || c->columns == columns)
        return c->is_possible;
    if (products.blas.cublasLtMatmulAlgoCheck(products.library, &w->operation, &w->a,
                                              &w->b, &w->d, &w->d, &c->algo,
                                              &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > LIBRARY_BYTES)
        return false;
    c->columns = columns;
    return true;
}

bool cuda_product_run(const struct cuda_product *p)
{
    static const float zero = 0, one = 1;
    struct words w;
    struct question q = question_of(p, p->is_by_column ? 0 : p->n);
    cuda_use();
    if (!put_operation(&w, p, q.tf32))
        return true; // which is an error, and kept
    struct choice *c = choice_of(&q, &w, p, p->is_by_column ? USUAL_COLUMNS : p->n);
    if (!put_layouts(&w, p, p->n))
        return true;
    if (!runs_with(c, &w, p->n) && p->is_by_column) { // another one, then, for this many
        q.n = p->n;
        c = choice_of(&q, &w, p, p->n);
    }
    if (!runs_with(c, &w, p->n))
        return false;
    went(products.blas.cublasLtMatmul(products.library, &w.operation, &one, p->a, &w.a,
                                      p->b, &w.b, p->accumulate ? &one : &zero, p->d,
                                      &w.d, p->d, &w.d, &c->algo, products.workspace,
                                      LIBRARY_BYTES, cuda_stream(STREAM_COMPUTE)),
         "cannot start a matrix product");
    return true;
}
