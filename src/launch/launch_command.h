/*
 * launch_command - the command line of mpiexec, in its dialect.
 *
 * Pure: options in, words out. The words go to execv(), never through a shell.
 */
#ifndef LAUNCH_LAUNCH_COMMAND_H
#define LAUNCH_LAUNCH_COMMAND_H

#include "launch/launch.h"

/* What the two families of mpiexec differ in. */
struct launch_dialect {
    const char *name;         // "Open MPI"
    const char *package;      // that holds its mpiexec in Debian
    const char *const *names; // of its mpiexec, NULL-terminated, in order of trust
    const char *n_ranks;      // the options' names
    const char *hosts, *hostfile;
    const char *const *rsh;    // words before the program, NULL-terminated
    const char *rsh_arguments; // variable that takes them; NULL: they follow the program
    const char *const *always; // words of every job
    const char *const *one_host;
    const char *as_root;                        // NULL: needs none
    const char *rank, *local_rank, *local_size; // environment variables of a rank
    const char *export_option;    // before the name of a variable; NULL: exports all
    const int *deaf_to;           // signals that mpiexec does not hear, 0-terminated
    const char *daemon_parameter; // names the program that starts its daemon on another
    const char *daemon;           // host, so that this one is as deaf; NULL: need not be
    int stop_signal;              // that mpiexec passes on to ranks that then have time
    bool kills_job;               // ends the other ranks of one host when one dies
};

/* The dialect of the MPI library this program was built with. */
const struct launch_dialect *launch_dialect(void);
extern const struct launch_dialect launch_dialect_openmpi, launch_dialect_mpich;

/* In a child that is to become mpiexec, or its daemon. Async-signal-safe. */
void launch_make_deaf(const struct launch_dialect *dialect);
/* The words after the program by which it becomes a daemon that is deaf. */
#define LAUNCH_DAEMON_WORDS "launch daemon"

/* The environment variables the launcher sets for its ranks. */
#define LAUNCH_ENV_LOG_DIR "TREFOIL_LOG_DIR" // absolute
#define LAUNCH_ENV_WATCH "TREFOIL_WATCH"     // where other hosts report, or empty
#define LAUNCH_ENV_JOB "TREFOIL_JOB"         // tells this job's processes from all others
#define LAUNCH_ENV_OVERSUBSCRIBE "TREFOIL_OVERSUBSCRIBE" // "1": a host may be crowded

struct launch_command {
    char **words; // NULL-terminated; release with launch_command_release()
    int n_words;
    int n_allocated;
};

/* `mpiexec` and `program` are paths, `argv` the NULL-terminated words after the program.
 * The options have passed launch_check(). */
MUST_CHECK int launch_command_build(struct launch_command *cmd,
                                    const struct launch_dialect *dialect,
                                    const char *mpiexec, const char *program,
                                    const struct launch_options *opt, bool is_root,
                                    char *const *argv, struct error *err);
void launch_command_release(struct launch_command *cmd);

/* Check a list "a,b:2" and write it with every number said, "a:1,b:2", into buf. Returns
 * the sum of the numbers, or -1 with *err. */
MUST_CHECK int64_t launch_hosts_spell(char *buf, size_t size, const char *hosts,
                                      struct error *err);

#endif
