/*
 * verdict - what became of a job, in one sentence.
 *
 * The truth is what was seen of the ranks; mpiexec's exit code and words only fill gaps:
 * which of two ranks that died in the same moment was the first, and why none began.
 */
#ifndef LAUNCH_VERDICT_H
#define LAUNCH_VERDICT_H

#include "base/base.h"
#include "base/error.h"
#include "launch/host_watch.h"
#include "launch/mpiexec.h"

#include <sys/types.h>

struct job_end {
    const struct launch_options *opt;
    const struct seen_rank *ranks; // (opt->n_ranks) as they were seen last
    const char *log_dir;
    const char *host;       // this machine
    int wait_status;        // of mpiexec
    pid_t mpiexec;          // its number
    const char *said;       // what it printed
    int stop_signal;        // that the launcher was sent first; 0: none
    bool is_stop_repeated;  // so that the launcher killed everything
    bool is_mpiexec_killed; // by the launcher
    bool is_unbegun;        // the launcher ended the job because ranks did not begin
    const char *hang;       // why it ended a job that hung; "": it did not
};

/* The exit code of the launcher: 0, or 2, 3 or 75 with *err. Stopped is 75 only when the
 * ranks saved: with nothing saved it is a failure of the machine, 3. */
int verdict(const struct job_end *end, struct error *err);

#endif
