/*
 * launch - start a job of several processes and stay with it to its end.
 *
 * launch_run() starts `mpiexec ... trefoil COMMAND ARGS...` and watches the ranks
 * themselves rather than mpiexec, whose exit code does not tell causes and which gives
 * ranks no time to save (docs/launcher.md):
 *
 *   - each rank writes to LOG_DIR/workerlog.N; rank 0's lines go to standard error, too;
 *   - SIGINT, SIGTERM, SIGHUP and SIGUSR1 are acknowledged and passed to the ranks, which
 *     save and end with 75; another one, two seconds later or more, kills the job;
 *   - ranks that do not begin, fail, die, freeze or wait for each other end the job within
 *     seconds, with one sentence that names rank, host, step, reason and log;
 *   - at the end nothing is left, also when the launcher itself is killed (job_files.h);
 *   - a job that died of what a restart may mend is then started again, as often as
 *     max_restarts allows (restart.h). What would come again is not retried: bad input,
 *     divergence, a job of which no rank ever began; nor is what a user stopped.
 *
 * Layer: base, config, comm, ckpt <- launch <- cli. Threads: called from the main thread
 * of a process that has no other children.
 */
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "base/base.h"
#include "base/error.h"
#include "launch/mpiexec.h"

/* Run this very program with the words of `argv` (NULL-terminated; "pretrain", "-c", ...)
 * on all ranks, and wait; opt->resume may change the words. Returns the exit code for
 * this process: 0 when every rank finished; otherwise 2, 3, 4 (it died again and again
 * without a newer checkpoint) or 75, with *err of that kind, for the caller to show once.
 */
MUST_CHECK int launch_run(const struct launch_options *opt, char *const *argv,
                          struct error *err);

#endif
