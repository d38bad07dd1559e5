/*
 * The process grid: arithmetic of ranks, and the groups along its axes.
 *
 * MPI_Cart_create numbers ranks row-major, the last dimension fastest, which is the order
 * of grid.h; MPI_Cart_sub keeps the order of the dimensions it keeps, so that the rank in
 * `data` is dp * SH + sh without anybody computing it.
 */
#include "comm/grid.h"

#include "base/beat.h"
#include "comm/comm_mpi.h"

#include <stddef.h>

#define N_AXES 4 // data, pipe, sharding, model

/* -- arithmetic ---------------------------------------------------------------------- */

int64_t grid_size(const struct grid_shape *shape)
{
    const int degrees[N_AXES] = {shape->dp, shape->pp, shape->sharding, shape->mp};
    int64_t size = 1;
    for (int i = 0; i < N_AXES; i++)
        if (__builtin_mul_overflow(size, (int64_t)degrees[i], &size))
            return INT64_MAX;
    return size;
}

struct grid_coord grid_coord_of(const struct grid_shape *shape, int rank)
{
    return (struct grid_coord){
        .dp = rank / (shape->mp * shape->sharding * shape->pp),
        .pp = rank / (shape->mp * shape->sharding) % shape->pp,
        .sharding = rank / shape->mp % shape->sharding,
        .mp = rank % shape->mp,
    };
}

int grid_rank_of(const struct grid_shape *shape, struct grid_coord at)
{
    return ((at.dp * shape->pp + at.pp) * shape->sharding + at.sharding) * shape->mp +
           at.mp;
}

/* -- groups -------------------------------------------------------------------------- */

/* Which axes vary within a group. */
static const struct {
    size_t member;    // of struct grid
    const char *name; // in a trace
    int varies[N_AXES];
} groups[] = {
    // clang-format off
    //                                             data pipe sharding model
    {offsetof(struct grid, dp),       "dp",       {1,   0,   0,       0}},
    {offsetof(struct grid, pipe),     "pipe",     {0,   1,   0,       0}},
    {offsetof(struct grid, sharding), "sharding", {0,   0,   1,       0}},
    {offsetof(struct grid, model),    "model",    {0,   0,   0,       1}},
    {offsetof(struct grid, data),     "data",     {1,   0,   1,       0}},
    {offsetof(struct grid, replica),  "replica",  {0,   1,   1,       1}},
    // clang-format on
};

static struct comm **group_of(struct grid *grid, size_t i)
{
    return (struct comm **)(void *)((char *)grid + groups[i].member);
}

/* All MPI calls below are made whatever failed before, so that no rank misses one that
 * the others wait in; the first failure is the one told. */
static int open_group(struct comm **group, struct comm_job *job, int code, MPI_Comm mpi,
                      int rc, struct error *err)
{
    struct error later;
    if (comm_mpi_check(code, "cannot make a group of the process grid",
                       rc ? &later : err))
        return -1;
    if (mpi == MPI_COMM_NULL)
        return comm_alone_open(group, job, rc ? &later : err) ? -1 : rc;
    return comm_group_open(group, job, mpi, rc ? &later : err) ? -1 : rc;
}

static int open_axes(struct grid *grid, MPI_Comm cart, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        MPI_Comm sub = MPI_COMM_NULL;
        int code = MPI_Cart_sub(cart, groups[i].varies, &sub);
        rc = open_group(group_of(grid, i), grid->world->job, code, sub, rc, err);
    }
    return rc;
}

/* The two ends of each pipe, told from others by the rank of the first. Stages between
 * them, and pipes of one stage, are alone. */
static int open_tied(struct grid *grid, MPI_Comm cart, int rc, struct error *err)
{
    struct grid_coord first = grid->coord;
    MPI_Comm tied = MPI_COMM_NULL;
    bool is_end = grid->is_first_stage || grid->is_last_stage;
    first.pp = 0;
    int code =
        MPI_Comm_split(cart, is_end ? grid_rank_of(&grid->shape, first) : MPI_UNDEFINED,
                       grid->coord.pp, &tied);
    return open_group(&grid->tied, grid->world->job, code, tied, rc, err);
}

static int open_with_mpi(struct grid *grid, struct error *err)
{
    const struct grid_shape *shape = &grid->shape;
    const int degrees[N_AXES] = {shape->dp, shape->pp, shape->sharding, shape->mp};
    const int periods[N_AXES] = {0};
    MPI_Comm cart;
    beat_wait(BEAT_JOIN, BEAT_EVERYBODY);
    if (comm_mpi_check(
            MPI_Cart_create(grid->world->mpi, N_AXES, degrees, periods, 0, &cart),
            "cannot make the process grid", err))
        return -1;
    int rc = open_axes(grid, cart, err);
    rc = open_tied(grid, cart, rc, err);
    MPI_Comm_free(&cart);
    beat_go_on();
    return comm_agree(grid->world, rc, err);
}

static int open_alone(struct grid *grid, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        if (comm_alone_open(group_of(grid, i), grid->world->job, err))
            return -1;
    return comm_alone_open(&grid->tied, grid->world->job, err);
}

static void name_groups(struct grid *grid)
{
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        (*group_of(grid, i))->name = groups[i].name;
    grid->tied->name = "tied";
    grid->world->name = "world";
}

int grid_open(struct grid *grid, struct comm *world, const struct grid_shape *shape,
              struct error *err)
{
    *grid = (struct grid){.shape = *shape, .world = world};
    if (grid_fit(&grid->shape, world->size, err))
        return -1;
    grid->coord = grid_coord_of(&grid->shape, world->rank);
    grid->data_rank = grid->coord.dp * grid->shape.sharding + grid->coord.sharding;
    grid->data_size = grid->shape.dp * grid->shape.sharding;
    grid->is_first_stage = grid->coord.pp == 0;
    grid->is_last_stage = grid->coord.pp == grid->shape.pp - 1;

    int rc = world->size > 1 ? open_with_mpi(grid, err) : open_alone(grid, err);
    if (rc)
        grid_close(grid);
    else
        name_groups(grid);
    return rc;
}

void grid_close(struct grid *grid)
{
    comm_group_close(grid->tied);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        comm_group_close(*group_of(grid, i));
    *grid = (struct grid){0};
}
