/*
 * worker - a rank's side of the launcher.
 *
 * A process that launch_run() did not start may call all of this too: nothing is
 * redirected, pinned or recorded, failures are only logged; one of several is watched for
 * hangs all the same (job_watch.h). So the commands that can run on several ranks call these
 * without asking. What happens to a rank is in its slot of shared memory (base/beat.h).
 *
 *     worker_start(&err)                before anything else, before MPI
 *     worker_report_failure(&err)       by a rank that cannot reach the next agreement;
 *                                       comm_on_abort() has comm_abort() call it
 *     comm_world_close(world)
 *     return worker_finish(rc, &err)    the last word, after MPI is closed
 */
#ifndef LAUNCH_WORKER_H
#define LAUNCH_WORKER_H

#include "base/base.h"
#include "base/error.h"
#include "comm/comm.h"

#define WORKER_ENV_LOG_DIR "TREFOIL_LOG_DIR" // absolute
#define WORKER_ENV_WATCH "TREFOIL_WATCH"     // where other hosts report, or empty
#define WORKER_ENV_OUTPUT "TREFOIL_OUTPUT"   // "1": rank 0's standard output is the job's
#define WORKER_ENV_OVERSUBSCRIBE "TREFOIL_OVERSUBSCRIBE" // "1": a host may be crowded

/* The reason of a rank that MPI_Init has ended begins with this. */
#define WORKER_JOIN_ENDED "MPI_Init ended the process"

#define WORKER_LOG_MARK                                                                  \
    "trefoil-log: " // before rank 0's lines on their way to the terminal

/* Standard output (unless it is the job's) and error become LOG_DIR/workerlog.N; this
 * process dies with the daemon that started it; it has its share of the processors where
 * there are enough, and yields when idle where not; crashes are recorded, with the stack in
 * the log. */
MUST_CHECK int worker_start(struct error *err);

/* Which of n processors, in the order of their neighbourhood, are this rank's: *first and
 * the returned number; 0 when there are not enough. */
int worker_share(int n_processors, int local_rank, int local_size, int *first);
/* The threads this rank should use unless its configuration says otherwise. 0: no opinion,
 * as launch_run() did not start it or the user has set OMP_NUM_THREADS. */
int worker_threads(void);

/* Log the sentence as an error and record it: the launcher shows it, once, and ends the
 * job. When several ranks report, the first one counts. */
void worker_report_failure(const struct error *err);

/* This rank ends: rc 0 is success, -1 a failure or a stop on request told by *err, which
 * is logged unless it was reported before. Returns the exit code for main(). A rank of
 * launch_run() that was stopped returns 0, because mpiexec shoots the ranks still ending
 * when one returns anything else; the launcher finds the 75 in the slot. */
int worker_finish(int rc, const struct error *err);

#endif
