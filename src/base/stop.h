/*
 * stop - a signal asks the process to end at the next good moment.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 mean the same. SIGHUP stays ignored where it was:
 * that is what nohup asks for. SIGUSR1 is left alone where a library has a handler for
 * it, as MPICH may in a rank.
 *
 * A process on its own answers the first signal at once, and a second one that comes
 * STOP_AGAIN_SECONDS later or more ends it at once, by that signal: the last checkpoint
 * is intact in any case. An earlier one is a repetition: schedulers send several. For the
 * rank of a job any number are one, since whoever started the job decides when to end it.
 */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include "base/base.h"
#include "base/error.h"

#define STOP_AGAIN_SECONDS 2

enum stop_role {
    STOP_COMMAND,    // looks at stop_is_wanted() often: it need not answer
    STOP_ALONE,      // a run of one process
    STOP_FIRST_RANK, // of a job that no process of ours watches over: it answers for all
    STOP_RANK,
};

/* What the process is in: the answer says what is finished first. */
enum stop_moment { STOP_AT_START, STOP_IN_STEP, STOP_IN_EVALUATION, STOP_IN_SAVE };

/* Begin to watch. Where this was called before, only the role changes. */
void stop_watch(enum stop_role role);
/* From here on, until the next call. */
void stop_set_moment(enum stop_moment moment, int64_t step);

/* The signal that asked; 0: none did. */
int stop_signal(void);
bool stop_is_wanted(void);
/* "SIGINT"; borrowed. */
const char *stop_signal_name(int signal_number);

/* For commands that leave nothing when they stop: -1 with a sentence once a signal has
 * come. */
MUST_CHECK int stop_check(struct error *err);

#endif
