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
/* Without a launcher the watchers of several hosts learn from their ranks, once MPI has
 * started, where the main one is: what rank 0 gives, all take. Empty: there is none. */
#define RANK_WATCH_CONTACT_BYTES 256
void rank_watch_contact(char contact[RANK_WATCH_CONTACT_BYTES]);
/* For one rank of each host. */
void rank_watch_use_contact(const char contact[RANK_WATCH_CONTACT_BYTES]);
/* MPI has started, so that all ranks have joined. */
void rank_watch_joined(void);

#endif
