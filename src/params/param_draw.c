#include "params/param_draw.h"

#include "base/arena.h"
#include "base/beat.h"
#include "base/philox.h"

enum {
    BLOCK = 1 << 20, // elements that are drawn before they are written
    PART = 16384,    // elements a thread draws at a time
};

/* Elements [first, first + n) of this part lie in several runs of the whole parameter,
 * and it is the whole parameter's element that has a value. */
static void init_normal(const struct param *row, int64_t first, int64_t n,
                        struct philox_key key, double std, float *x)
{
    struct param_runs runs = param_runs(row);
    for (int64_t done = 0; done < n;) {
        int64_t run = (first + done) / runs.run_length;
        int64_t inside = (first + done) % runs.run_length;
        int64_t part = i64_min(n - done, runs.run_length - inside);
        philox_normal_fill(x + done, part, key,
                           (uint64_t)(runs.first + run * runs.run_stride + inside), std);
        done += part;
    }
}

/* x[0, n) := the initial values of elements [first, first + n) of the row. */
static void draw_values(const struct param *row, int64_t first, int64_t n, uint64_t seed,
                        double std, float *x)
{
    if (row->init == INIT_NORMAL) {
        init_normal(row, first, n, philox_key(seed, PHILOX_INIT, (uint32_t)row->number),
                    std * row->init_scale, x);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        x[i] = row->init == INIT_ONES ? 1.0F : 0.0F;
}

static void draw_block(const struct param *row, int64_t first, int64_t n, uint64_t seed,
                       double std, float *x)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PART)
        draw_values(row, first + i, i64_min(PART, n - i), seed, std, x + i);
}

int param_draw(const struct shard_map *map, uint64_t seed, double std, param_sink *sink,
               void *context, struct error *err)
{
    struct arena ar;
    int rc = arena_open(&ar, BLOCK * sizeof(float), "initial weights", err);
    if (rc)
        return -1;
    float *block = arena_f32(&ar, BLOCK);
    for (int64_t i = 0; i < map->n_pieces && rc == 0; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        for (int64_t at = 0; at < piece->n && rc == 0; at += BLOCK) {
            int64_t n = i64_min(BLOCK, piece->n - at);
            beat(BEAT_MEMORY, piece->row);
            draw_block(&map->table->params[piece->row], piece->first + at, n, seed, std,
                       block);
            rc = sink(context, piece, at, n, block, err);
        }
    }
    arena_close(&ar);
    return rc;
}
