/*
 * host_watch - the ranks of this host as a watcher sees them, without their help: by
 * their slots of shared memory (base/beat.h), by /proc, and by a pidfd of each, through
 * which its end is seen at once and no signal can reach a process that got its number
 * later. And whether a job hangs, and who holds it up, from what was seen of its ranks.
 *
 * A rank is quiet since its last action. One that is quiet for longer than hang_bound()
 * though it waits for no other holds the job up; when all wait, they wait for each other.
 * One that is stopped, uninterruptible, gone or out of reach ends the job, and so do ranks
 * that all wait for each other. One that runs, or is swapped out, may get there: unless
 * hang_timeout is given it is named, and the job goes on.
 */
#ifndef LAUNCH_HOST_WATCH_H
#define LAUNCH_HOST_WATCH_H

#include "base/base.h"
#include "base/beat.h"
#include "base/error.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

/* The signal at which a rank writes its stack; its handler is worker.c's. */
#define HOST_WATCH_STACK_SIGNAL (SIGRTMIN + 7)

enum rank_condition {
    RANK_RUNS,
    RANK_SWAPPED,
    RANK_STOPPED,
    RANK_UNINTERRUPTIBLE,
    RANK_GONE,
    RANK_OUT_OF_REACH, // its host does not answer
    N_RANK_CONDITIONS,
};

/* Whether the kernel killed a process for lack of memory between the start of the watch
 * and the end of a rank. */
enum oom_evidence { OOM_UNKNOWN, OOM_NONE, OOM_COUNTED };

struct seen_rank { // a rank of the job, as the last look showed it
    bool is_seen;  // it has begun; else nothing below counts
    bool is_over;  // it has done its work
    enum rank_condition condition;
    double in_condition; // seconds
    double quiet;        // seconds since its last action
    enum beat_phase phase;
    enum beat_action action;
    int64_t detail, step; // step -1: none yet
    int64_t n_steps;      // that are through
    int peer;             // a rank, BEAT_NOBODY or BEAT_EVERYBODY
    const char *host;
    int pid;
    int outcome;           // of its work: 1 + exit code; 0: none yet
    enum beat_state state; // its last word
    int code;
    int64_t said_ns; // CLOCK_REALTIME of its last word, or when it was seen dead
    int exit_signal; // that ended it; 0: none, or not known
    int exit_code;   // with which it ended; 0: none, or not known
    enum oom_evidence oom;
    const char *reason; // BEAT_FAILED: why; NULL: another rank of its host failed first
    bool is_lasting;    // BEAT_FAILED: would come again
};

/* -- seeing -------------------------------------------------------------------------- */

struct host_watch {
    char path[PATH_MAX]; // of the shared memory
    char host[256];
    int n_ranks;
    struct beat_file *file;
    struct host_rank *all; // (n_ranks) what was seen last of each
    int deaths_fd;         // readable: a rank has ended, and is to be looked at
    uint64_t pid_space;
    uint64_t oom_kills; // memory_oom_kills() at the start of the watch
    uint64_t machine_oom_kills;
    double looked; // clock_seconds()
    bool is_paused;
};

MUST_CHECK int host_watch_open(struct host_watch *hw, const char *path, int n_ranks,
                               struct error *err);
/* One that was not opened, too. Removes the file. */
void host_watch_close(struct host_watch *hw);
/* Fills seen[r] of each that has begun. Cheap while they make progress. */
void host_watch_look(struct host_watch *hw, struct seen_rank *seen);
bool host_watch_any_alive(const struct host_watch *hw);
/* What hang_timeout the ranks were given; 0: none. */
double host_watch_timeout(const struct host_watch *hw);
/* Have all of them write their stacks to their logs. */
void host_watch_stacks(struct host_watch *hw, const struct seen_rank *seen);
/* Ask those that have not been asked yet to stop, by this signal. */
void host_watch_ask_to_stop(struct host_watch *hw, int signal_number);
void host_watch_kill(struct host_watch *hw);
/* Stop the ranks by SIGSTOP, also those that begin later, or continue them. Paused ranks are
 * never quiet. */
void host_watch_pause(struct host_watch *hw, bool is_paused);
/* Whether any process of this host is stopped by a signal or a debugger. */
bool host_watch_is_stopped(pid_t pid);

/* -- judging ------------------------------------------------------------------------- */

struct hang_rule {
    double hang_timeout; // seconds; 0: not given
    double median_step;  // seconds; 0: not known
    bool is_stopping;    // a signal has asked the job to stop
};

enum hang_decision { HANG_NONE, HANG_NAMED, HANG_ENDS };

struct hang {
    enum hang_decision decision;
    bool is_deadlock; // all wait for each other, and there is no culprit
    int culprit;      // the first of them; -1: none
    double seconds;   // for how long
};

/* How long this rank may be quiet in what it does: the tables of docs/launcher.md. */
double hang_bound(const struct hang_rule *rule, const struct seen_rank *rank);
/* is_culprit: (n_ranks), filled. */
struct hang hang_judge(const struct seen_rank *ranks, int n_ranks,
                       const struct hang_rule *rule, bool *is_culprit);
/* A table of all ranks: lines, each ended by a new line. */
void hang_table(FILE *out, const struct seen_rank *ranks, int n_ranks);
/* "rank 1 on h is stopped", one clause for each culprit; or that all wait. */
void hang_sentence(char *buf, size_t size, const struct seen_rank *ranks, int n_ranks,
                   const struct hang *hang, const bool *is_culprit);

#endif
