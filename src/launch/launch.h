/*
 * launch - start a job of several processes and stay with it to its end.
 *
 * launch_run() starts `mpiexec ... trefoil COMMAND ARGS...`, with the mpiexec of the MPI
 * library this program was built with, and watches the ranks themselves rather than
 * mpiexec, whose exit code does not tell causes and which gives ranks no time to save:
 *
 *   - each rank writes its output to LOG_DIR/workerlog.N (worker.h is the rank's side), and
 *     what happens to it to its page of shared memory; rank 0's output is also copied to
 *     standard error;
 *   - SIGINT, SIGTERM, SIGHUP and SIGUSR1 are acknowledged and passed to the ranks
 *     (SIGUSR1 as SIGTERM), which save and end with 75; another one, two seconds later or
 *     more, kills the job. Whoever sends a signal to all processes of a job means one stop:
 *     mpiexec does not hear it, ranks take any number for one;
 *   - ranks that do not begin within a minute are told of, and the job ends;
 *   - a rank that fails or is killed ends the job within seconds, with one sentence that
 *     names the rank, its host, the step, the reason and its log (verdict.h);
 *   - a rank that freezes, and ranks that wait for each other, are found and named, and
 *     the job ends (hang.h, job_watch.h);
 *   - at the end nothing is left: no process of the job on this machine, no shared memory
 *     and no session directory of it, also when the launcher itself is killed (job_dir.h);
 *   - a job that died of what a restart may mend (a rank or mpiexec was killed, lost, or
 *     failed with ERROR_RUNTIME) is then started again, as often as max_restarts allows,
 *     after pauses that grow (restart.h). What would come again is not retried: bad input,
 *     divergence, a job of which no rank ever began; nor is what a user stopped.
 *
 * Layer: base, config, comm, ckpt <- launch <- cli. Threads: called from the main thread
 * of a process that has no other children.
 */
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "base/base.h"
#include "base/error.h"
#include "launch/job_options.h"

/* Run this very program with the words of `argv` (NULL-terminated; "pretrain", "-c", ...)
 * on all ranks, and wait; opt->resume may change the words. Returns the exit code for
 * this process: 0 when every rank finished; otherwise 2, 3, 4 (it died again and again
 * without a newer checkpoint) or 75, with *err of that kind, for the caller to show once.
 */
MUST_CHECK int launch_run(const struct launch_options *opt, char *const *argv,
                          struct error *err);

#endif
