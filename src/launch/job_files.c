#include "launch/job_files.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/log_view.h"

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
#define COPY_BYTES ((size_t)16384)

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

/* A directory of this user that nobody holds. */
static bool is_dead(const char *path, const char *rest)
{
    struct stat info;
    (void)rest;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_free = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
                   flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
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
    ssize_t n;
    job_files_become_background("trefoil-keeper", fd);
    while ((n = read(3, &word, 1)) < 0 && errno == EINTR)
        continue;
    for (int i = 0; n == 0 && i < 100 && fs_is_directory(path); i++) {
        remove_tree(path);
        nanosleep(&nap, NULL);
    }
    _exit(0);
}

static int start_keeper(struct job_files *f)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    f->keeper = fork();
    if (f->keeper == 0) {
        close(ends[1]);
        keep(ends[0], f->dir);
    }
    close(ends[0]);
    f->keeper_fd = ends[1];
    return f->keeper > 0 ? 0 : -1;
}

static int open_dir(struct job_files *f, struct error *err)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, NAME "%u-", (unsigned)geteuid());
    remove_all(beat_directory(), prefix, is_dead);
    snprintf(f->dir, sizeof f->dir, "%s/%s%d-XXXXXX", beat_directory(), prefix,
             (int)getpid());
    if (mkdtemp(f->dir) && (f->dir_fd = open(f->dir, O_RDONLY | O_CLOEXEC)) >= 0 &&
        flock(f->dir_fd, LOCK_EX) == 0 && access(f->dir, W_OK) == 0 &&
        start_keeper(f) == 0)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "cannot make the directory '%s' for a job: %s; set TMPDIR to one "
                     "that can be written",
                     f->dir, strerror(errno));
}

/* Children of those that die become ours, until there is none. */
void job_files_kill_processes(const struct job_files *f)
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
            if (pid == f->keeper)
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
    int why = errno;
    if (fd >= 0) {
        failed = close(fd) || failed;
        unlink(path);
    }
    if (!failed)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "cannot write to log directory '%s': %s; free some room, or choose "
                     "another place",
                     dir, strerror(why));
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
    *f = (struct job_files){
        .dir_fd = -1, .keeper = -1, .keeper_fd = -1, .log_lock = -1, .log_fd = -1};
    return open_dir(f, err) || open_log_dir(f, opt, err) ? -1 : 0;
}

void job_files_close(struct job_files *f)
{
    log_status_clear();
    if (f->log_fd >= 0)
        close(f->log_fd);
    if (f->dir_fd >= 0) {
        remove_tree(f->dir);
        close(f->dir_fd);
    }
    if (f->keeper > 0) {
        ssize_t unused = write(f->keeper_fd, "x", 1);
        (void)unused; // one that was killed reads nothing
        close(f->keeper_fd);
        waitpid(f->keeper, NULL, 0);
    }
    if (f->log_lock >= 0)
        close(f->log_lock);
}

/* -- rank 0's log on the terminal ---------------------------------------------------- */

static void put(const char *text, size_t n)
{
    int unused = fs_write_exact(STDERR_FILENO, text, n);
    (void)unused; // a terminal that is gone does not end the job
}

/* Lines push the progress out of the way, so it is shown again after them. */
static void show_progress(struct job_files *f, const struct beat_file *file,
                          bool has_lines)
{
    unsigned n_shown = atomic_load(&file->n_shown);
    if (n_shown == 0 || n_shown % 2 != 0 || (n_shown == f->n_shown && !has_lines))
        return;
    f->n_shown = n_shown;
    log_status("%.*s", BEAT_PROGRESS_BYTES - 1, file->progress);
}

/* How much of n bytes may be shown. Asked after the bytes were read: a rank records where
 * its failure begins before it writes it. */
static size_t n_showable(const struct job_files *f, const struct beat_slot *slot,
                         size_t n)
{
    if (atomic_load(&slot->state) != BEAT_FAILED)
        return n;
    int64_t left = atomic_load(&slot->log_bytes) - (int64_t)f->log_at;
    return left < 0 ? 0 : (size_t)i64_min(left, (int64_t)n);
}

/* Show the whole lines among n bytes as on the terminal of one process; how many bytes
 * they are. A line that is longer than all that is looked at is shown as it is. */
static size_t show_lines(const struct log_view *view, const char *text, size_t n)
{
    char shown[COPY_BYTES + LOG_VIEW_MORE_BYTES];
    size_t at = 0;
    for (const char *end; (end = memchr(text + at, '\n', n - at));) {
        size_t n_line = (size_t)(end + 1 - (text + at));
        put(shown, log_view_line(view, text + at, n_line, shown));
        at += n_line;
    }
    if (at == 0 && n == COPY_BYTES) {
        put(text, n);
        at = n;
    }
    return at;
}

void job_files_copy_log(struct job_files *f, const struct beat_file *file)
{
    char path[PATH_MAX + 32], buf[COPY_BYTES];
    struct log_view view = log_view_of(STDERR_FILENO);
    bool has_lines = false;
    ssize_t n;
    if (f->log_fd < 0) {
        job_files_log_path(path, sizeof path, f->log_dir, 0);
        f->log_fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    while (f->log_fd >= 0 && (n = pread(f->log_fd, buf, sizeof buf, f->log_at)) > 0) {
        size_t shown = n_showable(f, &file->slots[0], (size_t)n);
        if (shown == 0)
            return;
        log_status_clear();
        has_lines = true;
        if (view.is_terminal)
            shown = show_lines(&view, buf, shown);
        else
            put(buf, shown);
        f->is_in_line = shown > 0 && buf[shown - 1] != '\n';
        if (shown == 0)
            return; // the rest of the line is to come
        f->log_at += (off_t)shown;
    }
    show_progress(f, file, has_lines);
}

void job_files_show_line(struct job_files *f, const char *line)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    char shown[COPY_BYTES + LOG_VIEW_MORE_BYTES];
    log_status_clear();
    if (f->is_in_line)
        put("\n", 1);
    put(shown, log_view_line(&view, line, strnlen(line, COPY_BYTES), shown));
    f->is_in_line = false;
}

void job_files_skip_log(struct job_files *f)
{
    off_t end = f->log_fd >= 0 ? lseek(f->log_fd, 0, SEEK_END) : 0;
    f->log_at = end > f->log_at ? end : f->log_at;
}
