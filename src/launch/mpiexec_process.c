#include "launch/mpiexec_process.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef TREFOIL_MPIEXEC
#define TREFOIL_MPIEXEC "" // the build found none: the names of the dialect are tried
#endif

static bool is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

bool mpiexec_find_program(const char *name, char *path, size_t size)
{
    if (strchr(name, '/'))
        return snprintf(path, size, "%s", name) < (int)size && is_program(path);
    const char *dirs = getenv("PATH");
    for (const char *at = dirs ? dirs : "/usr/bin:/bin"; *name; at++) {
        size_t n = strcspn(at, ":");
        int n_path = snprintf(path, size, "%.*s/%s", (int)n, n ? at : ".", name);
        if (n_path > 0 && (size_t)n_path < size && is_program(path))
            return true;
        at += n;
        if (!*at)
            break;
    }
    return false;
}

int mpiexec_find(const struct launch_dialect *dialect, char *path, size_t size,
                 struct error *err)
{
    if (mpiexec_find_program(TREFOIL_MPIEXEC, path, size))
        return 0;
    for (const char *const *name = dialect->names; *name; name++)
        if (mpiexec_find_program(*name, path, size))
            return 0;
    return error_set(err, ERROR_RUNTIME,
                     "several processes need the mpiexec of %s, which this program was "
                     "built with; neither %s nor %s was found; on Debian: apt install %s",
                     dialect->name, dialect->names[0], dialect->names[1],
                     dialect->package);
}

/* -- start --------------------------------------------------------------------------- */

static bool has_name_of(const char *entry, const char *other)
{
    size_t n = strcspn(entry, "=");
    return strncmp(entry, other, n + 1) == 0;
}

/* This process's environment with `changes` in it; malloc'ed, the strings borrowed. */
static char **merge_environment(const char *const *changes)
{
    size_t n = 0, n_changes = 0;
    while (environ[n])
        n++;
    while (changes[n_changes])
        n_changes++;
    char **merged = malloc((n + n_changes + 1) * sizeof *merged);
    size_t used = 0;
    for (size_t i = 0; merged && i < n; i++) {
        bool is_changed = false;
        for (size_t j = 0; j < n_changes; j++)
            is_changed = is_changed || has_name_of(changes[j], environ[i]);
        if (!is_changed)
            merged[used++] = environ[i];
    }
    for (size_t j = 0; merged && j < n_changes; j++)
        merged[used++] = (char *)(uintptr_t)changes[j];
    if (merged)
        merged[used] = NULL;
    return merged;
}

/* Only calls that are allowed between fork() and exec(). */
static void become_mpiexec(const struct launch_dialect *dialect, char **words,
                           char **environment, int output, pid_t parent)
{
    static const char complaint[] = "it could not be executed\n";
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    process_restore_signals();
    launch_make_deaf(dialect);
    execve(words[0], words, environment);
    ssize_t unused = write(STDERR_FILENO, complaint, sizeof complaint - 1);
    (void)unused;
    _exit(127);
}

int mpiexec_open(struct mpiexec_process *m, const struct launch_dialect *dialect,
                 const struct launch_command *cmd, const char *const *environment,
                 struct error *err)
{
    int ends[2] = {-1, -1}, rc = -1;
    pid_t parent = getpid();
    *m = (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1};
    char **merged = merge_environment(environment);
    if (!merged || pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK)) {
        error_set(err, ERROR_RUNTIME, "cannot start '%s': %s", cmd->words[0],
                  strerror(errno));
        goto done;
    }
    m->pid = fork();
    if (m->pid == 0)
        become_mpiexec(dialect, cmd->words, merged, ends[1], parent);
    if (m->pid < 0) {
        error_set(err, ERROR_RUNTIME, "cannot start '%s': %s", cmd->words[0],
                  strerror(errno));
        goto done;
    }
    m->pidfd = pidfd_open(m->pid, 0);
    m->output = ends[0];
    ends[0] = -1;
    rc = 0;
done:
    free(merged);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return rc;
}

static void keep(struct mpiexec_process *m, const char *text, size_t n)
{
    size_t room = m->is_heard ? 0 : sizeof m->said - 1 - m->n_said;
    n = n < room ? n : room;
    memcpy(m->said + m->n_said, text, n);
    m->n_said += n;
    m->said[m->n_said] = '\0';
}

static void end_line(struct mpiexec_process *m)
{
    m->line[m->n_line] = '\0';
    if (!m->take_line || !m->take_line(m->context, m->line))
        keep(m, m->line, m->n_line);
    m->n_line = 0;
}

void mpiexec_listen(struct mpiexec_process *m)
{
    char buf[4096];
    ssize_t n;
    while ((n = read(m->output, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            m->line[m->n_line++] = buf[i];
            if (buf[i] == '\n' || m->n_line == sizeof m->line - 1)
                end_line(m);
        }
    if (n == 0 && m->n_line > 0) // the end, within a line
        end_line(m);
}

void mpiexec_close(struct mpiexec_process *m)
{
    if (m->pidfd >= 0)
        close(m->pidfd);
    if (m->output >= 0)
        close(m->output);
    m->pidfd = m->output = -1;
}
