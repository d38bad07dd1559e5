#include "launch/output_pipe.h"

#include "base/fs.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENV_OUTPUT "TREFOIL_OUTPUT" // the path of the pipe, for rank 0

/* -- the thread ---------------------------------------------------------------------- */

/* Copy what is in the pipe now. After a failure it is read all the same, so that the job
 * is not held up before it has stopped. */
static void copy_some(struct output_pipe *pipe)
{
    char buf[65536];
    ssize_t n = read(pipe->fd, buf, sizeof buf);
    if (n <= 0 || pipe->write_errno)
        return;
    if (fs_write_exact(STDOUT_FILENO, buf, (size_t)n)) {
        pipe->write_errno = errno;
        kill(getpid(), SIGTERM); // which launch_run() takes for a wish to stop
    }
}

static void *copy_all(void *context)
{
    struct output_pipe *pipe = context;
    struct pollfd fds[] = {{.fd = pipe->fd, .events = POLLIN},
                           {.fd = pipe->over, .events = POLLIN}};
    for (;;) {
        if (poll(fds, ARRAY_LEN(fds), -1) < 0)
            continue; // interrupted
        if (fds[0].revents & POLLIN)
            copy_some(pipe);
        else if (fds[1].revents)
            return NULL;
    }
}

/* -- both sides ---------------------------------------------------------------------- */

static void release(struct output_pipe *pipe)
{
    unsetenv(ENV_OUTPUT);
    if (pipe->fd >= 0)
        close(pipe->fd);
    if (pipe->over >= 0)
        close(pipe->over);
    unlink(pipe->path);
}

int output_pipe_open(struct output_pipe *pipe, const char *dir, struct error *err)
{
    *pipe = (struct output_pipe){.fd = -1, .over = -1};
    if (fs_join(pipe->path, sizeof pipe->path, dir, "output", err))
        return -1;
    fflush(stdout);
    if (mkfifo(pipe->path, 0600) == 0 &&
        (pipe->fd = open(pipe->path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) >= 0 &&
        (pipe->over = eventfd(0, EFD_CLOEXEC)) >= 0 &&
        setenv(ENV_OUTPUT, pipe->path, 1) == 0 &&
        (errno = thread_start(&pipe->thread, copy_all, pipe)) == 0)
        return 0;
    error_set(err, ERROR_RUNTIME, "cannot make a pipe '%s' for the results of a job: %s",
              pipe->path, strerror(errno));
    release(pipe);
    return -1;
}

int output_pipe_close(struct output_pipe *pipe, struct error *err)
{
    eventfd_write(pipe->over, 1);
    pthread_join(pipe->thread, NULL);
    release(pipe);
    if (pipe->write_errno == 0)
        return 0;
    return error_set(err, ERROR_RUNTIME, "cannot write to standard output: %s",
                     strerror(pipe->write_errno));
}

int output_pipe_join(struct error *err)
{
    const char *path = getenv(ENV_OUTPUT);
    if (!path)
        return 0;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 || dup2(fd, STDOUT_FILENO) < 0 ? -1 : 0;
    if (rc)
        error_set(err, ERROR_RUNTIME, "cannot print to '%s', the pipe of this job: %s",
                  path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}
