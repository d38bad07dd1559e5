/*
 * launch - start a job of several processes and stay with it to its end.
 *
 * launch_run() starts `mpiexec ... trefoil COMMAND ARGS...`, with the mpiexec of the MPI
 * library this program was built with, and watches the ranks themselves rather than
 * mpiexec, whose exit code does not tell causes and which gives ranks no time to save:
 *
 *   - each rank writes its output to LOG_DIR/workerlog.N and what happens to it to
 *     LOG_DIR/.status.N (worker.h is the rank's side); rank 0's output is also copied to
 *     standard error;
 *   - SIGINT, SIGTERM, SIGHUP and SIGUSR1 are acknowledged and passed to the ranks
 *     (SIGUSR1 as SIGTERM), which save and end with 75; another one, LAUNCH_AGAIN_SECONDS
 *     later or more, kills the job. Whoever sends a signal to all processes of a job
 *     means one stop: mpiexec does not hear it, ranks take any number for one;
 *   - ranks that do not begin within a minute are told of, and the job ends;
 *   - a rank that fails or is killed ends the job within seconds, with one sentence that
 *     names the rank, its host, the step, the reason and its log;
 *   - a rank that freezes, and ranks that wait for each other, are found and named, and
 *     the job ends (launch_watch.h);
 *   - at the end nothing is left: no process of the job on this machine, no shared memory
 *     and no session directory of it, also when the launcher itself is killed
 *     (launch_keeper.h); what a tree killed as a whole leaves, the next job sweeps;
 *   - a job that died of what a restart may mend (a rank or mpiexec was killed, lost, or
 *     failed with ERROR_RUNTIME) is then started again, as often as max_restarts allows,
 *     after pauses that grow (launch_restart.h). What would come again is not retried:
 *     bad input, divergence, a job of which no rank ever began; nor is what a user
 * stopped.
 *
 * Layer: base <- launch <- cli. Threads: called from the main thread of a process that
 * has no other children.
 */
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "base/base.h"
#include "base/error.h"

#define LAUNCH_RANKS_MOST 100000
#define LAUNCH_RESTARTS_MOST 1000000
#define LAUNCH_AGAIN_SECONDS 2.0 // a signal that comes sooner after the first is the same
#define LAUNCH_LOG_DIR "log"     // where workerlog.N go unless the user says otherwise

/* How a job goes on where it was. next() is called before each start, the first one too,
 * when no process of the job lives. It gives the words to start with, borrowed until the
 * next call, and the step of the newest checkpoint that this job has to go on from; -1:
 * none. */
struct launch_resume {
    void *context;
    int (*next)(void *context, char *const **argv, int64_t *step, struct error *err);
};

#define LAUNCH_RANKS_PER_PROCESSOR 4 // of a host; more must be asked for

struct launch_options {      // all strings borrowed; NULL: not given
    int64_t n_ranks;         // 1 to LAUNCH_RANKS_MOST
    const char *hosts;       // "a,b:2": names with the ranks each may hold, 1 if not said
    const char *hostfile;    // a file of hosts in the format of the MPI library
    const char *rsh;         // in place of ssh, with arguments: called as
                             // PROGRAM ARGUMENTS HOST COMMAND
    const char *log_dir;     // NULL: LAUNCH_LOG_DIR; shared by all hosts
    const char *log_dir_key; // the option that would choose another; NULL: --log_dir
    bool is_log_temporary;   // it goes with the job: its files are not named to the user
    bool is_oversubscribed;  // more than LAUNCH_RANKS_PER_PROCESSOR are wanted
    int64_t max_restarts;    // 0 to LAUNCH_RESTARTS_MOST; 0: never
    const struct launch_resume *resume; // NULL: always the same words, no checkpoints
};

/* What a job needs beside a good command: the checks of launch_run() alone, before
 * anything is started or written. */
MUST_CHECK int launch_check(const struct launch_options *opt, struct error *err);

/* How many ranks this machine would get; 0: none, or it cannot be told. */
int64_t launch_ranks_here(const struct launch_options *opt);
/* Whether n_ranks are too many for the processors of this machine. */
bool launch_is_crowded(int64_t n_ranks);

/* Run this very program with the words of `argv` (NULL-terminated; "pretrain", "-c", ...)
 * on all ranks, and wait; opt->resume may change the words. Returns the exit code for
 * this process: 0 when every rank finished; otherwise 2, 3, 4 (it died again and again
 * without a newer checkpoint) or 75, with *err of that kind, for the caller to show once.
 */
MUST_CHECK int launch_run(const struct launch_options *opt, char *const *argv,
                          struct error *err);

/* The number of ranks in a list of local ranks such as "0,1,2,3", or -1 with *err. */
MUST_CHECK int64_t launch_count_devices(const char *devices, struct error *err);

#endif
