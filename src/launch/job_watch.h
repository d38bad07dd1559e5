/*
 * job_watch - all ranks of a job, watched for hangs.
 *
 * The launcher has one; where there is no launcher, the watcher of rank 0's host has it
 * (watcher.h). It looks at the ranks of this host itself, and hears of those of other
 * hosts from the watchers there.
 */
#ifndef LAUNCH_JOB_WATCH_H
#define LAUNCH_JOB_WATCH_H

#include "base/base.h"
#include "base/error.h"
#include "launch/hang.h"
#include "launch/host_watch.h"
#include "launch/watch_link.h"

#define JOB_WATCH_STEPS 32 // whose median counts

struct job_watch {
    struct host_watch here;        // the ranks of this host
    struct watch_server others;    // those of other hosts
    struct seen_rank *seen;        // (n_ranks)
    bool *is_culprit;              // (n_ranks)
    struct hang hang;              // as last judged
    int64_t n_steps;               // that were through when last looked
    double step_since;             // clock_seconds() of then; 0: no step yet
    double steps[JOB_WATCH_STEPS]; // seconds of the last ones, a ring
    int64_t n_timed;
    double ended_since; // clock_seconds(); 0: the job was not found to hang
    bool is_killed;
};

MUST_CHECK int job_watch_open(struct job_watch *w, const char *path, int n_ranks,
                              struct error *err);
/* Also hear of other hosts. */
MUST_CHECK int job_watch_listen(struct job_watch *w, struct error *err);
void job_watch_close(struct job_watch *w); // one that was not opened, too

/* Look and judge. HANG_NAMED and HANG_ENDS come once for each hang, for the caller to
 * tell; after HANG_ENDS the job is over: the ranks write their stacks, to log_dir or to
 * their standard error, and a moment later they are killed. */
enum hang_decision job_watch_tick(struct job_watch *w, bool is_stopping,
                                  const char *log_dir);

/* What was found, for the terminal: how long, and the table; malloc'ed, NULL: no memory.
 */
char *job_watch_table(const struct job_watch *w);
/* Who holds the job up, in one sentence. */
void job_watch_sentence(const struct job_watch *w, char *buf, size_t size);

#endif
