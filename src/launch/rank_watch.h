/*
 * rank_watch - a rank becomes visible to the watcher of its host.
 *
 * Called by every process of a job before MPI starts, whoever started it. A process that
 * cannot have a slot (no shared memory) goes on without: it is not watched.
 */
#ifndef LAUNCH_RANK_WATCH_H
#define LAUNCH_RANK_WATCH_H

#include "base/base.h"

/* `rank_variable` is the variable of the environment that told `rank`. */
void rank_watch_join(int rank, int n_ranks, const char *rank_variable);
/* MPI has started, and there are so many ranks on this host. */
void rank_watch_joined(int n_local);

#endif
