/* The groups of the process grid: who is in them, in which order. */
#include "parallel_test.h"

#include "base/base.h"
#include "comm/grid.h"

enum { MAX_RANKS = 16 };

/* Is `rank` in my group, when the axes marked true may differ? */
static bool is_with_me(const struct grid *g, int rank, struct grid_coord varies)
{
    struct grid_coord at = grid_coord_of(&g->shape, rank), me = g->coord;
    return (varies.dp || at.dp == me.dp) && (varies.pp || at.pp == me.pp) &&
           (varies.sharding || at.sharding == me.sharding) &&
           (varies.mp || at.mp == me.mp);
}

/* Fails unless `c`, with this process in it, holds exactly the world ranks wanted[0..n), in that order. */
static void assert_members(struct comm *c, int world_rank, const int *wanted, int n)
{
    struct error err;
    int64_t bounds[MAX_RANKS + 1], ranks[MAX_RANKS] = {0};
    assert_int_equal(comm_size(c), n);
    comm_even_bounds(n, n, bounds);
    ranks[comm_rank(c)] = world_rank;
    assert_ok(comm_allgather(c, ranks, sizeof ranks[0], bounds, &err), err);
    for (int i = 0; i < n; i++)
        assert_int_equal(ranks[i], wanted[i]);
}

static void assert_group(const struct grid *g, struct comm *c, struct grid_coord varies)
{
    int wanted[MAX_RANKS], n = 0;
    for (int rank = 0; rank < comm_size(g->world); rank++)
        if (is_with_me(g, rank, varies))
            wanted[n++] = rank;
    assert_members(c, comm_rank(g->world), wanted, n);
}

static void assert_tied(const struct grid *g)
{
    int wanted[2] = {comm_rank(g->world)}, n = 1;
    struct grid_coord at = g->coord;
    if (g->shape.pp > 1 && (g->is_first_stage || g->is_last_stage)) {
        at.pp = 0;
        wanted[0] = grid_rank_of(&g->shape, at);
        at.pp = g->shape.pp - 1;
        wanted[1] = grid_rank_of(&g->shape, at);
        n = 2;
    }
    assert_members(g->tied, comm_rank(g->world), wanted, n);
}

static void check_shape(struct comm *world, const struct grid_shape *shape)
{
    struct grid g;
    struct error err;
    assert_ok(grid_open(&g, world, shape, &err), err);
    assert_int_equal(grid_rank_of(shape, g.coord), comm_rank(world));
    assert_group(&g, g.dp, (struct grid_coord){.dp = 1});
    assert_group(&g, g.pipe, (struct grid_coord){.pp = 1});
    assert_group(&g, g.sharding, (struct grid_coord){.sharding = 1});
    assert_group(&g, g.model, (struct grid_coord){.mp = 1});
    assert_group(&g, g.data, (struct grid_coord){.dp = 1, .sharding = 1});
    assert_group(&g, g.replica, (struct grid_coord){.pp = 1, .sharding = 1, .mp = 1});
    assert_tied(&g);
    assert_int_equal(g.data_rank, comm_rank(g.data));
    assert_int_equal(g.data_size, comm_size(g.data));
    assert_int_equal(comm_rank(g.pipe), g.coord.pp);
    assert_int_equal(g.is_first_stage, g.coord.pp == 0);
    assert_int_equal(g.is_last_stage, g.coord.pp == shape->pp - 1);
    grid_close(&g);
}

/* Those of as many processes as there are ranks are tried. */
static const struct grid_shape shapes[] = {
    {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {3, 1, 1, 1},
    {1, 3, 1, 1}, {1, 1, 1, 3}, {2, 2, 1, 1}, {2, 1, 2, 1}, {2, 1, 1, 2}, {1, 2, 2, 1},
    {1, 2, 1, 2}, {1, 1, 2, 2}, {1, 4, 1, 1}, {1, 5, 1, 1}, {5, 1, 1, 1}, {2, 3, 1, 1},
    {1, 3, 2, 1}, {3, 1, 1, 2}, {2, 2, 1, 2}, {2, 2, 2, 1}, {1, 2, 2, 2}, {2, 1, 4, 1},
};

static void test_grid__groups_hold_the_right_ranks(void **state)
{
    struct comm *world = *state;
    int n_checked = 0;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (grid_size(&shapes[i]) == comm_size(world)) {
            check_shape(world, &shapes[i]);
            n_checked++;
        }
    assert_true(n_checked > 0);
}

static void test_grid__groups_sum_side_by_side(void **state)
{
    struct comm *world = *state;
    struct grid g;
    struct error err;
    struct comm_request reqs[3];
    int64_t n = 100003;
    int size = comm_size(world);
    struct grid_shape shape = {.dp = 1, .pp = 1, .sharding = 1, .mp = size};
    if (size % 2 == 0)
        shape = (struct grid_shape){.dp = size / 2, .pp = 2, .sharding = 1, .mp = 1};
    assert_ok(grid_open(&g, world, &shape, &err), err);
    struct comm *groups[3] = {g.dp, g.pipe, world};
    float *x[3];
    for (int k = 0; k < 3; k++) {
        x[k] = values_new(groups[k], k, n); // by the rank in the group
        comm_allreduce_start(groups[k], x[k], DTYPE_F32, n, &reqs[k]);
    }
    for (int k = 2; k >= 0; k--) {
        assert_ok(comm_wait(&reqs[k], &err), err);
        assert_sums(x[k], k, comm_size(groups[k]), 0, n);
        free(x[k]);
    }
    grid_close(&g);
}

static void test_grid__a_layout_of_another_size_is_refused(void **state)
{
    struct comm *world = *state;
    struct grid g;
    struct error err;
    struct grid_shape shape = {
        .dp = comm_size(world) + 1, .pp = 1, .sharding = 1, .mp = 1};
    assert_int_equal(grid_open(&g, world, &shape, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "takes"));
    grid_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid__groups_hold_the_right_ranks),
        cmocka_unit_test(test_grid__groups_sum_side_by_side),
        cmocka_unit_test(test_grid__a_layout_of_another_size_is_refused),
    };
    return cmocka_run_group_tests_name("grid_groups", tests, open_world, close_world);
}
