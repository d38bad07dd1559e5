/*
 * launch_keeper - ends a job whose launcher is gone.
 *
 * mpiexec and its ranks are told to ignore the signals that are sent to whole jobs, and
 * nobody can be told anything by a launcher that was killed. So a small process of its
 * own, deaf to all signals, holds one end of a pipe: when the launcher's end closes
 * without a word, it kills the processes of the job on this machine and removes what they
 * leave (launch_sweep.h); daemons of other machines end with their mpiexec.
 */
#ifndef LAUNCH_LAUNCH_KEEPER_H
#define LAUNCH_LAUNCH_KEEPER_H

#include "base/base.h"
#include "base/error.h"

#include <sys/types.h>

struct launch_keeper {
    pid_t pid; // -1: none
    int fd;
};

/* Watch over the job with this TREFOIL_JOB, from before its mpiexec starts. */
MUST_CHECK int launch_keeper_open(struct launch_keeper *k, const char *job_id,
                                  struct error *err);
/* The job has ended by itself. */
void launch_keeper_close(struct launch_keeper *k);

#endif
