/*
 * A job from its start to its end, and then perhaps again: the log directory and the
 * signals are the launcher's as long as it lives, all else is of one try. What happens
 * between the start and the end of mpiexec is launch_loop.c.
 */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "launch/launch_job.h"
#include "launch/launch_sweep.h"
#include "launch/launch_verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -- start --------------------------------------------------------------------------- */

/* As much as the logs of a job's start take. */
static int probe_room(const char *dir, struct error *err)
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

/* One job writes to a log directory at a time. A disk without room for a line of log is
 * found here, where it can still be told. */
static int open_log_dir(struct launch_job *job, struct error *err)
{
    const char *dir = job->opt->log_dir ? job->opt->log_dir : LAUNCH_LOG_DIR;
    const char *key = job->opt->log_dir_key ? job->opt->log_dir_key : "--log_dir";
    if (fs_make_directories(dir, err))
        return -1;
    if (!realpath(dir, job->log_dir) || strlen(job->log_dir) > PATH_MAX - 64)
        return error_set(err, ERROR_RUNTIME, "cannot use log directory '%s': %s", dir,
                         strerror(errno ? errno : ENAMETOOLONG));
    job->lock_fd = open(job->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->lock_fd < 0 || access(job->log_dir, W_OK))
        return error_set(err, ERROR_RUNTIME, "cannot write to log directory '%s': %s",
                         dir, strerror(errno));
    if (flock(job->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(err, ERROR_RUNTIME,
                         "'%s' is in use: another job writes its logs there; wait until "
                         "it has ended, or choose another with %s",
                         dir, key);
    launch_sweep_logs(job->log_dir, false);
    return probe_room(job->log_dir, err);
}

static int watch_fd(const struct launch_job *job, int fd, uint64_t event,
                    struct error *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = event};
    if (fd < 0 || epoll_ctl(job->epoll_fd, EPOLL_CTL_ADD, fd, &e))
        return error_set(err, ERROR_RUNTIME, "cannot watch the job: %s", strerror(errno));
    return 0;
}

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
    return watch_fd(job, job->signal_fd, EVENT_SIGNAL, err);
}

/* A rank of this machine is to be held from its first moment: of several that died before
 * they were, none could be told to have been the first. Where the system has no watch to
 * give, looking ten times a second must do. */
static int watch_status_files(struct launch_job *job, struct error *err)
{
    job->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (job->inotify_fd < 0 ||
        inotify_add_watch(job->inotify_fd, job->log_dir, IN_MOVED_TO) < 0)
        return 0;
    return watch_fd(job, job->inotify_fd, EVENT_STATUS, err);
}

/* Processes first: what they hold could not be removed, and they could still write. */
static int end_mpiexec(struct launch_job *job)
{
    int status = 0;
    while (waitpid(job->mpiexec.pid, &status, 0) < 0 && errno == EINTR)
        continue;
    launch_ranks_look_at_all(&job->ranks);
    launch_sweep_processes(job->id);
    while (waitpid(-1, NULL, WNOHANG) > 0) // ranks that became ours when mpiexec died
        continue;
    mpiexec_listen(&job->mpiexec);
    launch_ranks_look_at_all(&job->ranks);
    log_tail_copy(&job->tail);
    launch_sweep_files(job->ranks.job, job->ranks.session, job->mpiexec.pid);
    return status;
}

struct job_environment { // what mpiexec and its ranks are told
    char log_dir[PATH_MAX + 32], id[96], watch[WATCH_CONTACT_BYTES + 32];
    char rsh_arguments[PATH_MAX];
    const char *entries[8]; // NULL-terminated
};

