/*
 * host_watch - the ranks of this host as a watcher sees them, without their help: by
 * their slots of shared memory (base/beat.h) and by /proc.
 *
 * A rank that froze before it had a slot is found by its environment: by TREFOIL_JOB of
 * the job where the launcher started it, else as a child of the daemon that started all
 * of them (host_watch_daemon()).
 */
#ifndef LAUNCH_HOST_WATCH_H
#define LAUNCH_HOST_WATCH_H

#include "base/base.h"
#include "base/beat.h"
#include "base/error.h"
#include "launch/hang.h"

#include <limits.h>
#include <sys/types.h>

struct host_rank;

struct host_watch {
    char path[PATH_MAX]; // of the shared memory
    char host[256];
    int n_ranks;
    struct beat_file *file;
    struct host_rank *all; // (n_ranks) what was seen last of each
    const char *job; // of TREFOIL_JOB, borrowed; NULL: look at the daemon's children
    const char *rank_variable; // the environment's, that tells a rank its number
    pid_t daemon;
    double opened, looked, next_search; // clock_seconds()
    bool is_borrowed;                   // the file goes on without this watch
};

MUST_CHECK int host_watch_open(struct host_watch *hw, const char *path, int n_ranks,
                               struct error *err);
void host_watch_close(struct host_watch *hw);

/* Look at the ranks of this host: fills seen[r] of each of them. Cheap while they make
 * progress. */
void host_watch_look(struct host_watch *hw, struct seen_rank *seen);
/* Some rank of this host, begun or not, is alive. */
bool host_watch_any_alive(const struct host_watch *hw);
/* What hang_timeout the ranks were given; 0: none. */
double host_watch_timeout(const struct host_watch *hw);

/* Have all of them write their stacks to their logs; of those that cannot, what the
 * kernel tells is appended there. log_dir NULL: to their standard error. */
void host_watch_stacks(struct host_watch *hw, const struct seen_rank *seen,
                       const char *log_dir);
/* SIGKILL to all of them. */
void host_watch_kill(struct host_watch *hw);

/* The process that started this rank and its neighbours: the nearest of its ancestors
 * that is no rank. */
pid_t host_watch_daemon(const char *rank_variable);

/* The signal at which a rank writes its stack; its handler is worker.c's. */
#define HOST_WATCH_STACK_SIGNAL (SIGRTMIN + 7)

#endif
