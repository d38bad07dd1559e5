#include "launch/launch_keeper.h"

#include "base/beat.h"
#include "launch/launch_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing of the launcher's stays open here, least of all a pipe that somebody reads to
 * its end. */
static void leave_files(int fd)
{
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(fd, 3);
    close_range(4, ~0U, 0);
}

_Noreturn static void keep(int fd, const char *job_id)
{
    sigset_t all;
    char word;
    ssize_t n;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "trefoil-keeper");
    leave_files(fd);
    while ((n = read(3, &word, 1)) < 0 && errno == EINTR)
        continue;
    if (n == 0) {
        char path[PATH_MAX];
        launch_sweep_processes(job_id);
        beat_path(path, sizeof path, job_id);
        unlink(path);
        launch_sweep_dead();
    }
    _exit(0);
}

int launch_keeper_open(struct launch_keeper *k, const char *job_id, struct error *err)
{
    int ends[2];
    *k = (struct launch_keeper){.pid = -1, .fd = -1};
    if (pipe2(ends, O_CLOEXEC))
        return error_set(err, ERROR_RUNTIME, "cannot make a pipe for a job: %s",
                         strerror(errno));
    k->pid = fork();
    if (k->pid == 0) {
        close(ends[1]);
        keep(ends[0], job_id);
    }
    int why = errno;
    close(ends[0]);
    k->fd = ends[1];
    if (k->pid > 0)
        return 0;
    close(k->fd);
    k->fd = -1;
    return error_set(err, ERROR_RUNTIME, "cannot start a process for a job: %s",
                     strerror(why));
}

void launch_keeper_close(struct launch_keeper *k)
{
    if (k->pid <= 0)
        return;
    ssize_t unused = write(k->fd, "x", 1);
    (void)unused; // one that was killed reads nothing
    close(k->fd);
    waitpid(k->pid, NULL, 0);
    *k = (struct launch_keeper){.pid = -1, .fd = -1};
}
