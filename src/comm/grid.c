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

#include <math.h>
#include <stddef.h>
#include <stdio.h>

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
 * the others wait in; the first failure is the one reported. */
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

/* The two ends of each pipe, coloured by the rank of the first. Stages between them, and
 * pipes of one stage, are alone. */
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

int grid_use_device(struct grid *grid, struct device *dev, struct error *err)
{
    struct comm *const groups_of_tensors[] = {grid->model, grid->data, grid->sharding,
                                              grid->dp, grid->tied};
    comm_set_device(grid->world, dev);
    if (grid->world->size == 1)
        return 0;
    return comm_peers_open(grid->world, groups_of_tensors, ARRAY_LEN(groups_of_tensors),
                           grid->pipe, err);
}

void grid_close(struct grid *grid)
{
    if (grid->world)
        comm_release_device(grid->world->job);
    comm_group_close(grid->tied);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        comm_group_close(*group_of(grid, i));
    *grid = (struct grid){0};
}

/* -- layouts in words ---------------------------------------------------------------- */

/*
 * Layouts of n processes are the ordered factorizations of n into four degrees. They are
 * ranked by how far each degree is from the one asked for, in powers of two; dp counts
 * half, because it is the degree that people change first.
 */

#define N_SUGGESTED 4
#define N_CONSIDERED 64 // of which those that suit are suggested

static const struct {
    const char *name; // in sentences
    const char *key;  // in configurations
    size_t member;
    double weight; // of a change
} degrees[] = {
    {"dp", "dp_degree", offsetof(struct grid_shape, dp), 0.5},
    {"pp", "pp_degree", offsetof(struct grid_shape, pp), 1},
    {"sharding", "sharding_degree", offsetof(struct grid_shape, sharding), 1},
    {"mp", "mp_degree", offsetof(struct grid_shape, mp), 1},
};

static int degree_of(const struct grid_shape *shape, size_t axis)
{
    return *(const int *)(const void *)((const char *)shape + degrees[axis].member);
}

/* -- texts --------------------------------------------------------------------------- */

/* Append to a text of text_bytes, cutting what does not fit. */
static void append_text(char *text, size_t text_bytes, size_t *used,
                        const char *separator, const char *more)
{
    int n =
        snprintf(text + *used, text_bytes - *used, "%s%s", *used ? separator : "", more);
    *used += (size_t)i64_min(n, (int64_t)(text_bytes - *used) - 1);
}

void grid_describe(const struct grid_shape *shape, char *text, size_t text_bytes)
{
    size_t used = 0;
    char degree[64];
    snprintf(text, text_bytes, "dp 1");
    for (size_t i = 0; i < ARRAY_LEN(degrees); i++) {
        if (degree_of(shape, i) == 1)
            continue;
        snprintf(degree, sizeof degree, "%s %d", degrees[i].name, degree_of(shape, i));
        append_text(text, text_bytes, &used, " x ", degree);
    }
}

/* -- the nearest layouts ------------------------------------------------------------- */

struct candidate {
    double distance;
    struct grid_shape shape;
};

struct candidates { // the n nearest so far, nearest first
    const struct grid_shape *wanted;
    struct candidate list[N_CONSIDERED];
    int n;
};

static double distance_between(const struct grid_shape *a, const struct grid_shape *b)
{
    double sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(degrees); i++)
        sum += degrees[i].weight * fabs(log2(degree_of(a, i)) - log2(degree_of(b, i)));
    return sum;
}

static void candidates_offer(struct candidates *best, struct grid_shape shape)
{
    struct candidate new = {distance_between(best->wanted, &shape), shape};
    int at = best->n;
    while (at > 0 && new.distance < best->list[at - 1].distance - 1e-9) // rounding
        at--;
    if (at == N_CONSIDERED)
        return;
    best->n = (int)i64_min(best->n + 1, N_CONSIDERED);
    for (int i = best->n - 1; i > at; i--)
        best->list[i] = best->list[i - 1];
    best->list[at] = new;
}

#define N_PROCESSES_MOST (1 << 20) // that suggestions are made for
#define N_DIVISORS_MOST 240        // of any number up to that

/* The divisors of n in ascending order; returns how many. */
static int divisors_of(int n, int *divisors)
{
    int n_small = 0, n_all = 0;
    for (int d = 1; (int64_t)d * d <= n; d++)
        if (n % d == 0)
            divisors[n_small++] = d;
    n_all = n_small;
    for (int i = n_small - 1; i >= 0; i--)
        if (n / divisors[i] != divisors[i])
            divisors[n_all++] = n / divisors[i];
    return n_all;
}

static void find_nearest(struct candidates *best, int n)
{
    int divisors[N_DIVISORS_MOST];
    int n_divisors = divisors_of(n, divisors);
    for (int i = 0; i < n_divisors; i++)
        for (int k = 0; k < n_divisors; k++) {
            int mp = divisors[i], pp = divisors[k];
            if ((n / mp) % pp != 0)
                continue;
            int rest = n / mp / pp;
            for (int s = 0; s < n_divisors && divisors[s] <= rest; s++)
                if (rest % divisors[s] == 0)
                    candidates_offer(best, (struct grid_shape){.dp = rest / divisors[s],
                                                               .pp = pp,
                                                               .sharding = divisors[s],
                                                               .mp = mp});
        }
}

void grid_suggest(const struct grid_shape *shape, int64_t n_processes, int n_most,
                  grid_accept_fn *accepts, void *context, char *text, size_t text_bytes)
{
    struct candidates best = {.wanted = shape};
    char layout[128];
    size_t used = 0;
    text[0] = '\0';
    if (n_processes < 1 || n_processes > N_PROCESSES_MOST)
        return;
    find_nearest(&best, (int)n_processes);
    for (int i = 0; i < best.n && n_most > 0; i++) {
        if (accepts && !accepts(context, &best.list[i].shape))
            continue;
        n_most--;
        grid_describe(&best.list[i].shape, layout, sizeof layout);
        append_text(text, text_bytes, &used, "; ", layout);
    }
}

/* -- fitting a number of processes --------------------------------------------------- */

static int check_degrees(const struct grid_shape *shape, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(degrees); i++)
        if (degree_of(shape, i) < (i == 0 ? 0 : 1))
            return error_set(err, ERROR_INPUT, "%s is %d; a degree is at least 1",
                             degrees[i].key, degree_of(shape, i));
    return 0;
}

int grid_fit(struct grid_shape *shape, int64_t n_processes, struct error *err)
{
    struct grid_shape asked = *shape;
    bool has_dp = shape->dp != 0;
    char layout[128], others[512], need[64];
    if (check_degrees(shape, err))
        return -1;
    if (!has_dp)
        asked.dp = 1;
    int64_t size = grid_size(&asked);
    if (size == n_processes || (!has_dp && n_processes % size == 0)) {
        shape->dp = has_dp ? shape->dp : (int)(n_processes / size);
        return 0;
    }
    grid_describe(&asked, layout, sizeof layout);
    grid_suggest(&asked, n_processes, N_SUGGESTED, NULL, NULL, others, sizeof others);
    if (size == INT64_MAX)
        snprintf(need, sizeof need, "more processes than can be counted");
    else
        snprintf(need, sizeof need, "%s%lld process%s", has_dp ? "" : "a multiple of ",
                 (long long)size, size == 1 ? "" : "es");
    return error_set(err, ERROR_INPUT, "the layout %s takes %s, but there %s %lld%s%s",
                     layout, need, n_processes == 1 ? "is" : "are",
                     (long long)n_processes, others[0] ? "; others of that size: " : "",
                     others);
}
