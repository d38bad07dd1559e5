/*
 * worker - a rank's side of launch.h.
 *
 * A process that launch_run() did not start (TREFOIL_LOG_DIR is not set) may call all of
 * this too: nothing is redirected, pinned or recorded, failures are only logged. So the
 * commands that can run on several ranks call these without asking.
 *
 *     worker_start(&err)                before anything else, before MPI
 *     worker_set_step(step)             as each step begins
 *     worker_report_failure(&err)       by a rank that cannot reach the next agreement;
 *                                       comm_on_abort() has comm_abort() call it
 *     comm_world_close(world)
 *     return worker_finish(rc, &err)    the last word, after MPI is closed
 */
#ifndef LAUNCH_WORKER_H
#define LAUNCH_WORKER_H

#include "base/base.h"
#include "base/error.h"

#define WORKER_LOG_MARK "trefoil-log: " // before rank 0's lines that its log did not take

/* Whether launch_run() started this process; it may be a job of one. */
bool worker_is_rank(void);

/* Standard output and error become LOG_DIR/workerlog.N; this process dies with the
 * daemon that started it; it is pinned to its share of the processors where each rank of
 * this machine can have one, and told to yield when idle where not; crashes are recorded
 * with the stack in the log. */
MUST_CHECK int worker_start(struct error *err);

/* A line in the log of this rank, where that is a file of its own and its level would
 * leave the line out: rank 0, whose lines are shown, says such things for all. */
void worker_log(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The threads this rank should use unless its configuration says otherwise: processors it
 * may use / ranks on this machine, at least 1. 0: no opinion, because launch_run() did
 * not start this process or the user has set OMP_NUM_THREADS. */
int worker_threads(void);

/* The step this rank is in, for who watches it, and for the message should it die. */
void worker_set_step(int64_t step);

/* Whether the launcher shows the progress of this rank, and the text to show. */
bool worker_is_shown(void);
void worker_show_progress(const char *text);

/* Log the sentence as an error and record it: the launcher shows it, once, and ends the
 * job. When several ranks report, the first one counts. */
void worker_report_failure(const struct error *err);

/* This rank ends: rc 0 is success, -1 a failure or a stop on request told by *err, which
 * is logged (by worker_report_failure() unless this was called before). Returns the exit
 * code for main(). A rank of launch_run() that was stopped returns 0, because mpiexec
 * shoots the ranks still ending when one returns anything else; the 75 goes to the
 * launcher through the status file. */
int worker_finish(int rc, const struct error *err);

#endif
