#include "train/whole.h"

#include "train/layout.h"

#include <string.h>

#define N_BUFFERS 3

static bool is_whole(const struct train *t)
{
    const struct param_part *part = &t->gpt.part;
    return part->mp == 1 && t->gpt.table.n_params == t->gpt.table.n_params_whole;
}

static void part_buffers(struct train *t, float *buffers[N_BUFFERS])
{
    buffers[0] = t->gpt.params;
    buffers[1] = t->optimizer.exp_avg;
    buffers[2] = t->optimizer.exp_avg_sq;
}

static void whole_buffers(const struct whole *w, float *buffers[N_BUFFERS])
{
    buffers[0] = w->params;
    buffers[1] = w->exp_avg;
    buffers[2] = w->exp_avg_sq;
}

int whole_open(struct whole *w, struct train *t, struct error *err)
{
    *w = (struct whole){.is_borrowed = is_whole(t)};
    if (param_table_init(&w->table, &t->cfg.model, err))
        return -1;
    if (w->is_borrowed) {
        w->params = t->gpt.params;
        w->exp_avg = t->optimizer.exp_avg;
        w->exp_avg_sq = t->optimizer.exp_avg_sq;
        return 0;
    }
    size_t bytes = (size_t)w->table.n_flat * sizeof(float);
    if (arena_open(&w->arena, N_BUFFERS * bytes, "the whole model of a checkpoint",
                   err)) {
        param_table_release(&w->table);
        return -1;
    }
    w->params = arena_f32(&w->arena, w->table.n_flat);
    w->exp_avg = arena_f32(&w->arena, w->table.n_flat);
    w->exp_avg_sq = arena_f32(&w->arena, w->table.n_flat);
    return 0;
}

void whole_close(struct whole *w)
{
    arena_close(&w->arena);
    param_table_release(&w->table);
    *w = (struct whole){0};
}

/* Copy between the rows of a part and their places in the whole. */
static void copy_rows(const struct param_table *part, float *part_flat,
                      const struct param_table *whole, float *whole_flat,
                      bool to_the_whole)
{
    for (int64_t i = 0; i < part->n_params; i++) {
        const struct param *row = &part->params[i];
        struct param_runs runs = param_runs(row);
        float *here = part_flat + row->offset;
        float *there = whole_flat + whole->params[row->number].offset + runs.first;
        for (int64_t r = 0; r < runs.n_runs; r++) {
            float *a = here + r * runs.run_length, *b = there + r * runs.run_stride;
            memcpy(to_the_whole ? b : a, to_the_whole ? a : b,
                   (size_t)runs.run_length * sizeof *a);
        }
    }
}

/* Rank 0: receive the three buffers of another rank and put their rows in place. */
static int receive_part(struct whole *w, struct train *t, int rank, struct error *err)
{
    struct param_part part;
    struct param_table table;
    struct arena arena;
    float *to[N_BUFFERS];
    struct grid_coord at = grid_coord_of(&t->grid.shape, rank);
    if (layout_part(&part, &t->cfg, at, err) ||
        param_table_init_part(&table, &t->cfg.model, &part, err))
        return -1;
    whole_buffers(w, to);
    int rc =
        arena_open(&arena, (size_t)table.n_flat * sizeof(float), "a rank's part", err);
    float *flat = rc == 0 ? arena_f32(&arena, table.n_flat) : NULL;
    for (int i = 0; i < N_BUFFERS && rc == 0; i++) {
        struct comm_request request;
        comm_recv_f32_start(t->grid.world, flat, table.n_flat, rank, i, &request);
        rc = comm_wait(&request, err);
        copy_rows(&table, flat, &w->table, to[i], true);
    }
    arena_close(&arena);
    param_table_release(&table);
    return rc;
}

static int send_part(struct train *t, struct error *err)
{
    float *from[N_BUFFERS];
    part_buffers(t, from);
    for (int i = 0; i < N_BUFFERS; i++) {
        struct comm_request request;
        comm_send_f32_start(t->grid.world, from[i], t->gpt.table.n_flat, 0, i, &request);
        if (comm_wait(&request, err))
            return -1;
    }
    return 0;
}

static bool is_in_first_replica(const struct train *t, int rank)
{
    struct grid_coord at = grid_coord_of(&t->grid.shape, rank);
    return at.dp == 0 && at.sharding == 0;
}

int whole_gather(struct whole *w, struct train *t, struct error *err)
{
    float *from[N_BUFFERS], *to[N_BUFFERS];
    int me = comm_rank(t->grid.world), size = comm_size(t->grid.world);
    if (is_whole(t))
        return 0;
    if (me > 0)
        return is_in_first_replica(t, me) ? send_part(t, err) : 0;
    part_buffers(t, from);
    whole_buffers(w, to);
    for (int i = 0; i < N_BUFFERS; i++)
        copy_rows(&t->gpt.table, from[i], &w->table, to[i], true);
    for (int rank = 1; rank < size; rank++)
        if (is_in_first_replica(t, rank) && receive_part(w, t, rank, err))
            return -1;
    return 0;
}

void whole_take_part(const struct whole *w, struct train *t)
{
    float *from[N_BUFFERS], *to[N_BUFFERS];
    if (w->is_borrowed)
        return;
    part_buffers(t, to);
    whole_buffers(w, from);
    for (int i = 0; i < N_BUFFERS; i++)
        copy_rows(&t->gpt.table, to[i], &w->table, from[i], false);
}
