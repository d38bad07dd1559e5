#include "launch/job_dir.h"

#include "base/beat.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME "trefoil-" // then user, process, letters

static const struct timespec nap = {.tv_nsec = 20000000};

static void remove_tree(const char *path)
{
    struct error ignored;
    int unused = fs_remove_tree(path, &ignored);
    (void)unused; // the next job tries again
}

/* Whether `path` is a directory of this user that nobody holds. */
static bool is_dead(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_free = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
                   flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

static void sweep_dead(void)
{
    struct fs_names list;
    struct error ignored;
    char path[PATH_MAX], prefix[64];
    snprintf(prefix, sizeof prefix, NAME "%u-", (unsigned)geteuid());
    if (fs_list(beat_directory(), &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++)
        if (strncmp(list.names[i], prefix, strlen(prefix)) == 0 &&
            !fs_join(path, sizeof path, beat_directory(), list.names[i], &ignored) &&
            is_dead(path))
            remove_tree(path);
    fs_names_release(&list);
}

/* -- the keeper ---------------------------------------------------------------------- */

/* The ranks of a launcher that is gone die with its mpiexec, by the kernel's hand; what
 * they leave is removed then. Nothing of the launcher's stays open here, least of all a
 * pipe that somebody reads to its end. */
_Noreturn static void keep(int fd, const char *path)
{
    sigset_t all;
    char word;
    ssize_t n;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "trefoil-keeper");
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(fd, 3);
    close_range(4, ~0U, 0);
    while ((n = read(3, &word, 1)) < 0 && errno == EINTR)
        continue;
    for (int i = 0; n == 0 && i < 100 && fs_is_directory(path); i++) {
        remove_tree(path);
        nanosleep(&nap, NULL);
    }
    _exit(0);
}

static int start_keeper(struct job_dir *dir)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    dir->keeper = fork();
    if (dir->keeper == 0) {
        close(ends[1]);
        keep(ends[0], dir->path);
    }
    close(ends[0]);
    dir->keeper_fd = ends[1];
    return dir->keeper > 0 ? 0 : -1;
}

/* -- open and close ------------------------------------------------------------------ */

int job_dir_open(struct job_dir *dir, struct error *err)
{
    *dir = (struct job_dir){.fd = -1, .keeper = -1, .keeper_fd = -1};
    sweep_dead();
    snprintf(dir->path, sizeof dir->path, "%s/" NAME "%u-%d-XXXXXX", beat_directory(),
             (unsigned)geteuid(), (int)getpid());
    if (mkdtemp(dir->path) && (dir->fd = open(dir->path, O_RDONLY | O_CLOEXEC)) >= 0 &&
        flock(dir->fd, LOCK_EX) == 0 && access(dir->path, W_OK) == 0 &&
        start_keeper(dir) == 0)
        return 0;
    error_set(
        err, ERROR_RUNTIME,
        "cannot make the directory '%s' for a job: %s; set TMPDIR to one that can be "
        "written",
        dir->path, strerror(errno));
    job_dir_close(dir);
    return -1;
}

void job_dir_close(struct job_dir *dir)
{
    if (dir->fd >= 0) {
        remove_tree(dir->path);
        close(dir->fd);
    }
    if (dir->keeper > 0) {
        ssize_t unused = write(dir->keeper_fd, "x", 1);
        (void)unused; // one that was killed reads nothing
        close(dir->keeper_fd);
        waitpid(dir->keeper, NULL, 0);
    }
    *dir = (struct job_dir){.fd = -1, .keeper = -1, .keeper_fd = -1};
}

/* -- processes ----------------------------------------------------------------------- */

/* Children of those that die become ours, until there is none. */
void job_dir_kill_processes(const struct job_dir *dir)
{
    for (int i = 0, n_left = 1; i < 100 && n_left > 0; i++) {
        char path[64], *text;
        size_t n;
        struct error ignored;
        n_left = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)gettid());
        if (fs_read_all(path, 1 << 20, &text, &n, &ignored))
            return;
        char *rest, *word = strtok_r(text, " \n", &rest);
        for (; word; word = strtok_r(NULL, " \n", &rest)) {
            pid_t pid = atoi(word);
            if (pid == dir->keeper)
                continue;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, WNOHANG);
            n_left++;
        }
        free(text);
        if (n_left > 0)
            nanosleep(&nap, NULL);
    }
}
