#include "base/hook.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "TREFOIL_EVENT"
#define OUTPUT_SECONDS 1.0 // after the end of a command, for its last words

/* The output of a command. Shared by its thread and the hook: the last one frees it. A
 * process that the command leaves running may keep the pipe open, and the thread
 * alive. */
struct hook_output {
    int fd; // the end that is read
    atomic_int n_users;
    atomic_bool is_cut, is_whole;
};

/* -- events -------------------------------------------------------------------------- */

static void add_variable(struct hook_event *e, const char *text)
{
    size_t left = sizeof e->bytes - e->n_bytes, n = strlen(text);
    if (left == 0)
        return;
    n = n < left ? n : left - 1;
    memcpy(e->bytes + e->n_bytes, text, n);
    e->bytes[e->n_bytes + n] = 0;
    e->n_bytes += n + 1;
    e->n_variables++;
}

void hook_event_begin(struct hook_event *e, const char *name)
{
    char text[64];
    e->n_bytes = 0;
    e->n_variables = 0;
    snprintf(text, sizeof text, "%s=%s", VARIABLE, name);
    add_variable(e, text);
}

void hook_event_set(struct hook_event *e, const char *key, const char *format, ...)
{
    char text[HOOK_EVENT_BYTES];
    va_list args;
    int n = snprintf(text, sizeof text, "%s_%s=", VARIABLE, key);
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    add_variable(e, text);
}

/* -- the command --------------------------------------------------------------------- */

/* Variables of this process that would make a program take itself for a rank of the job,
 * or that are of another event. */
