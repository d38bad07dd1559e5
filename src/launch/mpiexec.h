/*
 * mpiexec - the mpiexec of the MPI library this program was built with: its dialect, its
 * command line, its process, and its words, which only fill gaps.
 */
#ifndef LAUNCH_MPIEXEC_H
#define LAUNCH_MPIEXEC_H

#include "base/base.h"
#include "base/error.h"
#include "launch/job_options.h"

#include <sys/types.h>

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

/* `name` as execvp() would find it; false: nowhere. */
bool mpiexec_find_program(const char *name, char *path, size_t size);
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
/* Take what it has printed: lines behind `mark` are a rank's and go to `take`, of the rest
 * the first 8 KiB are kept. */
void mpiexec_listen(struct mpiexec_process *m, const char *mark,
                    void (*take)(void *context, const char *line), void *context);
/* Its end must have been waited for. */
void mpiexec_close(struct mpiexec_process *m);

/* -- its words ----------------------------------------------------------------------- */

/* The rank whose death it tells of and the signal, or else (MPICH) the process and its
 * host; -1, 0 and "": not told. */
void mpiexec_told_death(const char *said, int *rank, int *pid, char host[256],
                        int *signal_number);
/* Its sentences on one line, without frames and repetitions, cut at size. */
void mpiexec_condense(const char *said, char *text, size_t size);

#endif
