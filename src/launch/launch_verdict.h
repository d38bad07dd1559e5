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
#include "launch/launch_command.h"
#include "launch/launch_ranks.h"

struct launch_end {
    const struct launch_options *opt; // NULL: not known
    int wait_status;                  // of mpiexec
    pid_t mpiexec;                    // its number
    const char *said;                 // what it printed, NUL-terminated
    int stop_signal;                  // that the launcher was sent first; 0: none
    bool is_stop_repeated;            // so that the launcher killed everything
    bool is_mpiexec_killed;           // by the launcher
    bool is_unbegun;  // the launcher ended the job because ranks did not begin
    const char *hang; // why it ended a job that hung; NULL or "": it did not
};

/* The exit code of the launcher: 0, or 2, 3 or 75 with *err. Stopped is 75 only when the
 * ranks saved: with nothing saved it is a failure of the machine, 3. */
int launch_verdict(const struct launch_ranks *ranks, const struct launch_end *end,
                   struct error *err);

#endif
