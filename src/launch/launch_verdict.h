/*
 * launch_verdict - what became of a job, in one sentence.
 *
 * The truth is in the status files; mpiexec's exit code and words only fill gaps: which
 * rank of another machine died, and by which signal one died that could not say so.
 */
#ifndef LAUNCH_LAUNCH_VERDICT_H
#define LAUNCH_LAUNCH_VERDICT_H

#include "base/base.h"
#include "base/error.h"
#include "launch/launch_ranks.h"

struct launch_end {
    int wait_status;        // of mpiexec
    pid_t mpiexec;          // its number
    const char *said;       // what it printed, NUL-terminated
    int stop_signal;        // that the launcher was sent first; 0: none
    int n_stop_signals;     // how many
    bool is_mpiexec_killed; // by the launcher
};

/* The exit code of the launcher: 0, or 2, 3 or 75 with *err. */
int launch_verdict(const struct launch_ranks *ranks, const struct launch_end *end,
                   struct error *err);

struct launch_death {  // of a rank, by a signal, as mpiexec tells it
    int rank;          // -1: not told (MPICH tells the next two instead)
    int pid;           // -1: not told
    char host[256];    // "": not told
    int signal_number; // -1: not told
};
void launch_verdict_read(const char *said, struct launch_death *death);

#endif
