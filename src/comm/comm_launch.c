/*
 * What the environment says about how this process was started.
 *
 * Each launcher tells its processes their rank and their number by variables. Both of a
 * row must be there: a batch script under Slurm sees SLURM_NTASKS too, and is one
 * process. The first row that matches wins, so that mpirun inside a Slurm job is mpirun.
 */
#include "comm/comm.h"

#include <stdlib.h>

// clang-format off
static const struct {
    const char *rank, *size, *local_rank, *local_size, *job;
    bool has_mpi;
} launchers[] = {
    // Open MPI; MPICH and srun --mpi=pmi2; srun --mpi=pmix; MVAPICH; srun --mpi=none
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", true},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, true},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "PMIX_NAMESPACE", true},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", NULL, true},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL, false},
};
// clang-format on

/* The value of a variable that holds a count; -1 when it is missing or something else. */
static int number_in(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value <= INT32_MAX ? (int)value : -1;
}

struct comm_launch comm_launch_info(void)
{
    const char *ours = getenv(COMM_ENV_JOB);
    bool is_ours = ours && ours[0] == '/';
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        int rank = number_in(launchers[i].rank);
        int size = number_in(launchers[i].size);
        if (rank >= 0 && rank < size)
            return (struct comm_launch){.launcher = launchers[i].size,
                                        .job = is_ours ? ours
                                               : launchers[i].job
                                                   ? getenv(launchers[i].job)
                                                   : NULL,
                                        .rank = rank,
                                        .size = size,
                                        .local_rank = number_in(launchers[i].local_rank),
                                        .local_size = number_in(launchers[i].local_size),
                                        .has_mpi = launchers[i].has_mpi,
                                        .is_ours = is_ours};
    }
    return (struct comm_launch){.size = 1, .local_rank = -1, .local_size = -1};
}

bool comm_is_launched(void)
{
    return comm_launch_info().size > 1;
}
