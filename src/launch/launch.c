/*
 * A job from its start to its end, and then perhaps again: the log directory, the signals
 * and the directory of the job are the launcher's as long as it lives, all else is of one
 * try (job.c).
 */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "launch/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* -- the log directory --------------------------------------------------------------- */

/* As much as the logs of a job's start take. */
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
    if (failed)
        return error_set(err, ERROR_RUNTIME,
                         "cannot write to log directory '%s': %s; free some room, or "
                         "choose another place",
                         dir, strerror(why));
    return 0;
}

static void remove_logs(const char *dir)
{
    static const char prefix[] = "workerlog.";
    struct fs_names list;
    struct error ignored;
    char path[PATH_MAX];
    if (fs_list(dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        const char *rest = list.names[i] + strlen(prefix);
        if (strncmp(list.names[i], prefix, strlen(prefix)) == 0 && *rest &&
            rest[strspn(rest, "0123456789")] == '\0' &&
            !fs_join(path, sizeof path, dir, list.names[i], &ignored))
            unlink(path);
    }
    fs_names_release(&list);
}

/* One job writes to a log directory at a time. A disk without room for a line of log is
 * found here, where it can still be told. */
static int open_log_dir(struct launch_job *job, struct error *err)
{
    const char *dir = job->opt->log_dir ? job->opt->log_dir : LAUNCH_LOG_DIR;
    const char *key = job->opt->log_dir_key ? job->opt->log_dir_key : "--log_dir";
    if (job->opt->is_log_temporary)
        dir = job->dir.path;
    if (fs_make_directories(dir, err))
        return -1;
    if (!realpath(dir, job->log_dir) || strlen(job->log_dir) > PATH_MAX - 64)
        return error_set(err, ERROR_RUNTIME, "cannot use log directory '%s': %s", dir,
                         strerror(errno ? errno : ENAMETOOLONG));
    if (job->opt->is_log_temporary)
        return 0;
    job->lock_fd = open(job->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->lock_fd < 0 || access(job->log_dir, W_OK))
        return error_set(err, ERROR_RUNTIME, "cannot write to log directory '%s': %s",
                         dir, strerror(errno));
    if (flock(job->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(err, ERROR_RUNTIME,
                         "'%s' is in use: another job writes its logs there; wait until "
                         "it has ended, or choose another with %s",
                         dir, key);
    remove_logs(job->log_dir);
    return probe_space(job->log_dir, err);
}

/* -- and again ----------------------------------------------------------------------- */

/* False: a signal came instead, which is in the job then. */
static bool pause_seconds(struct launch_job *job, int seconds)
{
    struct pollfd fd = {.fd = job->signal_fd, .events = POLLIN};
    double end = clock_seconds() + seconds;
    for (double left; (left = end - clock_seconds()) > 0 && !job->stop_signal;)
        if (poll(&fd, 1, (int)(left * 1000) + 1) == 1)
            job_take_signals(job);
    return !job->stop_signal;
}

/* The job died as *err tells and is to be started again: say so, and wait. -1 with the
 * signal in *err when one came. */
static int prepare_restart(struct launch_job *job, int64_t step, struct error *err)
{
    const struct restart *r = &job->restart;
    int seconds = restart_pause(r->n_restarts);
    char from[64] = "from the beginning";
    if (step >= 0)
        snprintf(from, sizeof from, "resuming from step %lld", (long long)step);
    log_warning("%s. Restart %lld of %lld in %d s, %s", err->text,
                (long long)r->n_restarts, (long long)r->most, seconds, from);
    log_tail_skip(&job->tail);
    if (pause_seconds(job, seconds))
        return 0;
    return error_set(err, step >= 0 ? ERROR_STOPPED : ERROR_RUNTIME,
                     "the job was stopped by SIG%s while it waited to be started again, "
                     "and %s",
                     sigabbrev_np(job->stop_signal),
                     step >= 0 ? "can be resumed" : "has saved nothing");
}

/* Words and newest checkpoint as they are now. */
static int look_for_checkpoint(const struct launch_job *job, char *const **argv,
                               int64_t *step, struct error *err)
{
    *step = -1;
    return job->opt->resume ? resume_point_next(job->opt->resume, argv, step, err) : 0;
}

/* Whether the job that ended as *err tells goes on: 0, with the words for it; otherwise
 * -1, with all that is to be said in *err. */
static int go_on(struct launch_job *job, char *const **argv, struct error *err)
{
    struct error died = *err;
    int64_t step;
    if (died.kind != ERROR_RUNTIME || !job->has_begun || job->stop_signal ||
        job->opt->max_restarts == 0)
        return -1;
    if (look_for_checkpoint(job, argv, &step, err))
        return error_prefix(err, "%.400s. It is not started again", died.text);
    switch (restart_decide(&job->restart, step)) {
    case RESTART_AGAIN:
        return prepare_restart(job, step, err);
    case RESTART_SPENT:
        return error_prefix(err, "after %lld restart%s", (long long)job->restart.most,
                            job->restart.most > 1 ? "s" : "");
    case RESTART_LOOP:
        break;
    }
    char newest[32] = "";
    if (job->restart.newest_step >= 0)
        snprintf(newest, sizeof newest, " after step %lld",
                 (long long)job->restart.newest_step);
    return error_set(err, ERROR_CRASH_LOOP,
                     "the job died %d times in a row without a checkpoint%s, and is not "
                     "started again; the last time: %.1600s",
                     RESTART_IDLE_MOST + 1, newest, died.text);
}

/* -- all of it ----------------------------------------------------------------------- */

/* Signals become readable instead of interrupting. SIGHUP stays ignored where it is: that
 * is what nohup means. A reader of our output who goes away makes writes fail, no more:
 * the job's result is its own. */
static int catch_signals(struct launch_job *job, struct error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaddset(&set, numbers[i]);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigprocmask(SIG_BLOCK, &set, &job->old_mask);
    if (job->signal_fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot watch a job: %s", strerror(errno));
    return 0;
}

static int open_job(struct launch_job *job, struct error *err)
{
    if (job_dir_open(&job->dir, err) || open_log_dir(job, err))
        return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return catch_signals(job, err);
}

/* What rank 0 prints has to be written before the job counts as done. */
static int close_job(struct launch_job *job, int code, struct error *err)
{
    struct error output_err;
    if (job->has_pipe && output_pipe_close(&job->pipe, &output_err)) {
        *err = output_err; // it is why the job was stopped
        code = error_exit_code(err);
    }
    log_tail_close(&job->tail);
    if (job->signal_fd >= 0) {
        close(job->signal_fd);
        sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    }
    job_dir_close(&job->dir);
    if (job->lock_fd >= 0)
        close(job->lock_fd);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    free(job);
    return code;
}

int launch_run(const struct launch_options *opt, char *const *argv, struct error *err)
{
    struct launch_job *job = NULL;
    if (launch_check(opt, err))
        return error_exit_code(err);
    if (!(job = malloc(sizeof *job))) {
        error_set(err, ERROR_RUNTIME, "out of memory for the launcher");
        return error_exit_code(err);
    }
    *job = (struct launch_job){.opt = opt,
                               .dialect = mpiexec_dialect(),
                               .dir = {.fd = -1},
                               .lock_fd = -1,
                               .signal_fd = -1,
                               .restart = {.most = opt->max_restarts},
                               .tail = {.log_dir = job->log_dir, .fd = -1}};
    int code = 0;
    if (open_job(job, err) ||
        look_for_checkpoint(job, &argv, &job->restart.newest_step, err) ||
        (opt->has_output && output_pipe_open(&job->pipe, job->dir.path, err)))
        code = error_exit_code(err);
    job->has_pipe = opt->has_output && code == 0;
    for (bool is_over = code != 0; !is_over;) {
        code = job_run(job, argv, err);
        is_over = code == 0 || go_on(job, &argv, err);
    }
    return close_job(job, code ? error_exit_code(err) : 0, err);
}
