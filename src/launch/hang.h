/*
 * hang - whether a job hangs, and who holds it up: a function of what was seen of its
 * ranks, and its words for the terminal.
 *
 * A rank is quiet since its last action (base/beat.h). One that is quiet though it waits
 * for no other holds the job up; when all wait, they wait for each other. How long it may
 * be quiet:
 *
 *   hang_timeout given   that long, whatever the cause; while the job starts, ranks that
 *                        run or wait have HANG_START_LEAST seconds at least
 *   otherwise            a step: the larger of HANG_STEP_LEAST seconds and HANG_STEPS
 *                        median steps; until the first step is through, and in the other
 *                        phases, what hang_bound() has for them
 *   the job is to stop   HANG_STOP_MOST seconds at most; HANG_STOP_SAVE_MOST while a save
 *                        is in the kernel, which may be a slow disk
 *
 * A rank that is stopped, uninterruptible, gone or out of reach ends the job, and so do
 * ranks that all wait for each other. One that runs, or is swapped out, may get there:
 * unless hang_timeout is given it is named, and the job goes on.
 */
#ifndef LAUNCH_HANG_H
#define LAUNCH_HANG_H

#include "base/base.h"
#include "base/beat.h"

#include <stdio.h>

#define HANG_STEP_LEAST 60.0
#define HANG_STEPS 10
#define HANG_START_LEAST 60.0
#define HANG_STOP_MOST 30.0
#define HANG_STOP_SAVE_MOST 120.0

enum rank_condition {
    RANK_RUNS,
    RANK_SWAPPED,
    RANK_STOPPED,
    RANK_UNINTERRUPTIBLE,
    RANK_GONE,
    RANK_OUT_OF_REACH, // its host does not answer
    N_RANK_CONDITIONS,
};

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
    enum beat_state state; // its last word
    int code;
    int64_t said_ns;    // CLOCK_REALTIME of its last word, or when it was seen dead
    int exit_signal;    // that ended it; 0: none, or nobody saw
    const char *reason; // BEAT_FAILED: why; NULL: another rank of its host failed first
    bool is_lasting;    // BEAT_FAILED: would come again
};

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

/* How long this rank may be quiet in what it does. */
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
