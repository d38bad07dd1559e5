#include "launch/launch_sweep.h"

#include "base/fs.h"
#include "launch/launch_command.h"
#include "launch/rank_status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENVIRONMENT_BYTES_MOST (1 << 20)

/* -- processes ----------------------------------------------------------------------- */

/* Whether `entry` ("NAME=value") is in the environment the process began with. A process
 * that has ended and was not waited for has none. */
static bool has_environment(int pid, const char *entry, char *buf)
{
    char path[64];
    size_t used = 0;
    ssize_t n;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (used < ENVIRONMENT_BYTES_MOST - 1 &&
           (n = read(fd, buf + used, ENVIRONMENT_BYTES_MOST - 1 - used)) > 0)
        used += (size_t)n;
    close(fd);
    buf[used] = '\0';
    for (const char *at = buf; at < buf + used; at += strlen(at) + 1)
        if (strcmp(at, entry) == 0)
            return true;
    return false;
}

/* Looked at twice: before the pidfd exists the number may pass to another process. */
static bool kill_if_ours(int pid, const char *entry, char *buf)
{
    if (!has_environment(pid, entry, buf))
        return false;
    int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0)
        return false;
    bool is_ours = has_environment(pid, entry, buf);
    if (is_ours)
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
    close(pidfd);
    return is_ours;
}

static int kill_all_of(const char *entry, char *buf)
{
    struct fs_names list;
    struct error ignored;
    int n_killed = 0;
    if (fs_list("/proc", &list, &ignored))
        return 0;
    for (int64_t i = 0; i < list.n_names; i++) {
        int pid = atoi(list.names[i]);
        if (pid > 1 && pid != getpid())
            n_killed += kill_if_ours(pid, entry, buf);
    }
    fs_names_release(&list);
    return n_killed;
}

void launch_sweep_processes(const char *job_id)
{
    char entry[128];
    char *buf = malloc(ENVIRONMENT_BYTES_MOST);
    const struct timespec pause = {.tv_nsec = 20000000};
    snprintf(entry, sizeof entry, "%s=%s", LAUNCH_ENV_JOB, job_id);
    for (int i = 0; buf && i < 50 && kill_all_of(entry, buf) > 0; i++)
        nanosleep(&pause, NULL);
    free(buf);
}

/* -- files --------------------------------------------------------------------------- */

static void remove_beginning_with(const char *dir, const char *prefix)
{
    struct fs_names list;
    struct error ignored;
    if (fs_list(dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        const char *name = list.names[i];
        const char *rest = name + strlen(prefix);
        char path[4096];
        if (strncmp(name, prefix, strlen(prefix)) == 0 && *rest &&
            rest[strspn(rest, "0123456789")] == '\0' &&
            !fs_join(path, sizeof path, dir, name, &ignored))
            unlink(path);
    }
    fs_names_release(&list);
}

static void remove_segments(uint32_t job)
{
    char host[256] = "", name[512];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "vader_segment.%s.%u.%x.", host, (unsigned)geteuid(),
             (unsigned)job);
    remove_beginning_with("/dev/shm", name);
}

void launch_sweep_files(uint32_t job, const char *session, pid_t mpiexec)
{
    char name[512];
    struct error ignored;
    if (job)
        remove_segments(job);
    snprintf(name, sizeof name, "pid.%d", (int)mpiexec);
    const char *slash = strrchr(session, '/');
    if (!slash || strcmp(slash + 1, name) != 0 || fs_remove_tree(session, &ignored))
        return;
    // the directory above is shared with the user's other jobs, and goes with the last
    snprintf(name, sizeof name, "%.*s", (int)(slash - session), session);
    rmdir(name);
}

/* -- of former jobs ------------------------------------------------------------------ */

const char *launch_temporary_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

/* Whether `path` is a directory, not a link to one, of this user. */
static bool is_own_directory(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

/* The process in "PREFIX4711" or "PREFIX4711-xyz"; 0: the name is another. */
static pid_t process_in(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '1' || name[n] > '9')
        return 0;
    char *end;
    long pid = strtol(name + n, &end, 10);
    return (*end == '\0' || *end == '-') && pid <= INT32_MAX ? (pid_t)pid : 0;
}

/* One that has ended and was not waited for is dead, too. */
static bool is_dead(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && fs_is_directory("/proc/self");
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return n < 0 && errno == ESRCH;
    text[n] = '\0';
    const char *state = strrchr(text, ')'); // ends the program's name
    return state && (strncmp(state, ") Z", 3) == 0 || strncmp(state, ") X", 3) == 0);
}

/* The segments of the job whose mpirun made this directory of Open MPI's: it wrote
 * "JOB.0;ADDRESS" there, and its ranks are of job JOB + 1. */
static void remove_segments_of(const char *session)
{
    char path[PATH_MAX], *text;
    size_t n;
    struct error ignored;
    uint32_t job;
    if (fs_join(path, sizeof path, session, "contact.txt", &ignored) ||
        fs_read_all(path, 65536, &text, &n, &ignored))
        return;
    if (sscanf(text, "%" SCNu32 ".0;", &job) == 1)
        remove_segments(job + 1);
    free(text);
}

/* Everything in `dir` that has in its name, after `prefix`, the number of a process that
 * is dead. */
static void sweep_dead_in(const char *dir, const char *prefix)
{
    struct fs_names list;
    struct error ignored;
    if (fs_list(dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        char path[PATH_MAX];
        pid_t pid = process_in(list.names[i], prefix);
        if (pid <= 0 || !is_dead(pid) ||
            fs_join(path, sizeof path, dir, list.names[i], &ignored) ||
            !is_own_directory(path))
            continue;
        remove_segments_of(path);
        int unused = fs_remove_tree(path, &ignored);
        (void)unused; // the next job tries again
    }
    fs_names_release(&list);
}

void launch_sweep_dead(void)
{
    char host[256] = "", sessions[PATH_MAX];
    gethostname(host, sizeof host - 1);
    snprintf(sessions, sizeof sessions, "%s/ompi.%s.%u", launch_temporary_dir(), host,
             (unsigned)geteuid());
    if (is_own_directory(sessions)) {
        sweep_dead_in(sessions, "pid.");
        rmdir(sessions); // goes with the last
    }
    sweep_dead_in(launch_temporary_dir(), LAUNCH_SCRATCH_NAME);
}

/* -- logs ---------------------------------------------------------------------------- */

void launch_sweep_logs(const char *log_dir, bool status_only)
{
    remove_beginning_with(log_dir, RANK_STATUS_NAME);
    if (!status_only)
        remove_beginning_with(log_dir, "workerlog.");
}
