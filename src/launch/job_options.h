/*
 * job_options - what a user asks of the launcher, and what of it can be refused before
 * anything is started or written.
 */
#ifndef LAUNCH_JOB_OPTIONS_H
#define LAUNCH_JOB_OPTIONS_H

#include "base/base.h"
#include "base/error.h"

#define LAUNCH_RANKS_MOST 100000
#define LAUNCH_RESTARTS_MOST 1000000
#define LAUNCH_HOSTS_BYTES 65536 // of a list of hosts
#define LAUNCH_LOG_DIR "log"     // where workerlog.N go unless the user says otherwise

struct launch_options {      // all strings borrowed; NULL: not given
    int64_t n_ranks;         // 1 to LAUNCH_RANKS_MOST
    const char *hosts;       // "a,b:2": names with the ranks each may hold, 1 if not said
    const char *hostfile;    // a file of hosts in the format of the MPI library
    const char *rsh;         // in place of ssh, with arguments: called as
                             // PROGRAM ARGUMENTS HOST COMMAND
    const char *log_dir;     // NULL: LAUNCH_LOG_DIR; shared by all hosts
    const char *log_dir_key; // the option that would choose another; NULL: --log_dir
    bool is_log_temporary;   // it goes with the job: its files are not named to the user
    bool is_oversubscribed;  // more than RANKS_PER_PROCESSOR are wanted
    bool has_output;         // rank 0's standard output is this process's
    int64_t max_restarts;    // 0 to LAUNCH_RESTARTS_MOST; 0: never
    struct resume_point *resume; // NULL: always the same words, no checkpoints
};

MUST_CHECK int launch_check(const struct launch_options *opt, struct error *err);

/* How many ranks this machine would get; 0: none, or it cannot be told. */
int64_t launch_ranks_here(const struct launch_options *opt);

/* The list with a number for each name, "a:1,b:2", into buf; how many ranks they take, or
 * -1 with *err. */
MUST_CHECK int64_t launch_hosts_spell(char *buf, size_t size, const char *hosts,
                                      struct error *err);
/* The next "NAME:RANKS" of such a list into *name and *n, and behind it; NULL: no more. */
const char *launch_hosts_next(const char *spelled, char name[256], int *n);

/* The number of ranks in a list of local ranks such as "0,1,2,3", or -1 with *err. */
MUST_CHECK int64_t launch_count_devices(const char *devices, struct error *err);

#endif
