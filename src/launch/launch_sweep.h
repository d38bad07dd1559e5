/*
 * launch_sweep - what a job that did not end by itself leaves behind on this machine.
 *
 * Everything is recognised by a name that is this job's alone; what was left by jobs
 * before by the name of a process that is dead.
 */
#ifndef LAUNCH_LAUNCH_SWEEP_H
#define LAUNCH_LAUNCH_SWEEP_H

#include "base/base.h"

#include <sys/types.h>

/* Kill every process, this one apart, that began with TREFOIL_JOB=job_id in its
 * environment, and wait until there is none, a second at most. */
void launch_sweep_processes(const char *job_id);

/* Remove the shared memory of Open MPI's job `job` (0: none) and its session directory,
 * which must be that of the mpirun with process number `mpiexec`. */
void launch_sweep_files(uint32_t job, const char *session, pid_t mpiexec);

/* Remove what jobs of this user whose processes are dead have left: session directories
 * of Open MPI with their shared memory, and scratch directories (LAUNCH_SCRATCH_NAME). */
void launch_sweep_dead(void);

/* The directory for temporary files: TMPDIR, or /tmp. */
const char *launch_temporary_dir(void);
#define LAUNCH_SCRATCH_NAME                                                              \
    "trefoil-job-" // and the process that made it, "-" and letters

/* Remove workerlog.N and .status.N of a former job, or only the .status.N. */
void launch_sweep_logs(const char *log_dir, bool status_only);

#endif
