/*
 * mpiexec - the mpiexec of the MPI library this program was built with: what a user may
 * ask of it, its dialect, command line and process, and its words, which only fill gaps.
 */
#ifndef LAUNCH_MPIEXEC_H
#define LAUNCH_MPIEXEC_H

#include "base/base.h"
#include "base/error.h"

#include <sys/types.h>

/* -- what is asked for --------------------------------------------------------------- */

#define LAUNCH_RANKS_MOST 100000
#define LAUNCH_RESTARTS_MOST 1000000
#define LAUNCH_HOSTS_BYTES 65536 // of a list of hosts
#define LAUNCH_LOG_DIR "log"     // where workerlog.N go unless the user says otherwise

/* What a launcher sees of its job and the ranks cannot tell: that it makes no progress, or
 * has failed. */
struct launch_news {
    bool is_stall;    // else a failure
    bool is_diverged; // a failure of the training itself
    int rank;         // the first concerned; -1: not known
    int64_t step;     // that it was in; -1: none
    const char *text; // in one sentence
};

struct launch_options {      // all strings borrowed; NULL: not given
    int64_t n_ranks;         // 1 to LAUNCH_RANKS_MOST
    const char *hosts;       // "a,b:2": names with the ranks each may hold, 1 if not said
    const char *hostfile;    // a file of hosts in the format of the MPI library
    const char *devices;     // "1,3": the GPUs of this machine, one for each rank
    const char *rsh;         // in place of ssh: called as PROGRAM ARGUMENTS HOST COMMAND
    const char *log_dir;     // NULL: LAUNCH_LOG_DIR; shared by all hosts
    const char *log_dir_key; // the option that would choose another; NULL: --log_dir
    bool is_log_temporary;   // it goes with the job: its files are not named to the user
    bool is_oversubscribed;  // more than RANKS_PER_PROCESSOR are wanted
    bool has_output;         // rank 0's standard output is this process's
    int64_t max_restarts;    // 0 to LAUNCH_RESTARTS_MOST; 0: never
    struct resume_point *resume; // NULL: always the same words, no checkpoints
    /* Told of news, and called with NULL ten times a second in between; must not wait. The
     * process that it has started and that is not the job's; 0: none. May be NULL. */
    pid_t (*tell)(void *context, const struct launch_news *news);
    void *tell_context;
};

/* What can be refused before anything is started or written. */
MUST_CHECK int launch_check(const struct launch_options *opt, struct error *err);
/* How many ranks this machine would get; 0: none, or it cannot be told. */
int64_t launch_ranks_here(const struct launch_options *opt);
/* The list with a number for each name, "a:1,b:2", into buf; how many ranks they take, or
 * -1 with *err. */
MUST_CHECK int64_t launch_hosts_spell(char *buf, size_t size, const char *hosts,
                                      struct error *err);
/* The next "NAME:RANKS" of such a list into *name and *n, and behind it; NULL: no more. */
const char *launch_hosts_next(const char *spelled, char name[256], int *n);

/* -- the dialect --------------------------------------------------------------------- */

struct mpiexec_dialect { // what the two families differ in; words are split at spaces
    const char *name, *package; // "Open MPI", and what holds its mpiexec in Debian
    const char *names[2];       // of its mpiexec, in order of trust
    const char *always, *one_host, *as_root; // words of every job, of one without hosts,
    const char *hosts, *hostfile, *rsh;      // and before these; NULL: none
    const char *rsh_arguments; // variable that takes them; NULL: they follow the program
    const char *exported;      // the variables that ranks get; NULL: they get all
    const char *daemon; // its name and option, so that it can be made deaf on other hosts
    int deaf_to[5];     // signals that mpiexec does not hear, ended by 0
};
extern const struct mpiexec_dialect mpiexec_openmpi, mpiexec_mpich;
const struct mpiexec_dialect *mpiexec_dialect(void);

/* In a child that is to become mpiexec, or its daemon. Async-signal-safe. */
void mpiexec_make_deaf(const struct mpiexec_dialect *dialect);
/* The words after the program by which it becomes a daemon that is deaf. */
#define MPIEXEC_DAEMON_WORDS "launch daemon"

/* -- the command line, never through a shell ----------------------------------------- */

struct mpiexec_command {
    char **words; // NULL-terminated; release with mpiexec_command_release()
    int n_words;
    bool is_cut; // out of memory
};

/* `mpiexec` and `program` are paths, `argv` the NULL-terminated words after the program.
 * The options have passed launch_check(). */
MUST_CHECK int mpiexec_command_build(struct mpiexec_command *cmd,
                                     const struct mpiexec_dialect *dialect,
                                     const char *mpiexec, const char *program,
                                     const struct launch_options *opt, bool is_root,
                                     char *const *argv, struct error *err);
void mpiexec_command_release(struct mpiexec_command *cmd);
/* The path of the mpiexec. */
MUST_CHECK int mpiexec_find(const struct mpiexec_dialect *dialect, char *path,
                            size_t size, struct error *err);

/* -- the process --------------------------------------------------------------------- */

struct mpiexec_process {
    pid_t pid; // -1: none
    int pidfd;
    int output;  // its standard error, and output unless has_results; non-blocking
    int results; // its standard output, which is rank 0's; -1: it has none
    char said[8192];
    size_t n_said;
    bool is_heard;   // what it says now is not kept any more
    char line[4096]; // that has begun
    size_t n_line;
};

/* Start it in a session of its own, so that Ctrl-C passes it by. */
MUST_CHECK int mpiexec_open(struct mpiexec_process *m,
                            const struct mpiexec_dialect *dialect,
                            const struct mpiexec_command *cmd, bool has_results,
                            struct error *err);
/* Take some of what it has printed: lines behind `mark` are a rank's and go to `take`, of
 * the rest the first 8 KiB are kept. Returns whether there may be more. */
bool mpiexec_listen(struct mpiexec_process *m, const char *mark,
                    void (*take)(void *context, const char *line), void *context);
/* Its end must have been waited for. */
void mpiexec_close(struct mpiexec_process *m);

/* The rank whose death it tells of and the signal, or else (MPICH) the process and its
 * host; -1, 0 and "": not told. */
void mpiexec_told_death(const char *said, int *rank, int *pid, char host[256],
                        int *signal_number);
/* Its sentences on one line, without frames, standard phrases and repetitions, cut at
 * size. */
void mpiexec_condense(const char *said, char *text, size_t size);

#endif
