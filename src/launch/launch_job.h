/*
 * launch_job - a job while its launcher stays with it; for launch.c, which starts it and
 * draws the conclusions, and launch_loop.c, which waits for its end.
 */
#ifndef LAUNCH_LAUNCH_JOB_H
#define LAUNCH_LAUNCH_JOB_H

#include "launch/launch.h"
#include "launch/launch_command.h"
#include "launch/launch_keeper.h"
#include "launch/launch_ranks.h"
#include "launch/launch_restart.h"
#include "launch/launch_watch.h"
#include "launch/log_tail.h"
#include "launch/mpiexec_process.h"

#include <limits.h>
#include <signal.h>

/* What epoll tells beside the number of a rank that ended. */
#define EVENT_MPIEXEC ((uint64_t)LAUNCH_RANKS_MOST + 1)
#define EVENT_SIGNAL ((uint64_t)LAUNCH_RANKS_MOST + 2)
#define EVENT_OUTPUT ((uint64_t)LAUNCH_RANKS_MOST + 3)
#define EVENT_STATUS ((uint64_t)LAUNCH_RANKS_MOST + 4)

struct launch_job {
    const struct launch_options *opt;
    const struct launch_dialect *dialect;
    char log_dir[PATH_MAX]; // absolute
    int lock_fd, epoll_fd, signal_fd, inotify_fd;
    sigset_t old_mask;
    struct log_tail tail;
    int stop_signal;   // that asked the job to stop; 0: none
    double stop_since; // clock_seconds() of it
    bool is_stop_repeated;
    bool has_begun; // a rank of it was seen, in this try or an earlier one
    struct launch_restart restart;

    // of one try
    char id[64]; // TREFOIL_JOB
    struct launch_keeper keeper;
    struct mpiexec_process mpiexec;
    struct launch_ranks ranks;
    struct launch_watch watch;
    bool is_mpiexec_asked_to_stop; // because all ranks are on other machines
    bool is_mpiexec_killed;        // by us
    bool is_unbegun;               // ended because ranks did not begin
    double started_at;             // clock_seconds() of mpiexec's start
    double ending_since;           // clock_seconds(); 0: nothing to end
    double all_ended_at;           // every rank had written its end mark; 0: not yet
};

/* Stay with a job whose mpiexec was started until mpiexec has ended. */
void launch_loop(struct launch_job *job);

/* Take the signals that have come. The first asks the job to stop, and is acknowledged;
 * one that comes LAUNCH_AGAIN_SECONDS later or more ends it. */
void launch_take_signals(struct launch_job *job);

#endif
