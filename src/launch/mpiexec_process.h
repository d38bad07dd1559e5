/*
 * mpiexec_process - finding, starting and hearing mpiexec.
 */
#ifndef LAUNCH_MPIEXEC_PROCESS_H
#define LAUNCH_MPIEXEC_PROCESS_H

#include "base/base.h"
#include "base/error.h"
#include "launch/launch_command.h"

#include <sys/types.h>

struct mpiexec_process {
    pid_t pid;
    int pidfd;
    int output; // its standard output and error; non-blocking
    char said[8192];
    size_t n_said;
    bool is_heard;   // what it says now is not kept any more
    char line[4096]; // that has begun
    size_t n_line;
    /* Takes a line that is not mpiexec's own but a rank's; false: it is not. */
    bool (*take_line)(void *context, const char *line);
    void *context;
};

/* The path of the mpiexec that belongs to the MPI library of this program. */
MUST_CHECK int mpiexec_find(const struct launch_dialect *dialect, char *path, size_t size,
                            struct error *err);

/* `name` as execvp() would find it; false: nowhere. */
bool mpiexec_find_program(const char *name, char *path, size_t size);

/* Start it in a session of its own, so that Ctrl-C passes it by, with `environment`
 * ("NAME=value", NULL-terminated) replacing what has the same names. */
MUST_CHECK int mpiexec_open(struct mpiexec_process *m,
                            const struct launch_dialect *dialect,
                            const struct launch_command *cmd,
                            const char *const *environment, struct error *err);
/* Take what it has printed: lines of ranks go to take_line, if there is one; of the rest
 * the first 8 KiB are kept. */
void mpiexec_listen(struct mpiexec_process *m);
/* Its end must have been waited for. */
void mpiexec_close(struct mpiexec_process *m);

#endif
