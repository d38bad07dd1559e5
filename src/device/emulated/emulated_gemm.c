/*
 * GEMMs of the emulated device: those of the processor's table, on device memory. They are
 * within the contract of gpu_runtime.h: sums in float, one rounding, and a row's bits do
 * not depend on how many rows there are.
 */
#include "device/emulated/emulated_streams.h"
#include "device/emulated/emulated_watch.h"
#include "device/gpu/gpu_runtime.h"
#include "device/operands.h"

/* What a call is given, with a weight of its own: the host may change its own at once. */
struct product {
    enum operation op;
    enum dtype dtype;
    struct weight w;
    union operation_args args;
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

/* Report the elements of an operand to the checker. */
static void watch_operand(void *context, const struct operand *o)
{
    enum watched_access how = o->access == OPERAND_READ ? ACCESS_READ : ACCESS_WRITE;
    const char *first = operand_address(o);
    int64_t n_runs = o->col == 1 ? 1 : o->cols, run = o->col == 1 ? o->cols : 1;
    (void)context;
    if (o->access == OPERAND_HOST)
        return;
    for (int64_t i = 0; i < o->rows; i++)
        for (int64_t j = 0; j < n_runs; j++)
            emulated_watch->access(first +
                                       (i * o->row + j * o->col) * (int64_t)o->element,
                                   (size_t)run * o->element, how);
}

static bool run_product(void *args)
{
    struct product *p = args;
    struct stream *s = processor(p->dtype);
    struct operands operands = {.visit = watch_operand, .dev = s->dev};
    if (p->op == OP_linear_fwd)
        p->args.linear_fwd.w = &p->w;
    else if (p->op == OP_linear_bwd_input)
        p->args.linear_bwd_input.w = &p->w;
    else if (p->op == OP_linear_bwd_weight)
        p->args.linear_bwd_weight.dw = &p->w;
    if (emulated_watch)
        operands_of(p->op, &p->args, &operands);
    operation_run(s->dev->k, p->op, s, &p->args);
    return true;
}

static void enqueue_product(enum stream_name s, struct product *p)
{
    emulated_count_gemm();
    streams_enqueue(s, run_product, p, sizeof *p, NULL, 0);
}

void gpu_linear_fwd(enum stream_name s, enum dtype dtype, const struct linear *l)
{
    struct product p = {
        .op = OP_linear_fwd, .dtype = dtype, .w = bare(l->w), .args.linear_fwd = *l};
    p.args.linear_fwd.act_y = NULL;
    if (l->act != ACTIVATION_NONE) // added by the activation
        p.args.linear_fwd.bias = NULL;
    enqueue_product(s, &p);
}

void gpu_linear_bwd_input(enum stream_name s, enum dtype dtype,
                          const struct linear_bwd_input *l)
{
    struct product p = {.op = OP_linear_bwd_input,
                        .dtype = dtype,
                        .w = bare(l->w),
                        .args.linear_bwd_input = *l};
    enqueue_product(s, &p);
}

void gpu_linear_bwd_weight(enum stream_name s, enum dtype dtype,
                           const struct linear_bwd_weight *l)
{
    struct product p = {.op = OP_linear_bwd_weight,
                        .dtype = dtype,
                        .w = bare(l->dw),
                        .args.linear_bwd_weight = *l};
    enqueue_product(s, &p);
}

void gpu_gemm(enum stream_name s, const struct gemm *g)
{
    struct product p = {.op = OP_gemm, .dtype = DTYPE_F32, .args.gemm = *g};
    enqueue_product(s, &p);
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
