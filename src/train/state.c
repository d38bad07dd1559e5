#include "train/state.h"

#include "base/beat.h"

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
    return zero_read_params(&t->zero, piece, first, n, x, err);
}

/* The rounded copy of master weights. */
static int write_rounded(struct train *t, const struct shard_piece *piece, int64_t first,
                         int64_t n, const float *x, struct error *err)
{
    enum { PART = 16384 };
    enum dtype dtype = t->plan.table.params[piece->row].in[STORE_PARAMS].dtype;
    float rounded[PART];
    for (int64_t at = 0; at < n; at += PART) {
        int64_t part = i64_min(PART, n - at);
        dtype_store(rounded, x + at, dtype, part);
        if (zero_write_params(&t->zero, piece, first + at, part, rounded, err))
            return -1;
    }
    return 0;
}

int state_write(struct train *t, int kind, const struct shard_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    if (is_in_optimizer(t, kind) &&
        optimizer_write(&t->optimizer, kind, piece->local + first, n, x, err))
        return -1;
    return kind == OPTIMIZER_WEIGHTS ? write_rounded(t, piece, first, n, x, err) : 0;
}

int state_written(struct train *t, struct error *err)
{
    return zero_spread_params(&t->zero, err);
}

/* Values are drawn in blocks, by all threads; a block is written where it belongs. */
static int init_piece(struct train *t, const struct shard_piece *piece, float *block,
                      int64_t n_block, struct error *err)
{
    enum { PART = 16384 };
    const struct param *row = &t->plan.table.params[piece->row];
    for (int64_t at = 0; at < piece->n; at += n_block) {
        int64_t n = i64_min(n_block, piece->n - at);
        beat(BEAT_MEMORY, piece->row);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i += PART)
            param_init_values(row, piece->first + at + i, i64_min(PART, n - i),
                              (uint64_t)t->cfg.seed, t->cfg.model.initializer_range,
                              block + i);
        if (state_write(t, OPTIMIZER_WEIGHTS, piece, at, n, block, err))
            return -1;
    }
    return 0;
}

int state_init(struct train *t, struct error *err)
{
    const int64_t n_block = 1 << 20;
    struct arena ar;
    int rc = arena_open(&ar, (size_t)n_block * sizeof(float), "initial weights", err);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    float *block = arena_f32(&ar, n_block);
    for (int64_t i = 0; i < t->plan.map.n_pieces && rc == 0; i++)
        rc = init_piece(t, &t->plan.map.pieces[i], block, n_block, err);
    arena_close(&ar);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    return state_written(t, err);
}
