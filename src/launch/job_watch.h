/*
 * job_watch - all ranks of a job, watched for their ends and for hangs.
 *
 * The launcher has one, and hears of ranks of other hosts from the watchers there. A
 * watcher is a process of its own, trefoil-watch: the first rank of a host that nobody
 * watches starts it before MPI, also under plain mpirun or srun. It holds nothing of that
 * rank, and ends when no rank of the host is left. It reports to the launcher; without one
 * it judges what it sees, which is its own host.
 *
 * Reports are datagrams, never through the ranks, twice a second, and at once when a rank
 * has said its last word. A job runs one program, so what is sent is its own structs; who
 * does not know the token of the job is not heard. The answer is what the job is to do.
 * Both sides repeat themselves, so that nothing depends on a single datagram. A host that
 * is silent is out of reach; it may come back. Nothing here waits.
 */
#ifndef LAUNCH_JOB_WATCH_H
#define LAUNCH_JOB_WATCH_H

#include "base/base.h"
#include "base/error.h"
#include "launch/host_watch.h"

#define WATCH_CONTACT_BYTES 256 // "TOKEN PORT ADDRESS ADDRESS ...": where to report
#define WATCH_TOKEN_BYTES 33

/* -- what watchers tell the launcher ------------------------------------------------- */

enum watch_order { // the greatest one counts
    WATCH_ON,
    WATCH_PAUSE, // stop the ranks until there is another order
    WATCH_STOP,  // save and end
    WATCH_END,   // die
};

struct reported_rank {
    char *host;   // NULL: no report of it yet
    char *reason; // NULL: none
    struct seen_rank seen;
    double at; // clock_seconds()
};

struct watch_server { // of the launcher
    int fd;           // -1: it does not listen
    char token[WATCH_TOKEN_BYTES];
    int n_ranks;
    struct reported_rank *ranks; // (n_ranks) the last report of each
    double hang_timeout;         // they told; 0: none
};

/* `contact` is what a host must know to report here. */
MUST_CHECK int watch_server_open(struct watch_server *s, int n_ranks,
                                 char contact[WATCH_CONTACT_BYTES], struct error *err);
void watch_server_close(struct watch_server *s); // one that was not opened, too
/* Take what has come, answer with `order`, and fill seen[r] for ranks of other hosts.
 * Returns whether there are any. */
bool watch_server_serve(struct watch_server *s, enum watch_order order,
                        struct seen_rank *seen);

struct watch_reporter {                // of a watcher of another host
    char contact[WATCH_CONTACT_BYTES]; // "": nobody to report to
    int fd;                            // -1: not open
    bool is_paused;                    // by the last answer
    bool is_answered;                  // the address that answered is the only one now
    double reported, heard;            // clock_seconds()
};

void watch_reporter_init(struct watch_reporter *r, const char *contact);
/* Report what is seen of the ranks of this host, if it is time or there is news; what the
 * launcher wants. */
enum watch_order watch_reporter_tick(struct watch_reporter *r,
                                     const struct seen_rank *seen, int n_ranks,
                                     double hang_timeout, bool has_news);

/* -- all ranks ----------------------------------------------------------------------- */

struct job_watch {
    struct host_watch here;     // the ranks of this host
    struct watch_server others; // those of other hosts
    int n_ranks;
    struct seen_rank *seen; // (n_ranks)
    int n_seen;             // that have begun
    double begun_at;        // clock_seconds() when the last of them was seen; 0
    bool *is_culprit;       // (n_ranks)
    struct hang hang;       // as last judged
    int64_t n_steps;        // that were through when last looked
    double step_since;      // clock_seconds() of then; 0: no step yet
    double median_step;     // seconds; 0: not known
    double ended_since;     // clock_seconds(); 0: the job was not found to hang
    double paused_at;       // clock_seconds(), of the last pause
    bool has_others;        // ranks of other hosts have been heard of
    bool is_ended;          // ranks of other hosts are told to die
};

/* With contact, which is filled, also hear of other hosts. */
MUST_CHECK int job_watch_open(struct job_watch *w, const char *path, int n_ranks,
                              char contact[WATCH_CONTACT_BYTES], struct error *err);
void job_watch_close(struct job_watch *w); // one that was not opened, too

/* Look at all ranks, which are asked to stop after stop_signal (0: none) came. */
void job_watch_look(struct job_watch *w, int stop_signal);
/* Judge what was seen. HANG_NAMED and HANG_ENDS come once for each hang, with `who` filled,
 * for the caller to tell. After HANG_ENDS the job is over: the ranks write their stacks, and a
 * moment later they are killed. */
enum hang_decision job_watch_judge(struct job_watch *w, bool is_stopping, char *who,
                                   size_t size);
void job_watch_log_table(const struct job_watch *w);
/* Stop all ranks until they are continued, as job control does with one process. Returns
 * when ranks that start have begun and other hosts have had time to ask, or too long. */
void job_watch_pause(struct job_watch *w);
void job_watch_continue(struct job_watch *w);
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
