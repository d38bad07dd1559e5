/* thread - a thread beside the one that runs the program, and processors for threads. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/base.h"

#include <pthread.h>
#include <sched.h>

/* As pthread_create(), but the thread gets no signals: those are for the thread that runs
 * the program. 0, or the number of an error. */
MUST_CHECK int thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/* Whether n more threads can run at once: 0, or the number of an error. They are started
 * and end again. */
MUST_CHECK int thread_check(int n);

/* Threads for a parallel region that may be the first one: OpenMP's number, or 1 where
 * they cannot be started (ulimit -u) or there are no addresses for their stacks
 * (ulimit -v), because OpenMP ends the process when it cannot start a thread. */
int thread_team_size(void);

/* The processors that this process may run on. */
int thread_processors(void);
/* The same as a set: those of all threads of a parallel region. */
cpu_set_t thread_processor_set(void);
/* Whether n_ranks are too many for those: more than RANKS_PER_PROCESSOR for each must be
 * asked for. */
bool thread_is_crowded(int64_t n_ranks);
#define RANKS_PER_PROCESSOR 4

#endif
