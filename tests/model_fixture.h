/*
 * model_fixture - a model in one process, opened the way `trefoil pretrain` and `trefoil
 * eval` do: a layout from a configuration, a runner from the layout; its weights drawn as
 * a run draws them. A test may change m->layout.model between the two. With a pp_degree
 * the process is the first stage of a pipeline whose others are not there.
 */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include "parallel/runner.h"
#include "params/param_draw.h"

#include <stdlib.h>

struct model {
    struct config cfg;
    struct comm *world;
    struct grid grid;
    struct layout layout;
    struct runner runner;
};

/* For n_micro micro-batches of M samples. */
static inline int model_prepare(struct model *m, const struct config *cfg, int64_t M,
                                int64_t n_micro, enum layout_use use, struct error *err)
{
    int64_t pp = i64_max(cfg->distributed.pp_degree, 1); // this is its first stage
    *m = (struct model){.cfg = *cfg};
    m->cfg.distributed = (struct config_distributed){
        .dp_degree = 1,
        .mp_degree = 1,
        .pp_degree = 1,
        .virtual_pp_degree = 1,
        .pp_schedule = cfg->distributed.pp_schedule,
        .sharding = {.sharding_degree = 1, .sharding_stage = 1}};
    m->cfg.batch_size = (struct config_batch){.global_batch_size = M * n_micro,
                                              .local_batch_size = M * n_micro,
                                              .micro_batch_size = M,
                                              .num_micro_batches = n_micro};
    struct grid_shape shape = layout_grid(&m->cfg);
    if (comm_world_open(&m->world, err) || grid_open(&m->grid, m->world, &shape, err))
        return -1;
    m->cfg.distributed.pp_degree = pp;
    return layout_init(&m->layout, &m->cfg, m->grid.coord, use, err);
}

static inline int model_store(void *context, const struct shard_piece *piece,
                              int64_t first, int64_t n, const float *x, struct error *err)
{
    struct model *m = context;
    return zero_write_params(&m->runner.zero, piece, first, n, x, err);
}

/* Open what was prepared; weights are Normal(0, std). */
static inline int model_start(struct model *m, double std, struct error *err)
{
    if (runner_open(&m->runner, &m->layout, &m->cfg, &m->grid, err))
        return -1;
    return param_draw(&m->layout.map, (uint64_t)m->cfg.seed, std, model_store, m, err);
}

/* One of zeros too. */
static inline void model_close(struct model *m)
{
    runner_close(&m->runner);
    layout_release(&m->layout);
    if (m->world) {
        grid_close(&m->grid);
        comm_world_close(m->world);
    }
    *m = (struct model){.world = NULL};
}

/* What a tensor of the model holds; free() releases it. */
static inline void *tensor_copy(const struct gpt *g, const void *tensor, size_t bytes)
{
    void *copy = malloc(bytes);
    CHECK(copy, "no memory for %zu bytes", bytes);
    device_copy(g->s, copy, tensor, bytes, COPY_TO_HOST);
    device_synchronize(g->s);
    return copy;
}

#endif
