/*
 * job - one try of a job: mpiexec is started, stayed with, and waited for.
 */
#ifndef LAUNCH_JOB_H
#define LAUNCH_JOB_H

#include "base/base.h"
#include "base/error.h"
#include "launch/job_dir.h"
#include "launch/job_options.h"
#include "launch/job_watch.h"
#include "launch/log_tail.h"
#include "launch/mpiexec.h"
#include "launch/output_pipe.h"
#include "launch/restart.h"

#include <limits.h>
#include <signal.h>

struct launch_job {
    const struct launch_options *opt;
    const struct mpiexec_dialect *dialect;
    struct job_dir dir;
    char log_dir[PATH_MAX]; // absolute
    int lock_fd, signal_fd;
    sigset_t old_mask;
    struct log_tail tail;
    struct output_pipe pipe;
    bool has_pipe;
    int stop_signal;   // that asked the job to stop; 0: none
    double stop_since; // clock_seconds() of it
    bool is_stop_repeated;
    bool has_begun; // a rank of it was seen, in this try or an earlier one
    struct restart restart;

    // of one try
    char try_dir[PATH_MAX + 64]; // in `dir`: all that goes with it
    struct mpiexec_process mpiexec;
    struct job_watch watch;
    char hang[2048];        // why the job was ended; "": it does not hang
    bool is_mpiexec_killed; // by us
    bool is_unbegun;        // ended because ranks did not begin
    double started_at;      // clock_seconds() of mpiexec's start
    double ending_since;    // clock_seconds(); 0: nothing to end
    double all_ended_at;    // every rank had said that it ended; 0: not yet
};

/* Start the job and stay with it to its end; its exit code, with *err. */
MUST_CHECK int job_run(struct launch_job *job, char *const *argv, struct error *err);

/* Take the signals that have come. The first asks the job to stop, and is acknowledged;
 * one that comes two seconds later or more ends it. */
void job_take_signals(struct launch_job *job);

#endif
