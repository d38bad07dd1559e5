/*
 * GEMMs of the emulated device: those of the processor's table, on device memory. They are
 * within the contract of gpu_runtime.h: sums in float, one rounding, and a row's bits do
 * not depend on how many rows there are.
 */
#include "device/emulated/emulated_streams.h"
#include "device/emulated/emulated_watch.h"
#include "device/gpu/gpu_runtime.h"

/* What a call is given, with a weight of its own: the host may change its own at once. */
struct product {
    enum dtype dtype;
    struct weight w;
    union {
        struct linear forward;
        struct linear_bwd_input by_input;
        struct linear_bwd_weight by_weight;
        struct gemm plain;
    } u;
};

static struct stream *processor(enum dtype dtype)
{
    return device_stream(device_cpu(dtype), STREAM_COMPUTE);
}

/* Without the forms that a device has packed it into: the processor has none of it. */
static struct weight bare(const struct weight *w)
{
    struct weight copy = *w;
    copy.packed = NULL;
    copy.packed_version = copy.version - 1;
    return copy;
}

static void enqueue_product(enum stream_name s, bool (*run)(void *), struct product *p)
{
    emulated_count_gemm();
    streams_enqueue(s, run, p, sizeof *p, NULL, 0);
}

/* What a product reads or writes, for a checker: (n, m) elements of a type, and the
 * strides between them. */
static void touch(const void *x, int64_t n, int64_t row, int64_t m, int64_t column,
                  enum dtype dtype, enum watched_access how)
{
    const char *first = x;
    int64_t bytes = (int64_t)dtype_bytes(dtype);
    if (!emulated_watch || !x)
        return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < (column == 1 ? 1 : m); j++)
            emulated_watch->access(first + (i * row + j * column) * bytes,
                                   (size_t)(column == 1 ? m * bytes : bytes), how);
}

static void touch_weight(const struct weight *w, enum watched_access how)
{
    touch(w->data, w->rows, w->cols, w->cols, 1, w->dtype, how);
}

static bool run_forward(void *args)
{
    struct product *p = args;
    const struct linear *l = &p->u.forward;
    p->u.forward.w = &p->w;
    touch_weight(&p->w, ACCESS_READ);
    touch(l->x, l->N, p->w.cols, p->w.cols, 1, p->dtype, ACCESS_READ);
    touch(l->act == ACTIVATION_NONE ? l->bias : NULL, 1, 0, p->w.rows, 1, DTYPE_F32,
          ACCESS_READ);
    touch(l->y, l->N, p->w.rows, p->w.rows, 1, l->y_dtype, ACCESS_WRITE);
    device_cpu(p->dtype)->k->linear_fwd(processor(p->dtype), &p->u.forward);
    return true;
}

void gpu_linear_fwd(enum stream_name s, enum dtype dtype, const struct linear *l)
{
    struct product p = {.dtype = dtype, .w = bare(l->w), .u.forward = *l};
    p.u.forward.act_y = NULL;
    enqueue_product(s, run_forward, &p);
}

static bool run_by_input(void *args)
{
    struct product *p = args;
    const struct linear_bwd_input *l = &p->u.by_input;
    p->u.by_input.w = &p->w;
    touch_weight(&p->w, ACCESS_READ);
    touch(l->dy, l->N, l->dy_row, p->w.rows, 1, p->dtype, ACCESS_READ);
    touch(l->dx, l->N, p->w.cols, p->w.cols, 1, l->dx_dtype, ACCESS_WRITE);
    device_cpu(p->dtype)->k->linear_bwd_input(processor(p->dtype), &p->u.by_input);
    return true;
}

void gpu_linear_bwd_input(enum stream_name s, enum dtype dtype,
                          const struct linear_bwd_input *l)
{
    struct product p = {.dtype = dtype, .w = bare(l->w), .u.by_input = *l};
    enqueue_product(s, run_by_input, &p);
}

static bool run_by_weight(void *args)
{
    struct product *p = args;
    const struct linear_bwd_weight *l = &p->u.by_weight;
    p->u.by_weight.dw = &p->w;
    touch(l->dy, l->N, l->dy_row, p->w.rows, 1, p->dtype, ACCESS_READ);
    touch(l->x, l->N, p->w.cols, p->w.cols, 1, p->dtype, ACCESS_READ);
    touch_weight(&p->w, ACCESS_WRITE);
    device_cpu(p->dtype)->k->linear_bwd_weight(processor(p->dtype), &p->u.by_weight);
    return true;
}

void gpu_linear_bwd_weight(enum stream_name s, enum dtype dtype,
                           const struct linear_bwd_weight *l)
{
    struct product p = {.dtype = dtype, .w = bare(l->dw), .u.by_weight = *l};
    enqueue_product(s, run_by_weight, &p);
}

static bool run_plain(void *args)
{
    struct product *p = args;
    const struct gemm *g = &p->u.plain;
    touch(g->a, g->m, g->a_row, g->k, g->a_col, DTYPE_F32, ACCESS_READ);
    touch(g->b, g->k, g->b_row, g->n, g->b_col, DTYPE_F32, ACCESS_READ);
    touch(g->c, g->m, g->c_row, g->n, g->c_col, DTYPE_F32, ACCESS_WRITE);
    device_cpu(DTYPE_F32)->k->gemm(processor(DTYPE_F32), &p->u.plain);
    return true;
}

void gpu_gemm(enum stream_name s, const struct gemm *g)
{
    struct product p = {.dtype = DTYPE_F32, .u.plain = *g};
    enqueue_product(s, run_plain, &p);
}

/* The processor's products round nothing to TF32: they are within what is allowed. */
void gpu_allow_tf32(bool is_allowed)
{
    (void)is_allowed;
}

size_t gpu_workspace_bytes(void)
{
    return GPU_WORKSPACE_BYTES;
}