static void make_environment(struct job_environment *env, const struct launch_job *job)
{
    const char *rsh = job->opt->rsh, *variable = job->dialect->rsh_arguments;
    const char *arguments = rsh ? strchr(rsh, ' ') : NULL;
    int n = 0;
    *env = (struct job_environment){.entries = {NULL}};
    snprintf(env->log_dir, sizeof env->log_dir, "%s=%s", LAUNCH_ENV_LOG_DIR,
             job->log_dir);
    snprintf(env->id, sizeof env->id, "%s=%s", LAUNCH_ENV_JOB, job->id);
    env->entries[n++] = env->log_dir;
    snprintf(env->watch, sizeof env->watch, "%s=%s", LAUNCH_ENV_WATCH,
             job->watch.contact);
    env->entries[n++] = env->id;
    env->entries[n++] = env->watch;
    if (job->opt->is_oversubscribed)
        env->entries[n++] = LAUNCH_ENV_OVERSUBSCRIBE "=1";
    if (arguments && variable) {
        snprintf(env->rsh_arguments, sizeof env->rsh_arguments, "%s=%s", variable,
                 arguments + 1);
        env->entries[n++] = env->rsh_arguments;
    }
    // ranks record their crashes themselves; UCX below MPICH would take that from them
    if (!getenv("UCX_HANDLE_ERRORS"))
        env->entries[n++] = "UCX_HANDLE_ERRORS=none";
}

static int start_mpiexec(struct launch_job *job, char *const *argv, struct error *err)
{
    struct launch_command cmd = {0};
    struct job_environment env;
    char mpiexec[PATH_MAX], program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return error_set(err, ERROR_RUNTIME, "cannot read /proc/self/exe: %s",
                         strerror(errno));
    program[n] = '\0';
    make_environment(&env, job);
    int rc = mpiexec_find(job->dialect, mpiexec, sizeof mpiexec, err) ||
                     launch_keeper_open(&job->keeper, job->id, err) ||
                     launch_command_build(&cmd, job->dialect, mpiexec, program, job->opt,
                                          geteuid() == 0, argv, err) ||
                     mpiexec_open(&job->mpiexec, job->dialect, &cmd, env.entries, err) ||
                     watch_fd(job, job->mpiexec.pidfd, EVENT_MPIEXEC, err) ||
                     watch_fd(job, job->mpiexec.output, EVENT_OUTPUT, err)
                 ? -1
                 : 0;
    launch_command_release(&cmd);
    if (rc && job->mpiexec.pid > 0) {
        kill(job->mpiexec.pid, SIGKILL);
        end_mpiexec(job);
    }
    return rc;
}

/* -- one try ------------------------------------------------------------------------- */

