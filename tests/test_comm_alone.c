/* What the environment says of a launcher, and a job of one process. */
#include "test.h"

#include "base/base.h"
#include "comm/comm.h"
#include "comm/grid.h"

static const char *const variables[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
};

/* Sets the environment to exactly the variables of "NAME=VALUE NAME=VALUE". */
static void set_launcher(const char *assignments)
{
    char copy[512];
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", assignments);
    for (char *save, *word = strtok_r(copy, " ", &save); word;
         word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value = '\0';
        setenv(word, value + 1, 1);
    }
}

static void test_launch__is_read_from_each_launchers_variables(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        int rank, size;
        bool has_mpi;
    } cases[] = {
        {"", 0, 1, false},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", 3, 4, true},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", 0, 1, true},
        {"PMI_RANK=1 PMI_SIZE=2", 1, 2, true},
        {"PMI_SIZE=2", 0, 1, false},
        {"PMIX_RANK=5 SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=5", 5, 8, true},
        {"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4", 2, 4, false},
        {"SLURM_NTASKS=16", 0, 1, false},
        {"PMI_RANK=7 PMI_SIZE=2", 0, 1, false},
        {"PMI_RANK=1 PMI_SIZE=2x", 0, 1, false},
        {"PMI_RANK=-1 PMI_SIZE=99999999999999999999", 0, 1, false},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 "
         "SLURM_STEP_NUM_TASKS=9",
         1, 2, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        set_launcher(cases[i].environment);
        struct comm_launch launch = comm_launch_info();
        assert_int_equal(launch.rank, cases[i].rank);
        assert_int_equal(launch.size, cases[i].size);
        assert_int_equal(launch.has_mpi, cases[i].has_mpi);
        assert_int_equal(comm_is_launched(), cases[i].size > 1);
    }
    set_launcher("");
}

static void test_world__of_tasks_that_cannot_meet_is_refused(void **state)
{
    (void)state;
    struct comm *world;
    struct error err;
    set_launcher("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4");
    assert_int_equal(comm_world_open(&world, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "srun started 4 tasks"));
    assert_null(world);
    set_launcher("");
}

static void test_world__of_one_process_uses_no_mpi_and_changes_nothing(void **state)
{
    (void)state;
    struct comm *world;
    struct grid grid;
    struct error err = {.text = "as it was"};
    const struct grid_shape shape = {1, 1, 1, 1};
    const int64_t bounds[] = {0, 3};
    float x[3] = {1, 2, 3};
    double d[1] = {4};
    char text[] = "text", copy[sizeof text] = "";
    struct comm_request req;
    set_launcher("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
    assert_ok(comm_world_open(&world, &err), err);
    assert_true(comm_rank(world) == 0 && comm_size(world) == 1);
    assert_true(comm_local_rank(world) == 0 && comm_local_size(world) == 1);
    assert_true(comm_host(world)[0] != '\0');
    assert_ok(grid_open(&grid, world, &shape, &err), err);
    assert_true(grid.is_first_stage && grid.is_last_stage && grid.data_size == 1);
    comm_allreduce_start(grid.data, x, DTYPE_F32, 3, &req);
    assert_true(comm_test(&req));
    assert_ok(comm_wait(&req, &err), err);
    assert_ok(comm_reduce_scatter_f32(grid.sharding, x, bounds, &err), err);
    assert_ok(comm_allgather_f32(grid.tied, x, bounds, &err), err);
    assert_ok(comm_max_f32(grid.model, x, 3, &err), err);
    assert_ok(comm_sum_f64(world, d, 1, &err), err);
    assert_ok(comm_bcast_bytes(world, text, sizeof text, 0, &err), err);
    assert_ok(
        comm_gather_bytes(world, text, copy, (const int64_t[]){0, sizeof text}, 0, &err),
        err);
    assert_ok(comm_agree(world, 0, &err), err);
    assert_int_equal(comm_agree(world, 0, &err), 0);
    assert_int_equal(comm_agree(world, -1, &err), -1);
    assert_string_equal(err.text, "as it was");
    assert_string_equal(copy, "text");
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3 && d[0] == 4);
    comm_progress(world);
    grid_close(&grid);
    comm_world_close(world);
    set_launcher("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch__is_read_from_each_launchers_variables),
        cmocka_unit_test(test_world__of_tasks_that_cannot_meet_is_refused),
        cmocka_unit_test(test_world__of_one_process_uses_no_mpi_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("comm_alone", tests, NULL, NULL);
}