static bool is_of_the_job(const char *variable)
{
    static const char *const heads[] = {"TREFOIL_",      "OMPI_",        "PMIX_",
                                        "PMI_",          "HYDRA_",       "HYDI_",
                                        "MPI_LOCAL",     "SLURM_PROCID", "SLURM_STEP",
                                        "SLURM_LOCALID", "SLURM_NTASKS"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (strncmp(variable, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

/* The environment of the command: ours, and the event's. The array is malloc'ed; NULL: no
 * memory. */
static char **make_environment(struct hook_event *e)
{
    size_t n = 0, n_ours = 0;
    while (environ[n_ours])
        n_ours++;
    char **all = calloc(n_ours + (size_t)e->n_variables + 1, sizeof *all);
    if (!all)
        return NULL;
    for (size_t i = 0; i < n_ours; i++)
        if (!is_of_the_job(environ[i]))
            all[n++] = environ[i];
    char *variable = e->bytes;
    for (int i = 0; i < e->n_variables; i++, variable += strlen(variable) + 1)
        all[n++] = variable;
    return all;
}

/* All signals as they are at the start of a program. */
static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    return posix_spawnattr_setsigmask(attributes, &none) ||
           posix_spawnattr_setsigdefault(attributes, &all) ||
           posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID |
                                                    POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
}

static void output_release(struct hook_output *o)
{
    if (!o || atomic_fetch_sub(&o->n_users, 1) > 1)
        return;
    close(o->fd);
    free(o);
}

static void copy_some(const char *bytes, size_t n)
{
    int unused = fs_write_exact(STDERR_FILENO, bytes, n);
    (void)unused; // without a reader, as for the log
}

static void *copy_output(void *context)
{
    struct hook_output *o = context;
    char buf[4096];
    size_t left = HOOK_OUTPUT_BYTES;
    bool is_cut = false;
    ssize_t n;
    while ((n = read(o->fd, buf, sizeof buf)) > 0) {
        size_t n_copied = (size_t)n < left ? (size_t)n : left;
        copy_some(buf, n_copied);
        left -= n_copied;
        if ((size_t)n == n_copied || is_cut)
            continue;
        copy_some("\n", 1); // it was within a line
        is_cut = true;
        atomic_store(&o->is_cut, true);
    }
    atomic_store(&o->is_whole, true);
    output_release(o);
    return NULL;
}

/* Makes h->output the read end of a new pipe and returns its write end; -1: it failed. */
static int output_open(struct hook *h)
{
    pthread_t thread;
    int ends[2], failure = ENOMEM;
    output_release(h->output);
    h->output = NULL;
    struct hook_output *o = calloc(1, sizeof *o);
    if (!o || pipe2(ends, O_CLOEXEC)) {
        free(o);
        return -1;
    }
    o->fd = ends[0];
    atomic_store(&o->n_users, 2);
    failure = thread_start(&thread, copy_output, o);
    if (failure == 0) {
        pthread_detach(thread);
        h->output = o;
        h->is_cut_told = false;
        return ends[1];
    }
    close(ends[0]);
    close(ends[1]);
    free(o);
    return -1;
}

/* Standard output and error are `output`, or nothing where that is -1. */
static int set_files(posix_spawn_file_actions_t *files, int output)
{
    if (output >= 0 ? posix_spawn_file_actions_adddup2(files, output, STDERR_FILENO)
                    : posix_spawn_file_actions_addopen(files, STDERR_FILENO, "/dev/null",
                                                       O_WRONLY, 0))
        return -1;
    return posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY,
                                            0) ||
           posix_spawn_file_actions_adddup2(files, STDERR_FILENO, STDOUT_FILENO) ||
           posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
}

static void start(struct hook *h, struct hook_event *e)
{
    char shell[] = "sh", option[] = "-c";
    char *words[] = {shell, option, (char *)(uintptr_t)h->command, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    snprintf(h->what, sizeof h->what, "%s", e->bytes + strlen(VARIABLE) + 1);
    if (posix_spawnattr_init(&attributes))
        return;
    if (posix_spawn_file_actions_init(&files)) {
        posix_spawnattr_destroy(&attributes);
        return;
    }
    int output = output_open(h);
    char **environment = make_environment(e);
    int reason =
        !environment || set_attributes(&attributes) || set_files(&files, output)
            ? ENOMEM
            : posix_spawn(&h->pid, "/bin/sh", &files, &attributes, words, environment);
    if (reason) {
        h->pid = 0;
        log_warning("on_event: the command for '%s' could not be started: %s", h->what,
                    strerror(reason));
    }
    if (output >= 0)
        close(output);
    else
        log_warning(
            "on_event: the output of the command for '%s' is lost: there is no memory "
            "for a thread that reads it",
            h->what);
    h->started = clock_seconds();
    free(environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
}

static void tell_end(const struct hook *h, int status)
{
    if (WIFSIGNALED(status))
        log_warning("on_event: the command for '%s' was ended by SIG%s", h->what,
                    sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status))
                                                   : "?");
    else if (WEXITSTATUS(status) != 0)
        log_warning("on_event: the command for '%s' ended with exit code %d", h->what,
                    WEXITSTATUS(status));
}

/* With all that it started in its session. The signal takes its time, and one that a disk
 * holds may take for ever: it is not waited for, but kept in mind until it is gone. */
static void end_by_force(struct hook *h)
{
    kill(-h->pid, SIGKILL);
    kill(h->pid, SIGKILL); // its session may not be there yet
    if (h->n_killed < (int)ARRAY_LEN(h->killed))
        h->killed[h->n_killed++] = h->pid;
    log_warning("on_event: the command for '%s' took longer than %.0f s and was killed",
                h->what, HOOK_SECONDS);
}

/* What is left of a killed command once it is dead stays until somebody asks for it. */
static void forget_dead(struct hook *h)
{
    int n = 0;
    for (int i = 0; i < h->n_killed; i++)
        if (waitpid(h->killed[i], NULL, WNOHANG) == 0)
            h->killed[n++] = h->killed[i];
    h->n_killed = n;
}

/* Once for each command. */
static void tell_cut(struct hook *h)
{
    if (h->output && !h->is_cut_told && atomic_load(&h->output->is_cut)) {
        log_warning(
            "on_event: the command for '%s' prints more than %d kB: the rest is left "
            "out",
            h->what, HOOK_OUTPUT_BYTES / 1024);
        h->is_cut_told = true;
    }
}

/* Whether no command runs any more. */
static bool is_idle(struct hook *h)
{
    int status = 0;
    forget_dead(h);
    tell_cut(h);
    if (h->pid == 0)
        return true;
    pid_t rc = waitpid(h->pid, &status, WNOHANG);
    if (rc == 0 && clock_seconds() - h->started < HOOK_SECONDS)
        return false;
    if (rc == 0)
        end_by_force(h);
    else if (rc == h->pid)
        tell_end(h, status);
    h->pid = 0;
    h->ended = clock_seconds();
    return true;
}

/* Whether all output of the last command was copied, or OUTPUT_SECONDS have passed. */
static bool is_output_done(struct hook *h)
{
    tell_cut(h);
    return h->pid == 0 && (!h->output || atomic_load(&h->output->is_whole) ||
                           clock_seconds() - h->ended > OUTPUT_SECONDS);
}

/* -- all of it ----------------------------------------------------------------------- */

void hook_init(struct hook *h, const char *command)
{
    h->command = command && command[0] ? command : NULL;
    h->pid = 0;
    h->n_killed = 0;
    h->n_waiting = 0;
    h->output = NULL;
    h->ended = 0;
    h->is_cut_told = false;
}

void hook_poll(struct hook *h)
{
    if (!h->command || !is_idle(h) || h->n_waiting == 0)
        return;
    struct hook_event next = h->waiting[0];
    h->n_waiting--;
    memmove(h->waiting, h->waiting + 1, (size_t)h->n_waiting * sizeof *h->waiting);
    start(h, &next);
}

void hook_run(struct hook *h, const struct hook_event *e)
{
    if (!h->command)
        return;
    hook_poll(h);
    if (h->n_waiting == HOOK_WAITING_MOST) {
        log_warning("on_event: the commands take too long: '%s' is left out",
                    e->bytes + strlen(VARIABLE) + 1);
        return;
    }
    h->waiting[h->n_waiting++] = *e;
    hook_poll(h);
}

void hook_finish(struct hook *h)
{
    static const struct timespec nap = {.tv_nsec = 20000000};
    if (h->n_waiting > 1) {
        log_warning("on_event: the run ends: %d events that wait are left out",
                    h->n_waiting - 1);
        h->waiting[0] = h->waiting[h->n_waiting - 1];
        h->n_waiting = 1;
    }
    while (h->command && (h->pid != 0 || h->n_waiting > 0 || !is_output_done(h))) {
        hook_poll(h);
        beat_aside(); // this rank is not stuck
        nanosleep(&nap, NULL);
    }
    if (h->command)
        tell_cut(h);
    output_release(h->output);
    h->output = NULL;
}
