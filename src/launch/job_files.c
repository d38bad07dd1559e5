#include "launch/job_files.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/log_view.h"
#include "base/process.h"

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
#define LINE_BYTES 4096 // that mpiexec_listen() has at most

static const struct timespec nap = {.tv_nsec = 20000000};

static void remove_tree(const char *path)
{
    struct error ignored;
    int unused = fs_remove_tree(path, &ignored);
    (void)unused; // the next job tries again
}

/* What of `dir` begins with `prefix` and passes the test is removed. */
static void remove_all(const char *dir, const char *prefix,
                       bool (*is_ours)(const char *path, const char *rest))
{
    struct fs_names list;
    struct error ignored;
    char path[PATH_MAX];
    size_t n = strlen(prefix);
    if (fs_list(dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++)
        if (strncmp(list.names[i], prefix, n) == 0 &&
            !fs_join(path, sizeof path, dir, list.names[i], &ignored) &&
            is_ours(path, list.names[i] + n))
            remove_tree(path);
    fs_names_release(&list);
}

/* -- the directory of the job -------------------------------------------------------- */

/* Remove a directory of this user that nobody holds, before the lock is given back: a job
 * that has just made it waits for the lock, and then sees that it is gone. */
static bool remove_dead(const char *path, const char *rest)
{
    struct stat info;
    (void)rest;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_free = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
                   flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_free)
        remove_tree(path);
    if (fd >= 0)
        close(fd);
    return false; // nothing is left to do
}

void job_files_become_background(const char *name, int kept_fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, name);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(kept_fd, 3);
    close_range(kept_fd >= 0 ? 4 : 3, ~0U, 0);
}

/* The ranks of a launcher that is gone die with its mpiexec, by the kernel's hand; what
 * they leave is removed then. */
_Noreturn static void keep(int fd, const char *path)
{
    char word;
    job_files_become_background("trefoil-keeper", fd);
    while (read(3, &word, 1) < 0 && errno == EINTR)
        continue;
    for (int i = 0; i < 100 && fs_is_directory(path); i++) {
        remove_tree(path);
        nanosleep(&nap, NULL);
    }
    _exit(0);
}

static int start_keeper(struct job_files *f, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return error_set(err, ERROR_RUNTIME, "cannot start a job: %s", strerror(errno));
    f->keeper = fork();
    int why = errno;
    if (f->keeper == 0) {
        close(ends[1]);
        keep(ends[0], f->dir);
    }
    close(ends[0]);
    f->keeper_fd = ends[1];
    if (f->keeper > 0)
        return 0;
    close(f->keeper_fd);
    return process_fork_failed(err, "the processes of a job", why);
}

/* A directory with a lock. Another job that begins may remove it before it has the lock,
 * since it looks dead then: -1 with ENOENT. */
static int make_dir(struct job_files *f, const char *prefix)
{
    snprintf(f->dir, sizeof f->dir, "%s/%s%d-XXXXXX", beat_directory(), prefix,
             (int)getpid());
    if (!mkdtemp(f->dir))
        return -1;
    f->dir_fd = open(f->dir, O_RDONLY | O_CLOEXEC);
    if (f->dir_fd >= 0 && flock(f->dir_fd, LOCK_EX) == 0 && access(f->dir, W_OK) == 0)
        return 0;
    int reason = errno;
    if (f->dir_fd >= 0)
        close(f->dir_fd);
    f->dir_fd = -1;
    errno = reason;
    return -1;
}

static int open_dir(struct job_files *f, struct error *err)
{
    enum { MOST_TRIES = 100 };
    char prefix[64];
    int rc = -1;
    snprintf(prefix, sizeof prefix, NAME "%u-", (unsigned)geteuid());
    remove_all(beat_directory(), prefix, remove_dead);
    errno = ENOENT;
    for (int i = 0; i < MOST_TRIES && rc && errno == ENOENT; i++)
        rc = make_dir(f, prefix);
    if (rc == 0)
        return start_keeper(f, err);
    return error_set(err, ERROR_RUNTIME,
                     "cannot make the directory '%s' for a job: %s; set TMPDIR to one "
                     "that can be written",
                     f->dir, strerror(errno));
}

