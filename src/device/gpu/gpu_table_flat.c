/* The loss, flat ranges of numbers, the optimizer and sums over ranks. */
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_table.h"

#include <math.h>

extern gpu_kernel gpu_xent_max, gpu_xent_exp, gpu_xent_grad, gpu_xent_top;
extern gpu_kernel gpu_convert, gpu_fill_floats, gpu_add_rows, gpu_reduce;
extern gpu_kernel gpu_adamw, gpu_sum_squares;

/* -- loss ---------------------------------------------------------------------------- */

#define LOSS_THREADS 256
#define LOSS_RUN 4
#define LOSS_SHARED_BYTES 256 // the sums of its warps

static struct gpu_xent xent_args(struct stream *s, const struct xent *x)
{
    return (struct gpu_xent){.logits = x->logits,
                             .row_max = x->row_max,
                             .row_sum = x->row_sum,
                             .target_logit = x->target_logit,
                             .weight = x->weight,
                             .dtype = s->dev->dtype,
                             .V = x->V};
}

/* A block takes a row. How many threads it has, and with it the order of a sum, depends
 * on the columns alone. */
static void launch_xent(struct stream *s, gpu_kernel *kernel, const char *name, int64_t R,
                        const struct gpu_xent *a)
{
    struct gpu_grid grid = gpu_grid_rows(R, gpu_parts(a->V, LOSS_RUN), LOSS_THREADS);
    grid.blocks = R;
    grid.columns = 1;
    grid.shared_bytes = LOSS_SHARED_BYTES;
    gpu_table_launch(s, kernel, name, &grid, a, sizeof *a);
}

void gpu_table_xent_max(struct stream *s, const struct xent *x)
{
    struct gpu_xent a = xent_args(s, x);
    launch_xent(s, gpu_xent_max, "xent_max", x->R, &a);
}

void gpu_table_xent_exp(struct stream *s, const struct xent *x)
{
    struct gpu_xent a = xent_args(s, x);
    if (x->R == 0)
        return;
    a.targets = gpu_upload(s, x->targets, (size_t)x->R * sizeof *x->targets);
    launch_xent(s, gpu_xent_exp, "xent_exp", x->R, &a);
}

void gpu_table_xent_grad(struct stream *s, const struct xent *x)
{
    struct gpu_xent a = xent_args(s, x);
    if (x->R == 0)
        return;
    a.targets = gpu_upload(s, x->targets, (size_t)x->R * sizeof *x->targets);
    a.mask = gpu_upload(s, x->mask, (size_t)x->R * sizeof *x->mask);
    launch_xent(s, gpu_xent_grad, "xent_grad", x->R, &a);
}

void gpu_table_xent_top(struct stream *s, const struct xent *x)
{
    struct gpu_xent a = xent_args(s, x);
    a.column = x->column;
    launch_xent(s, gpu_xent_top, "xent_top", x->R, &a);
}

/* -- storage types ------------------------------------------------------------------- */

static void convert(struct stream *s, const char *name, const struct gpu_convert *a)
{
    struct gpu_grid grid = gpu_grid_flat(a->n);
    gpu_table_launch(s, gpu_convert, name, &grid, a, sizeof *a);
}

void gpu_table_load(struct stream *s, const struct convert *c)
{
    struct gpu_convert a = {c->y, c->x, c->n, .y_dtype = DTYPE_F32, .x_dtype = c->dtype};
    convert(s, "load", &a);
}

void gpu_table_store(struct stream *s, const struct convert *c)
{
    struct gpu_convert a = {c->y, c->x, c->n, .y_dtype = c->dtype, .x_dtype = DTYPE_F32};
    convert(s, "store", &a);
}

void gpu_table_store_add(struct stream *s, const struct convert *c)
{
    struct gpu_convert a = {c->y, c->x, c->n, c->dtype, DTYPE_F32, .is_added = true};
    convert(s, "store_add", &a);
}

void gpu_table_add_stored(struct stream *s, const struct convert *c)
{
    struct gpu_convert a = {c->y, c->x, c->n, c->dtype, c->dtype, .is_added = true};
    convert(s, "add_stored", &a);
}

void gpu_table_copy(struct stream *s, const struct floats *f)
{
    if (f->n > 0)
        gpu_copy(s->name, f->y, f->x, (size_t)f->n * sizeof *f->y, COPY_ON_DEVICE);
}

void gpu_table_add(struct stream *s, const struct floats *f)
{
    struct gpu_convert a = {f->y, f->x, f->n, DTYPE_F32, DTYPE_F32, .is_added = true};
    convert(s, "add", &a);
}

