/*
 * run_facts - what a person wants to know of a run first: does it live, how far is it,
 * how long will it take, is its loss healthy, how fast is it, what limits it.
 *
 * Layer: run <- run_facts <- the board, `trefoil top`, `trefoil inspect`.
 */
#ifndef BOARD_RUN_FACTS_H
#define BOARD_RUN_FACTS_H

#include "base/base.h"
#include "board/run.h"

enum run_state {
    RUN_EMPTY,      // nothing there yet, and nobody writes
    RUN_UNREADABLE, // its file cannot be read
    RUN_STARTING,   // its process lives, and has logged no step
    RUN_TRAINING,
    RUN_EVALUATING,
    RUN_SAVING,
    RUN_FINISHED,
    RUN_STOPPED, // on request, or before its last step
    RUN_DEAD,    // its process is gone and has not said why, or failed
    RUN_N_STATES,
};

enum run_health {
    RUN_HEALTH_UNKNOWN,
    RUN_HEALTHY,
    RUN_FLAT,
    RUN_SPIKING,
    RUN_DIVERGED,
    RUN_N_HEALTHS,
};

struct run_facts {
    enum run_state state;
    char note[640]; // what else is to be said; "": nothing
    double step, steps_total, tokens, seconds_left, loss, eval_loss, tokens_per_second,
        mfu; // NAN: not known; loss INFINITY: not a finite number
    double step_seconds;
    enum run_health health;
    char health_text[256];
    char limit[320]; // one sentence; "": not known
    double age;      // seconds since the newest line; NAN: there is none
};

const char *run_state_name(enum run_state state);
const char *run_health_name(enum run_health health);

/* `now`: seconds since 1970. */
void run_facts_of(const struct run *run, double now, struct run_facts *facts);

/* The health of the loss alone, and the sentence on what limits the run; run_health.c. */
void run_health_of(const struct run *run, struct run_facts *facts);
void run_limit_of(const struct run *run, struct run_facts *facts);

#endif
