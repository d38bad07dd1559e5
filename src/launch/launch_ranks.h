/*
 * launch_ranks - the ranks of a job as their launcher knows them.
 *
 * A rank becomes known by its status file. A rank of this machine is then held by a
 * pidfd: its end is seen at once, and a signal can never reach a process that got its
 * number later. Of ranks of other machines only the files are known.
 */
#ifndef LAUNCH_LAUNCH_RANKS_H
#define LAUNCH_LAUNCH_RANKS_H

#include "base/base.h"
#include "base/error.h"
#include "launch/rank_status.h"

struct launch_rank {
    int pidfd; // -1: not known, of another machine, or gone
    bool is_known, is_local;
    bool is_signalled;     // has been asked to stop
    enum rank_state state; // the last word read from its file
    int code;
    int64_t time_ns;      // of the last word
    pid_t pid;            // of a local rank, with
    uint64_t start_ticks; // the time it began
    int exit_signal;      // that was seen to end it; 0: not known
    int64_t seen_dead_ns; // a local rank was seen dead, with or without a last word; or 0
};

struct launch_ranks {
    const char *log_dir;   // borrowed, absolute
    bool is_log_temporary; // its files are not named to the user
    char host[256];        // this machine
    int n_ranks;
    int n_known;              // ranks that have begun
    int n_local;              // those of this machine
    double last_begun_at;     // clock_seconds() when the last of them became known; or 0
    int next;                 // whose file is looked at next
    int epoll_fd;             // borrowed; tells the end of rank r by the number r
    struct launch_rank *all;  // (n_ranks)
    uint32_t job;             // of Open MPI, 0: not known
    char session[512];        // its directory, "": not known
    int told_rank;            // whose failure came first of those told the spare way, and
    struct rank_status *told; // what; NULL: nobody
};

MUST_CHECK int launch_ranks_init(struct launch_ranks *ranks, const char *log_dir,
                                 int64_t n_ranks, int epoll_fd, struct error *err);
void launch_ranks_release(struct launch_ranks *ranks);

/* Look at the next status files, a bounded number a call; at one; or at all of them. */
void launch_ranks_look(struct launch_ranks *ranks);
void launch_ranks_look_at(struct launch_ranks *ranks, int rank); // ignored below 0
void launch_ranks_look_at_all(struct launch_ranks *ranks);
/* A rank's last word that its status file did not take: the text of
 * rank_status_parse_spare(). */
void launch_ranks_take_spare(struct launch_ranks *ranks, const char *text);
/* What rank r has said, by its file or otherwise; false: nothing. */
bool launch_ranks_status(const struct launch_ranks *ranks, int r,
                         struct rank_status *status);
/* The pidfd of this rank says that it is gone. */
void launch_ranks_note_end(struct launch_ranks *ranks, int rank);

/* The rank whose failure came first: it said so, crashed, or is gone without a last word;
 * -1: none. */
int launch_ranks_first_failure(const struct launch_ranks *ranks);
/* How many have written their end mark with this code. */
int launch_ranks_count_ended(const struct launch_ranks *ranks, int code);
/* The first rank without an end mark; -1: none. */
int launch_ranks_first_unfinished(const struct launch_ranks *ranks);

/* Ask the ranks of this machine that have not been asked to stop, by this signal, or by
 * SIGTERM for SIGUSR1, which is MPICH's in a rank; how many there were. */
int launch_ranks_ask_to_stop(struct launch_ranks *ranks, int stop_signal);
void launch_ranks_kill(const struct launch_ranks *ranks);

#endif