void gpu_table_fill(struct stream *s, const struct fill *f)
{
    struct gpu_fill a = {f->y, f->value, f->n};
    struct gpu_grid grid = gpu_grid_flat(f->n);
    gpu_table_launch(s, gpu_fill_floats, "fill", &grid, &a, sizeof a);
}

#define ADD_THREADS_MOST 256
#define ADD_RUN 4

void gpu_table_add_rows(struct stream *s, const struct add_rows *r)
{
    const int64_t most = GPU_ARRAY_BYTES / sizeof *r->rows;
    for (int64_t first = 0; first < r->n; first += most) {
        int64_t n_here = i64_min(most, r->n - first);
        struct gpu_add_rows a = {
            .x = r->y,
            .y = r->x + first * r->C,
            .rows = gpu_upload(s, r->rows + first, (size_t)n_here * sizeof *r->rows),
            .n = n_here,
            .C = r->C};
        struct gpu_grid grid =
            gpu_grid_rows(n_here, gpu_parts(r->C, ADD_RUN), ADD_THREADS_MOST);
        gpu_table_launch(s, gpu_add_rows, "add_rows", &grid, &a, sizeof a);
    }
}

/* -- sums over ranks ----------------------------------------------------------------- */

void gpu_table_reduce(struct stream *s, const struct reduction *r)
{
    struct gpu_reduce a = {.x = r->x,
                           .n_parts = r->n_parts,
                           .is_max = r->op == REDUCE_MAX,
                           .dtype = r->dtype,
                           .n = r->n};
    struct gpu_grid grid = gpu_grid_flat(r->n);
    if (r->n == 0)
        return;
    if (r->n_parts > GPU_FEW_PARTS)
        a.many = gpu_upload(s, r->parts, (size_t)r->n_parts * sizeof *r->parts);
    for (int p = 0; p < r->n_parts && p < GPU_FEW_PARTS; p++)
        a.few[p] = r->parts[p];
    gpu_table_launch(s, gpu_reduce, "reduce", &grid, &a, sizeof a);
}

/* -- the optimizer ------------------------------------------------------------------- */

void gpu_table_adamw(struct stream *s, const struct adamw *u)
{
    const struct adamw_rule *a = &u->rule;
    struct gpu_update args = {
        .master = u->master,
        .exp_avg = u->exp_avg,
        .exp_avg_sq = u->exp_avg_sq,
        .param = u->param == u->master ? NULL : u->param,
        .grad = u->grad,
        .param_dtype = u->param_dtype,
        .grad_dtype = u->grad_dtype,
        .n = u->n,
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .epsilon = (float)a->epsilon,
        .grad_scale = (float)a->grad_scale,
        .keep = (float)(1.0 - a->lr * a->decay),
        .decay = (float)a->decay,
        .rate = (float)(a->lr / a->bias1),
        .root_bias2 = (float)(1.0 / sqrt(a->bias2)),
        .is_l2 = a->is_l2,
    };
    struct gpu_grid grid = gpu_grid_flat(u->n);
    gpu_table_launch(s, gpu_adamw, "adamw", &grid, &args, sizeof args);
}

#define SQUARE_THREADS 256
#define SQUARE_CHUNKS 16 // of a block, which writes them all

void gpu_table_sum_squares(struct stream *s, const struct sum_squares *q)
{
    const int64_t most = GPU_ARRAY_BYTES / sizeof *q->partial; // chunks of one launch
    for (int64_t first = 0; first * KERNEL_SQUARE_CHUNK < q->n; first += most) {
        int64_t at = first * KERNEL_SQUARE_CHUNK;
        int64_t n_here = i64_min(most * KERNEL_SQUARE_CHUNK, q->n - at);
        int64_t n_chunks = gpu_parts(n_here, KERNEL_SQUARE_CHUNK);
        int64_t n_blocks = gpu_parts(n_chunks, SQUARE_CHUNKS);
        size_t room = (size_t)n_blocks * SQUARE_CHUNKS * sizeof *q->partial;
        struct gpu_squares a = {.partial = gpu_scratch(s, room),
                                .x = (const char *)q->x +
                                     (size_t)at * dtype_bytes(q->dtype),
                                .n = n_here,
                                .dtype = q->dtype};
        struct gpu_grid grid = {.blocks = n_blocks,
                                .columns = 1,
                                .threads = SQUARE_THREADS,
                                .shared_bytes = SQUARE_THREADS * sizeof(double)};
        gpu_table_launch(s, gpu_sum_squares, "sum_squares", &grid, &a, sizeof a);
        gpu_download(s, q->partial + first, a.partial,
                     (size_t)n_chunks * sizeof *q->partial);
    }
}
