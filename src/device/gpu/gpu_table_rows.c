/* Rows of activations: norms, biases, activations, dropout and residual sums. */
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_table.h"

TYPED_KERNEL(norm_fwd);
TYPED_KERNEL(norm_again);
TYPED_KERNEL(norm_averages);
TYPED_KERNEL(norm_bwd);
TYPED_KERNEL(bias_grad);
TYPED_KERNEL(gelu);
TYPED_KERNEL(gelu_bwd);
TYPED_KERNEL(residual);
TYPED_KERNEL(residual_dropped);
TYPED_KERNEL(dropout_fwd);
TYPED_KERNEL(dropout_bwd);
extern gpu_kernel gpu_add_partials;

#define THREADS_MOST 256
#define COLUMN_THREADS 64 // of kernels that sum over rows
#define RUN 4             // columns that a thread of those has
#define NORM_THREADS 128
#define NORM_ROWS (NORM_THREADS / GPU_WARP_THREADS)
#define GROUP_THREADS 16 // that draw for a group of dropout

/* Elements that a thread of an element-wise kernel takes. */
static int64_t wide(const struct stream *s)
{
    return (int64_t)(16 / dtype_bytes(s->dev->dtype));
}

static struct gpu_grid wide_grid(const struct stream *s, int64_t N, int64_t C)
{
    return gpu_grid_rows(N, gpu_parts(C, wide(s)), THREADS_MOST);
}

/* Chunks of rows, and columns. */
static struct gpu_grid chunk_grid(int64_t N, int64_t C)
{
    return (struct gpu_grid){.blocks = gpu_parts(N, KERNEL_ROW_CHUNK),
                             .columns = gpu_parts(C, COLUMN_THREADS * RUN),
                             .threads = COLUMN_THREADS};
}

/* -- sums over rows ------------------------------------------------------------------ */

void gpu_table_add_partials(struct stream *s, const struct add_partials *p)
{
    struct gpu_partials a = {.out = p->out,
                             .partial = p->partial,
                             .n_chunks = gpu_parts(p->N, KERNEL_ROW_CHUNK),
                             .stride = p->stride,
                             .C = p->C};
    struct gpu_grid grid = {.blocks = p->N > 0 ? gpu_parts(p->C, COLUMN_THREADS) : 0,
                            .columns = 1,
                            .threads = COLUMN_THREADS};
    gpu_table_launch(s, gpu_add_partials, "add_partials", &grid, &a, sizeof a);
}

void gpu_table_bias_grad(struct stream *s, const struct bias_grad *b)
{
    struct gpu_bias_grad a = {.partial = b->partial, .dy = b->dy, .N = b->N, .C = b->C};
    struct gpu_grid grid = chunk_grid(b->N, b->C);
    gpu_table_launch(s, bias_grad[s->dev->dtype], "bias_grad", &grid, &a, sizeof a);
    gpu_table_add_partials(s,
                           &(struct add_partials){b->db, b->partial, b->N, b->C, b->C});
}

/* -- layer norm ---------------------------------------------------------------------- */

static struct gpu_grid norm_grid(int64_t N)
{
    return (struct gpu_grid){
        .blocks = gpu_parts(N, NORM_ROWS), .columns = 1, .threads = NORM_THREADS};
}

static void launch_norm(struct stream *s, gpu_kernel *kernel, const char *name,
                        const struct layernorm *ln)
{
    struct gpu_norm a = {.y = ln->y,
                         .mean = ln->mean,
                         .rstd = ln->rstd,
                         .x = ln->x,
                         .g = ln->g,
                         .b = ln->b,
                         .N = ln->N,
                         .C = ln->C,
                         .epsilon = ln->epsilon};
    struct gpu_grid grid = norm_grid(ln->N);
    gpu_table_launch(s, kernel, name, &grid, &a, sizeof a);
}

void gpu_table_layernorm_fwd(struct stream *s, const struct layernorm *ln)
{
    launch_norm(s, norm_fwd[s->dev->dtype], "layernorm_fwd", ln);
}

void gpu_table_layernorm_again(struct stream *s, const struct layernorm *ln)
{
    launch_norm(s, norm_again[s->dev->dtype], "layernorm_again", ln);
}

/* Rows [first, first + N), whole chunks or the last ones: their averages fit into
 * scratch. */
