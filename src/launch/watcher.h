/*
 * watcher - a process of its own, trefoil-watch, that watches the ranks of one host.
 *
 * The first rank of a host whose shared memory nobody watches starts it, before MPI: on
 * hosts that are not the launcher's, and on all of them under plain mpirun or srun. It
 * holds nothing of the rank that started it, neither files nor pipes, and ends when no
 * rank of the host is left.
 *
 * Under the launcher it reports there. Without one, the watcher of rank 0's host is the
 * main one: the ranks carry its contact to the others when MPI has started
 * (worker_joined()). A watcher that has nobody to report to judges what it sees.
 */
#ifndef LAUNCH_WATCHER_H
#define LAUNCH_WATCHER_H

#include "base/base.h"
#include "base/beat.h"

struct watcher_options {
    const char *path;    // of the shared memory
    int n_ranks;         // of the job
    bool has_launcher;   // that ends the job; else ranks that can do, with its exit code
    const char *contact; // of the main watcher; NULL or "": not known yet
};

/* Fork it, if `file` has none. Ranks without a watcher go on. */
void watcher_start(struct beat_file *file, const struct watcher_options *opt);

#endif
