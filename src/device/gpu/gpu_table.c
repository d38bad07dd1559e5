/*
 * The table itself, and products: the runtime's GEMMs and the passes that follow them.
 */
#include "device/gpu/gpu_table.h"

/* -- launches ------------------------------------------------------------------------ */

#define BLOCKS_MOST INT32_MAX // of a grid in x, and in y
#define COLUMNS_MOST 65535

void gpu_table_launch(struct stream *s, gpu_kernel *kernel, const char *name,
                      const struct gpu_grid *grid, const void *args, size_t args_bytes)
{
    if (grid->blocks == 0 || grid->columns == 0)
        return;
    CHECK(grid->blocks <= BLOCKS_MOST && grid->columns <= COLUMNS_MOST,
          "%s: a grid of %lld x %lld blocks", name, (long long)grid->blocks,
          (long long)grid->columns);
    gpu_launch(s->name,
               &(struct gpu_launch){
                   .kernel = kernel,
                   .name = name,
                   .blocks = {(uint32_t)grid->blocks, (uint32_t)grid->columns, 1},
                   .threads = grid->threads,
                   .shared_bytes = grid->shared_bytes,
                   .args = args,
                   .args_bytes = args_bytes,
               });
}

#define FLAT_THREADS 256
#define FLAT_RUN 4
#define FLAT_BLOCKS_MOST (1 << 20)
#define ROW_BLOCKS_MOST (1 << 16)

static uint32_t whole_warps(int64_t threads, int64_t most)
{
    return (uint32_t)i64_min(most, i64_round_up(threads, GPU_WARP_THREADS));
}

struct gpu_grid gpu_grid_flat(int64_t n)
{
    int64_t n_runs = gpu_parts(n, FLAT_RUN);
    return (struct gpu_grid){
        .blocks = i64_min(FLAT_BLOCKS_MOST, gpu_parts(n_runs, FLAT_THREADS)),
        .columns = 1,
        .threads = whole_warps(n_runs, FLAT_THREADS)};
}

struct gpu_grid gpu_grid_rows(int64_t N, int64_t n_runs, int64_t threads_most)
{
    uint32_t threads = whole_warps(n_runs, threads_most);
    return (struct gpu_grid){.blocks = n_runs > 0 ? i64_min(ROW_BLOCKS_MOST, N) : 0,
                             .columns = n_runs > 0 ? gpu_parts(n_runs, threads) : 0,
                             .threads = threads};
}

/* -- products ------------------------------------------------------------------------ */

static void check_weight(const struct stream *s, const struct weight *w)
{
    CHECK(w->dtype == s->dev->dtype, "a weight of %s in a model of %s",
          dtype_name(w->dtype), dtype_name(s->dev->dtype));
}

void gpu_table_gemm(struct stream *s, const struct gemm *g)
{
    gpu_gemm(s->name, g);
}

void gpu_table_linear_fwd(struct stream *s, const struct linear *l)
{
    check_weight(s, l->w);
    if (l->N == 0)
        return;
    gpu_linear_fwd(s->name, s->dev->dtype, l);
    if (l->act != ACTIVATION_NONE && l->act_y)
        gpu_table_activation_fwd(s, &(struct activation_fwd){.act = l->act,
                                                             .y = l->act_y,
                                                             .x = l->y,
                                                             .b = l->bias,
                                                             .N = l->N,
                                                             .C = l->w->rows});
}

void gpu_table_linear_bwd_input(struct stream *s, const struct linear_bwd_input *l)
{
    check_weight(s, l->w);
    if (l->N > 0)
        gpu_linear_bwd_input(s->name, s->dev->dtype, l);
}

void gpu_table_linear_bwd_weight(struct stream *s, const struct linear_bwd_weight *l)
{
    const struct weight *dw = l->dw;
    if (l->N > 0)
        gpu_linear_bwd_weight(s->name, s->dev->dtype, l);
    else if (!l->accumulate) // a sum of nothing
        gpu_fill(s->name, dw->data, 0,
                 (size_t)(dw->rows * dw->cols) * dtype_bytes(dw->dtype));
}

/* -- the table ----------------------------------------------------------------------- */

#define ENTRY(name, args) .name = gpu_table_##name,
static const struct kernels table = {.name = "gpu", OPERATIONS(ENTRY)};

const struct kernels *gpu_kernels(void)
{
    return &table;
}