static void norm_bwd_part(struct stream *s, const struct layernorm_bwd *ln, int64_t first,
                          int64_t N)
{
    size_t at = (size_t)(first * ln->C) * dtype_bytes(s->dev->dtype);
    struct gpu_norm_bwd a = {
        .dx = (char *)ln->dx + at,
        .dy = (const char *)ln->dy + at,
        .x = (const char *)ln->x + at,
        .g = ln->g,
        .mean = ln->mean + first,
        .rstd = ln->rstd + first,
        .averages = gpu_scratch(s, (size_t)N * 2 * sizeof(float)),
        .partial = ln->partial + first / KERNEL_ROW_CHUNK * 2 * ln->C,
        .N = N,
        .C = ln->C,
    };
    struct gpu_grid rows = norm_grid(N), chunks = chunk_grid(N, ln->C);
    gpu_table_launch(s, norm_averages[s->dev->dtype], "layernorm_bwd averages", &rows, &a,
                     sizeof a);
    gpu_table_launch(s, norm_bwd[s->dev->dtype], "layernorm_bwd", &chunks, &a, sizeof a);
}

void gpu_table_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln)
{
    const int64_t part =
        GPU_ARRAY_BYTES / (2 * sizeof(float)) / KERNEL_ROW_CHUNK * KERNEL_ROW_CHUNK;
    for (int64_t n = 0; n < ln->N; n += part)
        norm_bwd_part(s, ln, n, i64_min(part, ln->N - n));
    if (!ln->dg)
        return;
    gpu_table_add_partials(
        s, &(struct add_partials){ln->dg, ln->partial, ln->N, 2 * ln->C, ln->C});
    gpu_table_add_partials(
        s, &(struct add_partials){ln->db, ln->partial + ln->C, ln->N, 2 * ln->C, ln->C});
}

/* -- activations --------------------------------------------------------------------- */

static void check_kind(enum activation act)
{
    CHECK(act == ACTIVATION_GELU || act == ACTIVATION_GELU_TANH, "activation %d",
          (int)act);
}

void gpu_table_activation_fwd(struct stream *s, const struct activation_fwd *a)
{
    struct gpu_activation args = {
        .act = a->act, .y = a->y, .x = a->x, .b = a->b, .N = a->N, .C = a->C};
    struct gpu_grid grid = wide_grid(s, args.N, args.C);
    check_kind(a->act);
    gpu_table_launch(s, gelu[s->dev->dtype], "activation_fwd", &grid, &args, sizeof args);
}

void gpu_table_activation_bwd(struct stream *s, const struct activation_bwd *a)
{
    struct gpu_activation_bwd args = {.act = a->act,
                                      .dx = a->dx,
                                      .y = a->y,
                                      .dy = a->dy,
                                      .x = a->x,
                                      .b = a->b,
                                      .partial = a->partial,
                                      .N = a->N,
                                      .C = a->C};
    struct gpu_grid grid = chunk_grid(args.N, args.C);
    check_kind(a->act);
    gpu_table_launch(s, gelu_bwd[s->dev->dtype], "activation_bwd", &grid, &args,
                     sizeof args);
    if (a->db)
        gpu_table_add_partials(
            s, &(struct add_partials){a->db, a->partial, a->N, a->C, a->C});
}

/* -- dropout and residual sums ------------------------------------------------------- */

static struct gpu_grid drop_grid(int64_t N, int64_t C)
{
    return gpu_grid_rows(N, gpu_parts(C, DROPOUT_GROUP) * GROUP_THREADS, THREADS_MOST);
}

void gpu_table_bias_dropout_residual(struct stream *s, const struct residual *r)
{
    struct gpu_residual a = {.y = r->y,
                             .res = r->res,
                             .x = r->x,
                             .b = r->b,
                             .N = r->B * r->S,
                             .S = r->S,
                             .C = r->C,
                             .drop = r->drop};
    bool is_dropped = r->drop.threshold > 0;
    struct gpu_grid grid = is_dropped ? drop_grid(a.N, a.C) : wide_grid(s, a.N, a.C);
    gpu_table_launch(s, (is_dropped ? residual_dropped : residual)[s->dev->dtype],
                     "bias_dropout_residual", &grid, &a, sizeof a);
}

static void launch_dropout(struct stream *s, gpu_kernel *kernel, const char *name,
                           const struct dropped *d)
{
    struct gpu_dropped a = {
        .y = d->y, .x = d->x, .N = d->B * d->S, .S = d->S, .C = d->C, .drop = d->drop};
    struct gpu_grid grid = drop_grid(a.N, a.C);
    gpu_table_launch(s, kernel, name, &grid, &a, sizeof a);
}

void gpu_table_dropout_fwd(struct stream *s, const struct dropped *d)
{
    enum dtype dtype = s->dev->dtype;
    if (!dropout_is_none(&d->drop))
        launch_dropout(s, dropout_fwd[dtype], "dropout_fwd", d);
    else if (d->y != d->x)
        gpu_table_store(s, &(struct convert){d->y, d->x, dtype, d->B * d->S * d->C});
}

void gpu_table_dropout_bwd(struct stream *s, const struct dropped *d)
{
    launch_dropout(s, dropout_bwd[s->dev->dtype], "dropout_bwd", d);
}
