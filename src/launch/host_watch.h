/*
 * host_watch - the ranks of this host as a watcher sees them, without their help: by
 * their slots of shared memory (base/beat.h), by /proc, and by a pidfd of each, through
 * which its end is seen at once and no signal can reach a process that got its number
 * later.
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
    int deaths_fd;         // readable: a rank has ended, and is to be looked at
    uint64_t pid_space;
    double looked; // clock_seconds()
};

MUST_CHECK int host_watch_open(struct host_watch *hw, const char *path, int n_ranks,
                               struct error *err);
/* One that was not opened, too. Removes the file. */
void host_watch_close(struct host_watch *hw);

/* Look at the ranks of this host: fills seen[r] of each that has begun. Cheap while they
 * make progress. */
void host_watch_look(struct host_watch *hw, struct seen_rank *seen);
/* Some rank of this host is alive. */
bool host_watch_any_alive(const struct host_watch *hw);
/* What hang_timeout the ranks were given; 0: none. */
double host_watch_timeout(const struct host_watch *hw);

/* Have all of them write their stacks to their logs. */
void host_watch_stacks(struct host_watch *hw, const struct seen_rank *seen);
/* Ask those that have not been asked yet to stop, by this signal. */
void host_watch_ask_to_stop(struct host_watch *hw, int signal_number);
void host_watch_kill(struct host_watch *hw);

/* The signal at which a rank writes its stack; its handler is worker.c's. */
#define HOST_WATCH_STACK_SIGNAL (SIGRTMIN + 7)

#endif
