/*
 * join_failure - why a rank did not get through MPI_Init.
 *
 * When MPI_Init fails, MPI ends the process without returning. Its messages are spread
 * over mpiexec's output and the rank's log, and the remedy depends on the settings of
 * this process: variables, limits, shared memory.
 */
#ifndef LAUNCH_JOIN_FAILURE_H
#define LAUNCH_JOIN_FAILURE_H

#include "base/base.h"
#include "base/error.h"
#include "launch/host_watch.h"

/* The rank that MPI_Init ended, if the dead rank `rank` was in MPI_Init and the signal
 * `number` (0: none or not known) is not the cause; -1: MPI_Init is not the cause.
 * mpiexec ends the other ranks, and maybe this one, by SIGTERM (Open MPI) or SIGKILL
 * (MPICH). */
int join_failure_find(const struct seen_rank *ranks, int n_ranks, const char *log_dir,
                      int rank, int number);
/* `said` is mpiexec's output, `log` the path of the rank's log, which need not exist, and
 * `where` ends the sentence. Always returns -1. */
int join_failure_explain(int rank, const struct seen_rank *seen, const char *said,
                         const char *log, const char *where, struct error *err);

#endif
