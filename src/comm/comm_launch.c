/*
 * What the environment says about how this process was started.
 *
 * Each launcher tells its processes their rank and their number by variables. Both of a
 * row must be there: a batch script under Slurm sees SLURM_NTASKS too, and is one
 * process. The first row that matches wins, so that mpirun inside a Slurm job is mpirun.
 */
#include "comm/comm.h"

#include <stdlib.h>

static const struct {
    const char *rank, *size;
    bool has_mpi;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true}, // Open MPI
    {"PMI_RANK", "PMI_SIZE", true},                         // MPICH, srun --mpi=pmi2
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", true},            // srun --mpi=pmix
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", true},   // MVAPICH
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false},        // srun --mpi=none
};

/* The value of a variable that holds a count; -1 when it is missing or something else. */
static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value <= INT32_MAX ? (int)value : -1;
}

struct comm_launch comm_launch_info(void)
{
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        int rank = number_in(launchers[i].rank);
        int size = number_in(launchers[i].size);
        if (rank >= 0 && rank < size)
            return (struct comm_launch){.launcher = launchers[i].size,
                                        .rank_variable = launchers[i].rank,
                                        .rank = rank,
                                        .size = size,
                                        .has_mpi = launchers[i].has_mpi};
    }
    return (struct comm_launch){.rank = 0, .size = 1};
}

bool comm_is_launched(void)
{
    return comm_launch_info().size > 1;
}
