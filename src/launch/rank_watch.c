#include "launch/rank_watch.h"

#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "launch/host_watch.h"
#include "launch/launch_command.h"
#include "launch/proc_stat.h"
#include "launch/watcher.h"

#include <execinfo.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- the stack ----------------------------------------------------------------------- */

/* The watcher wants to know where this rank is. One that was stopped does not go on: the
 * job is about to end. */
static void on_stack_wanted(int signal_number)
{
    static const char heading[] = "\nthe job hangs; the stack of this rank:\n";
    void *frames[64];
    (void)signal_number;
    int unused = fs_write_exact(STDERR_FILENO, heading, sizeof heading - 1);
    (void)unused;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    while (atomic_load(&beat_mine->is_held))
        pause();
    // inside MPI's own start and end nothing looks whether the job ends
    int action = atomic_load(&beat_mine->action);
    if (beat_must_end() && (action == BEAT_JOIN || action == BEAT_LEAVE))
        _exit(3);
}

static void handle_stack_signal(void)
{
    struct sigaction action = {.sa_handler = on_stack_wanted, .sa_flags = SA_RESTART};
    void *frame;
    // the first call loads a library, which a signal handler must not do
    int unused = backtrace(&frame, 1);
    (void)unused;
    sigemptyset(&action.sa_mask);
    sigaction(HOST_WATCH_STACK_SIGNAL, &action, NULL);
}

/* -- the slot ------------------------------------------------------------------------ */

/* What all ranks of this host, and nobody else, have in common: the launcher's name for
 * the job, or the daemon that started them. */
static void job_key(char *key, size_t size, const char *rank_variable)
{
    const char *job = getenv(LAUNCH_ENV_JOB);
    if (job && *job && !strchr(job, '/')) {
        snprintf(key, size, "%s", job);
        return;
    }
    pid_t daemon = host_watch_daemon(rank_variable);
    snprintf(key, size, "daemon.%d.%llu", (int)daemon,
             (unsigned long long)proc_stat_field(daemon, PROC_START_TICKS));
}

void rank_watch_join(int rank, int n_ranks, const char *rank_variable)
{
    char key[128], path[PATH_MAX];
    struct error err;
    job_key(key, sizeof key, rank_variable);
    beat_path(path, sizeof path, key);
    handle_stack_signal();
    struct beat_file *file = beat_open(path, rank, n_ranks, &err);
    if (!file) {
        log_warning("rank %d is not watched for hangs: %s", rank, err.text);
        return;
    }
    const char *contact = getenv(LAUNCH_ENV_WATCH);
    watcher_start(file, &(struct watcher_options){.path = path,
                                                  .n_ranks = n_ranks,
                                                  .job = getenv(LAUNCH_ENV_JOB),
                                                  .rank_variable = rank_variable,
                                                  .log_dir = getenv(LAUNCH_ENV_LOG_DIR),
                                                  .contact = contact});
}

void rank_watch_contact(char contact[RANK_WATCH_CONTACT_BYTES])
{
    const struct beat_file *file = beat_file_of_process();
    memset(contact, 0, RANK_WATCH_CONTACT_BYTES);
    if (file && atomic_load(&file->contact_of) == BEAT_CONTACT_HERE)
        memcpy(contact, file->contact, RANK_WATCH_CONTACT_BYTES);
}

void rank_watch_use_contact(const char contact[RANK_WATCH_CONTACT_BYTES])
{
    struct beat_file *file = beat_file_of_process();
    if (!file || !contact[0] || atomic_load(&file->contact_of) != BEAT_CONTACT_HERE ||
        memcmp(file->contact, contact, RANK_WATCH_CONTACT_BYTES) == 0)
        return;
    memcpy(file->contact, contact, RANK_WATCH_CONTACT_BYTES);
    atomic_store(&file->contact_of, BEAT_CONTACT_MAIN);
}

void rank_watch_joined(void)
{
    beat_remove_name();
}