static int open_try(struct launch_job *job, struct error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(job->id, sizeof job->id, "%d.%lld.%ld", (int)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    job->mpiexec = (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1};
    job->keeper = (struct launch_keeper){.pid = -1, .fd = -1};
    job->is_mpiexec_asked_to_stop = job->is_mpiexec_killed = job->is_unbegun = false;
    job->ending_since = job->all_ended_at = 0;
    job->started_at = clock_seconds();
    launch_sweep_logs(job->log_dir, true); // of a try whose disk hung
    if (launch_ranks_init(&job->ranks, job->log_dir, job->opt->n_ranks, job->epoll_fd,
                          err))
        return -1;
    job->ranks.is_log_temporary = job->opt->is_log_temporary;
    launch_watch_open(&job->watch, job->id, job->opt->n_ranks, job->log_dir);
    if (job->opt->hosts || job->opt->hostfile || launch_watch_may_spread())
        launch_watch_listen(&job->watch);
    job->watch.is_log_temporary = job->opt->is_log_temporary;
    return 0;
}

static void close_try(struct launch_job *job)
{
    job->has_begun = job->has_begun || job->ranks.n_known > 0;
    launch_keeper_close(&job->keeper);
    mpiexec_close(&job->mpiexec);
    if (!launch_watch_found_hung_disk(&job->watch))
        launch_sweep_logs(job->log_dir, true);
    launch_watch_close(&job->watch);
    launch_ranks_release(&job->ranks);
}

/* Start the job and stay with it to its end; its exit code. */
static int run_once(struct launch_job *job, char *const *argv, struct error *err)
{
    int code;
    if (open_try(job, err) || start_mpiexec(job, argv, err))
        code = error_exit_code(err);
    else {
        launch_loop(job);
        struct launch_end end = {.opt = job->opt,
                                 .wait_status = end_mpiexec(job),
                                 .mpiexec = job->mpiexec.pid,
                                 .said = job->mpiexec.said,
                                 .stop_signal = job->stop_signal,
                                 .is_stop_repeated = job->is_stop_repeated,
                                 .is_mpiexec_killed = job->is_mpiexec_killed,
                                 .is_unbegun = job->is_unbegun,
                                 .hang = job->watch.sentence};
        if (!launch_watch_has_hung(&job->watch)) // its sentence has the step
            launch_watch_record_steps(&job->watch);
        code = launch_verdict(&job->ranks, &end, err);
    }
    close_try(job);
    return code;
}

/* -- and again ----------------------------------------------------------------------- */

/* False: a signal came instead, which is in the job then. */
static bool pause_seconds(struct launch_job *job, int seconds)
{
    double end = clock_seconds() + seconds;
    for (double left; (left = end - clock_seconds()) > 0 && !job->stop_signal;) {
        struct epoll_event event;
        if (epoll_wait(job->epoll_fd, &event, 1, (int)(left * 1000) + 1) == 1)
            launch_take_signals(job);
    }
    return !job->stop_signal;
}

/* The job died as *err tells and is to be started again: say so, and wait. -1 with the
 * signal in *err when one came. */
static int prepare_restart(struct launch_job *job, int64_t step, struct error *err)
{
    const struct launch_restart *r = &job->restart;
    int seconds = launch_restart_pause(r->n_restarts);
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
    const struct launch_resume *resume = job->opt->resume;
    *step = -1;
    return resume ? resume->next(resume->context, argv, step, err) : 0;
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
    switch (launch_restart_decide(&job->restart, step)) {
    case LAUNCH_AGAIN:
        return prepare_restart(job, step, err);
    case LAUNCH_SPENT:
        return error_prefix(err, "after %lld restart%s", (long long)job->restart.most,
                            job->restart.most > 1 ? "s" : "");
    case LAUNCH_LOOP:
        break;
    }
    char newest[64] = "without a checkpoint";
    if (job->restart.newest_step >= 0)
        snprintf(newest, sizeof newest, "without a checkpoint after step %lld",
                 (long long)job->restart.newest_step);
    return error_set(err, ERROR_CRASH_LOOP,
                     "the job died %d times in a row %s, and is not started again; the "
                     "last time: %.1600s",
                     LAUNCH_IDLE_RESTARTS_MOST + 1, newest, died.text);
}

/* -- the end ------------------------------------------------------------------------- */

static void close_job(struct launch_job *job)
{
    log_tail_close(&job->tail);
    if (job->signal_fd >= 0) {
        close(job->signal_fd);
        sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    }
    if (job->inotify_fd >= 0)
        close(job->inotify_fd);
    if (job->epoll_fd >= 0)
        close(job->epoll_fd);
    if (job->lock_fd >= 0)
        close(job->lock_fd);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static int open_job(struct launch_job *job, const struct launch_options *opt,
                    struct error *err)
{
    *job = (struct launch_job){.opt = opt,
                               .dialect = launch_dialect(),
                               .lock_fd = -1,
                               .epoll_fd = -1,
                               .signal_fd = -1,
                               .inotify_fd = -1,
                               .restart = {.most = opt->max_restarts, .newest_step = -1},
                               .tail = {.fd = -1, .progress_fd = -1}};
    if (open_log_dir(job, err))
        return -1;
    log_tail_open(&job->tail, job->log_dir);
    launch_sweep_dead();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    job->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (job->epoll_fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot watch a job: %s", strerror(errno));
    return catch_signals(job, err) || watch_status_files(job, err) ? -1 : 0;
}

int launch_run(const struct launch_options *opt, char *const *argv, struct error *err)
{
    if (launch_check(opt, err))
        return error_exit_code(err);
    int code = 0;
    struct launch_job *job = malloc(sizeof *job);
    if (!job) {
        error_set(err, ERROR_RUNTIME, "out of memory for the launcher");
        return error_exit_code(err);
    }
    if (open_job(job, opt, err) ||
        look_for_checkpoint(job, &argv, &job->restart.newest_step, err))
        code = error_exit_code(err);
    for (bool is_over = code != 0; !is_over;) {
        code = run_once(job, argv, err);
        is_over = code == 0 || go_on(job, &argv, err);
    }
    close_job(job);
    free(job);
    return code ? error_exit_code(err) : 0;
}
