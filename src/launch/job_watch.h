/*
 * job_watch - all ranks of a job, watched for their ends and for hangs.
 *
 * The launcher has one, and hears of ranks of other hosts from the watchers there. A
 * watcher is a process of its own, trefoil-watch: the first rank of a host that nobody
 * watches starts it before MPI, also under plain mpirun or srun. It holds nothing of that
 * rank, and ends when no rank of the host is left. It reports to the launcher, or without
 * one to the watcher of rank 0's host, whose contact the ranks carry to the others when
 * MPI has started (worker_joined()). Who has nobody to report to judges what it sees.
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
    struct host_watch here;     // the ranks of this host
    struct watch_server others; // those of other hosts
    int n_ranks;
    struct seen_rank *seen;        // (n_ranks)
    int n_seen;                    // that have begun
    double begun_at;               // clock_seconds() when the last of them was seen; 0
    bool *is_culprit;              // (n_ranks)
    struct hang hang;              // as last judged
    int64_t n_steps;               // that were through when last looked
    double step_since;             // clock_seconds() of then; 0: no step yet
    double steps[JOB_WATCH_STEPS]; // seconds of the last ones, a ring
    int64_t n_timed;
    double ended_since; // clock_seconds(); 0: the job was not found to hang
    bool is_ended;      // ranks of other hosts are told to die
};

/* With contact, which is filled, also hear of other hosts. */
MUST_CHECK int job_watch_open(struct job_watch *w, const char *path, int n_ranks,
                              char contact[WATCH_CONTACT_BYTES], struct error *err);
void job_watch_close(struct job_watch *w); // one that was not opened, too

/* Look at all ranks, which are asked to stop after stop_signal (0: none) came. */
void job_watch_look(struct job_watch *w, int stop_signal);
/* Judge what was seen. HANG_NAMED and HANG_ENDS come once for each hang, with `who` filled,
 * for the caller to tell. After HANG_ENDS the job is over: the ranks write their stacks,
 * and a moment later they are killed. */
enum hang_decision job_watch_judge(struct job_watch *w, bool is_stopping, char *who,
                                   size_t size);
void job_watch_log_table(const struct job_watch *w);
/* End the ranks, on all hosts. */
void job_watch_kill(struct job_watch *w);

/* The rank whose failure came first: it said so, crashed, or is gone without a last word;
 * -1: none. */
int job_watch_first_failure(const struct seen_rank *seen, int n_ranks);
/* The first rank that has not said that it ended; -1: none. */
int job_watch_first_unfinished(const struct seen_rank *seen, int n_ranks);

/* In a rank: fork the watcher of this host, if `file`, which is at `path`, has none. The
 * launcher's contact; NULL: there is no launcher. Ranks without a watcher go on. */
void job_watch_start(struct beat_file *file, const char *path, int n_ranks,
                     const char *contact);

#endif
