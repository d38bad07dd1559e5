#include "train/state.h"

#include "params/param_draw.h"

/* In a float32 model the weights are the model's own. */
static bool is_in_optimizer(const struct train *t, int kind)
{
    return kind != OPTIMIZER_WEIGHTS || t->plan.optimizer.has_master;
}

int state_read(struct train *t, int kind, const struct shard_piece *piece, int64_t first,
               int64_t n, float *x, struct error *err)
{
    if (is_in_optimizer(t, kind))
        return optimizer_read(&t->optimizer, kind, piece->local + first, n, x, err);
    return zero_read_params(&t->runner.zero, piece, first, n, x, err);
}

int state_write(struct train *t, int kind, const struct shard_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    if (is_in_optimizer(t, kind) &&
        optimizer_write(&t->optimizer, kind, piece->local + first, n, x, err))
        return -1;
    return kind == OPTIMIZER_WEIGHTS
               ? zero_write_params(&t->runner.zero, piece, first, n, x, err)
               : 0;
}

int state_written(struct train *t, struct error *err)
{
    return zero_spread_params(&t->runner.zero, err);
}

static int write_initial(void *context, const struct shard_piece *piece, int64_t first,
                         int64_t n, const float *x, struct error *err)
{
    return state_write(context, OPTIMIZER_WEIGHTS, piece, first, n, x, err);
}

int state_init(struct train *t, struct error *err)
{
    int rc = param_draw(&t->plan.layout.map, (uint64_t)t->cfg.seed,
                        t->cfg.model.initializer_range, write_initial, t, err);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    return state_written(t, err);
}