/* Children of those that die become ours, until there is none. */
void job_files_kill_processes(const struct job_files *f, pid_t spared)
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
            if (pid == f->keeper || pid == spared)
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

/* -- the log directory --------------------------------------------------------------- */

void job_files_log_path(char *buf, size_t size, const char *log_dir, int rank)
{
    snprintf(buf, size, "%s/workerlog.%d", log_dir, rank);
}

static bool is_log(const char *path, const char *rest) // not what a user has renamed
{
    (void)path;
    return !rest[strspn(rest, "0123456789")];
}

/* As much as the logs of a job's start take: a disk without room for a line of log is
 * found here, where it can still be told. */
static int probe_space(const char *dir, struct error *err)
{
    static const char zeros[16384];
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/.write-probe-%d", dir, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool failed = fd < 0 || fs_write_exact(fd, zeros, sizeof zeros) || fsync(fd);
    int why = failed ? errno : 0;
    if (fd >= 0) { // a full quota or a network file system may report it now
        if (close(fd) && !failed)
            why = errno;
        unlink(path);
    }
    if (why == 0)
        return 0;
    return error_set(err, ERROR_RUNTIME, "cannot write to log directory '%s': %s; %s",
                     dir, strerror(why),
                     why == EFBIG ? "raise the limit on files (ulimit -f)"
                                  : "free some room, or choose another place");
}

static int open_log_dir(struct job_files *f, const struct launch_options *opt,
                        struct error *err)
{
    const char *dir = opt->is_log_temporary ? f->dir
                      : opt->log_dir        ? opt->log_dir
                                            : LAUNCH_LOG_DIR;
    if (fs_make_directories(dir, err))
        return -1;
    if (!realpath(dir, f->log_dir) || strlen(f->log_dir) > PATH_MAX - 64)
        return error_set(err, ERROR_RUNTIME, "cannot use log directory '%s': %s", dir,
                         strerror(errno ? errno : ENAMETOOLONG));
    if (opt->is_log_temporary)
        return 0;
    f->log_lock = open(f->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->log_lock < 0 || access(f->log_dir, W_OK))
        return error_set(err, ERROR_RUNTIME, "cannot write to log directory '%s': %s",
                         dir, strerror(errno));
    if (flock(f->log_lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(err, ERROR_RUNTIME,
                         "'%s' is in use: another job writes its logs there; wait until "
                         "it has ended, or choose another with %s",
                         dir, opt->log_dir_key ? opt->log_dir_key : "--log_dir");
    remove_all(f->log_dir, "workerlog.", is_log);
    return probe_space(f->log_dir, err);
}

int job_files_open(struct job_files *f, const struct launch_options *opt,
                   struct error *err)
{
    *f = (struct job_files){.dir_fd = -1, .keeper = -1, .keeper_fd = -1, .log_lock = -1};
    return open_dir(f, err) || open_log_dir(f, opt, err) ? -1 : 0;
}

void job_files_close(struct job_files *f)
{
    log_status_clear();
    if (f->dir_fd >= 0) {
        remove_tree(f->dir);
        close(f->dir_fd);
    }
    if (f->keeper > 0) {
        kill(f->keeper, SIGKILL); // it may be stopped, and nothing is left to remove
        waitpid(f->keeper, NULL, 0);
        close(f->keeper_fd);
    }
    if (f->log_lock >= 0)
        close(f->log_lock);
}

/* -- rank 0 on the terminal ---------------------------------------------------------- */

void job_files_show_line(struct job_files *f, const char *line)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    char shown[LINE_BYTES + LOG_VIEW_MORE_BYTES];
    log_status_clear();
    f->n_shown = 0; // lines push the progress out of the way: it is shown again
    int unused =
        fs_write_exact(STDERR_FILENO, shown,
                       log_view_line(&view, line, strnlen(line, LINE_BYTES), shown));
    (void)unused; // a terminal that is gone does not end the job
}

void job_files_show_progress(struct job_files *f, const struct beat_file *file)
{
    unsigned n_shown = atomic_load(&file->n_shown);
    if (n_shown % 2 == 0 && n_shown != f->n_shown)
        log_status("%.*s", BEAT_PROGRESS_BYTES - 1, file->progress);
    f->n_shown = n_shown;
}
