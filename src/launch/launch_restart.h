/*
 * launch_restart - whether a job that died is started again, and when.
 *
 * Pure: counts in, a decision out. Two budgets, kept apart: all restarts of a job, which
 * its user sets, and those in a row that brought no newer checkpoint. A machine that
 * fails now and then costs restarts only; a job that dies at the same place each time is
 * found by the second, however large the first is.
 */
#ifndef LAUNCH_LAUNCH_RESTART_H
#define LAUNCH_LAUNCH_RESTART_H

#include "base/base.h"

#define LAUNCH_IDLE_RESTARTS_MOST 3 // in a row without a newer checkpoint
#define LAUNCH_PAUSE_SECONDS_MOST 30

struct launch_restart {
    int64_t most;        // restarts that the user allows
    int64_t n_restarts;  // so far
    int64_t n_idle;      // the last of them, without a newer checkpoint
    int64_t newest_step; // of a checkpoint so far; -1: none
};

enum launch_decision {
    LAUNCH_AGAIN, // counted as a restart
    LAUNCH_SPENT, // the user's restarts are used up
    LAUNCH_LOOP,  // restarts do not help
};

/* The job has died of something that a restart may mend, and its newest checkpoint is of
 * `step` (-1: there is none). */
enum launch_decision launch_restart_decide(struct launch_restart *r, int64_t step);

/* Seconds before restart number n_restart, counted from 1: 1, 2, 4, ... at most
 * LAUNCH_PAUSE_SECONDS_MOST. */
int launch_restart_pause(int64_t n_restart);

#endif
