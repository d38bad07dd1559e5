/*
 * A job from its start to its end, and then perhaps again: the log directory and the
 * signals are the launcher's as long as it lives, all else is of one try.
 *
 * The loop in watch() waits for the beginnings and ends of the ranks of this machine, for
 * the end of mpiexec and for signals, and ten times a second looks at logs and at the
 * status files of all machines.
 *
 * How a job is ended, counted from the moment it must end (a rank failed, or the second
 * signal came): first mpiexec may do it by itself, then the launcher kills the ranks
 * where mpiexec was told not to, then asks mpiexec to end, then kills everything.
 */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "launch/launch_command.h"
#include "launch/launch_ranks.h"
#include "launch/launch_restart.h"
#include "launch/launch_sweep.h"
#include "launch/launch_verdict.h"
#include "launch/log_tail.h"
#include "launch/mpiexec_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100
#define KILL_RANKS_AFTER 1.0 // seconds, see above; longer with several hosts
#define END_MPIEXEC_AFTER 2.0
#define KILL_ALL_AFTER 3.5
#define PATIENCE_WITH_HOSTS 5.0
#define STOP_UNBEGUN_AFTER 5.0 // for ranks that are about to begin when a signal comes

/* What epoll tells beside the number of a rank that ended. */
#define EVENT_MPIEXEC ((uint64_t)LAUNCH_RANKS_MOST + 1)
#define EVENT_SIGNAL ((uint64_t)LAUNCH_RANKS_MOST + 2)
#define EVENT_OUTPUT ((uint64_t)LAUNCH_RANKS_MOST + 3)
#define EVENT_STATUS ((uint64_t)LAUNCH_RANKS_MOST + 4)

struct job {
    const struct launch_options *opt;
    const struct launch_dialect *dialect;
    char log_dir[PATH_MAX]; // absolute
    int lock_fd, epoll_fd, signal_fd, inotify_fd;
    sigset_t old_mask;
    struct log_tail tail;
    int stop_signal, n_stop_signals;
    double stop_since; // clock_seconds() of the first signal
    bool has_begun;    // a rank of it was seen, in this try or an earlier one
    struct launch_restart restart;

    // of one try
    char id[64]; // TREFOIL_JOB
    struct mpiexec_process mpiexec;
    struct launch_ranks ranks;
    bool is_mpiexec_asked_to_stop;            // because all ranks are on other machines
    double ending_since;                      // clock_seconds(); 0: nothing to end
    bool is_mpiexec_ended, is_mpiexec_killed; // it was asked to end, or killed, by us
};

/* -- start --------------------------------------------------------------------------- */

/* One job writes to a log directory at a time. */
static int open_log_dir(struct job *job, struct error *err)
{
    const char *dir = job->opt->log_dir ? job->opt->log_dir : LAUNCH_LOG_DIR;
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
        return error_set(err, ERROR_INPUT,
                         "another job is writing to log directory '%s'; give this one "
                         "its own with --log_dir",
                         dir);
    launch_sweep_logs(job->log_dir, false);
    return 0;
}

static int watch_fd(const struct job *job, int fd, uint64_t event, struct error *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = event};
    if (fd < 0 || epoll_ctl(job->epoll_fd, EPOLL_CTL_ADD, fd, &e))
        return error_set(err, ERROR_RUNTIME, "cannot watch the job: %s", strerror(errno));
    return 0;
}

/* Signals become readable instead of interrupting. SIGHUP stays ignored where it is: that
 * is what nohup means. (UCX, below MPICH, takes SIGHUP for itself before main() begins;
 * nohup is not seen through it, and a hang-up then stops the job.) */
static int catch_signals(struct job *job, struct error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaddset(&set, numbers[i]);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(&set, SIGPIPE); // writes to a terminal that is gone fail, no more
    sigprocmask(SIG_BLOCK, &set, &job->old_mask);
    return watch_fd(job, job->signal_fd, EVENT_SIGNAL, err);
}

/* A rank of this machine is to be held from its first moment: of several that died before
 * they were, none could be told to have been the first. Where the system has no watch to
 * give, looking ten times a second must do. */
static int watch_status_files(struct job *job, struct error *err)
{
    job->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (job->inotify_fd < 0 ||
        inotify_add_watch(job->inotify_fd, job->log_dir, IN_MOVED_TO) < 0)
        return 0;
    return watch_fd(job, job->inotify_fd, EVENT_STATUS, err);
}

/* Processes first: what they hold could not be removed, and they could still write. */
static int end_mpiexec(struct job *job)
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

static int start_mpiexec(struct job *job, char *const *argv, struct error *err)
{
    struct launch_command cmd = {0};
    char mpiexec[PATH_MAX], program[PATH_MAX];
    char log_dir[PATH_MAX + 32], id[96];
    // ranks record their crashes themselves; UCX below MPICH would take that from them
    const char *ucx = getenv("UCX_HANDLE_ERRORS") ? NULL : "UCX_HANDLE_ERRORS=none";
    const char *const environment[] = {log_dir, id, ucx, NULL};
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return error_set(err, ERROR_RUNTIME, "cannot read /proc/self/exe: %s",
                         strerror(errno));
    program[n] = '\0';
    snprintf(log_dir, sizeof log_dir, "%s=%s", LAUNCH_ENV_LOG_DIR, job->log_dir);
    snprintf(id, sizeof id, "%s=%s", LAUNCH_ENV_JOB, job->id);
    int rc = mpiexec_find(job->dialect, mpiexec, sizeof mpiexec, err) ||
                     launch_command_build(&cmd, job->dialect, mpiexec, program, job->opt,
                                          geteuid() == 0, argv, err) ||
                     mpiexec_open(&job->mpiexec, job->dialect, &cmd, environment, err) ||
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

/* -- the loop ------------------------------------------------------------------------ */

static void take_signal(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (job->n_stop_signals++ == 0) {
            job->stop_signal = (int)info.ssi_signo;
            job->stop_since = clock_seconds();
        } else if (job->ending_since <= 0) // mpiexec has had its time
            job->ending_since = clock_seconds() - END_MPIEXEC_AFTER;
    }
}

static void take_status_files(struct job *job)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t n;
    while ((n = read(job->inotify_fd, events, sizeof events)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(events + at);
            if (e->len > 0)
                launch_ranks_look_at(&job->ranks, rank_of_status_file(e->name));
            at += (ssize_t)(sizeof *e + e->len);
        }
}

/* Ranks that begin after the signal came are asked as they become known. Ranks of other
 * machines learn it from those of this one, as they agree on every step; only when there
 * is none here must mpiexec pass it on. */
static void ask_to_stop(struct job *job)
{
    launch_ranks_ask_to_stop(&job->ranks);
    if (job->ranks.n_local > 0 || job->is_mpiexec_asked_to_stop ||
        !launch_ranks_any_known(&job->ranks))
        return;
    pidfd_send_signal(job->mpiexec.pidfd, job->dialect->stop_signal, NULL, 0);
    job->is_mpiexec_asked_to_stop = true;
}

/* Whether the job must end: a rank failed; or it is to stop, and after a while there is
 * still no rank that could be asked to, as when a host does not answer. */
static bool must_end(const struct job *job)
{
    if (launch_ranks_first_failure(&job->ranks) >= 0)
        return true;
    return job->n_stop_signals > 0 && !launch_ranks_any_known(&job->ranks) &&
           clock_seconds() - job->stop_since > STOP_UNBEGUN_AFTER;
}

/* The next step towards the end of a job that must end; see the top of this file. */
static void press_on(struct job *job)
{
    bool has_hosts = job->opt->hosts || job->opt->hostfile;
    double seconds = clock_seconds() - job->ending_since;
    bool is_patient = has_hosts && job->n_stop_signals < 2;
    double patience =
        is_patient && launch_ranks_any_known(&job->ranks) ? PATIENCE_WITH_HOSTS : 1;
    if (seconds >= KILL_RANKS_AFTER * patience && !job->dialect->kills_job)
        launch_ranks_kill(&job->ranks);
    if (seconds >= END_MPIEXEC_AFTER * patience && !job->is_mpiexec_ended) {
        job->is_mpiexec_ended = true;
        pidfd_send_signal(job->mpiexec.pidfd, SIGTERM, NULL, 0);
    }
    if (seconds >= KILL_ALL_AFTER * patience && !job->is_mpiexec_killed) {
        job->is_mpiexec_killed = true;
        pidfd_send_signal(job->mpiexec.pidfd, SIGKILL, NULL, 0);
        launch_ranks_kill(&job->ranks);
    }
}

static void tick(struct job *job)
{
    log_tail_copy(&job->tail);
    launch_ranks_look(&job->ranks);
    if (job->n_stop_signals > 0)
        ask_to_stop(job);
    if (job->ending_since <= 0 && must_end(job))
        job->ending_since = clock_seconds();
    if (job->ending_since > 0)
        press_on(job);
}

/* Until mpiexec has ended. */
static void watch(struct job *job)
{
    struct epoll_event events[64];
    double next_tick = clock_seconds();
    for (bool is_over = false; !is_over;) {
        int n = epoll_wait(job->epoll_fd, events, ARRAY_LEN(events), TICK_MS);
        for (int i = 0; i < n; i++) {
            uint64_t event = events[i].data.u64;
            if (event == EVENT_MPIEXEC)
                is_over = true;
            else if (event == EVENT_SIGNAL)
                take_signal(job);
            else if (event == EVENT_STATUS)
                take_status_files(job);
            else if (event == EVENT_OUTPUT && events[i].events & EPOLLIN)
                mpiexec_listen(&job->mpiexec);
            else if (event == EVENT_OUTPUT) // closed: nothing more will come
                epoll_ctl(job->epoll_fd, EPOLL_CTL_DEL, job->mpiexec.output, NULL);
            else
                launch_ranks_note_end(&job->ranks, (int)event);
        }
        if (n == 0 || clock_seconds() >= next_tick) {
            tick(job);
            next_tick = clock_seconds() + TICK_MS / 1000.0;
        }
    }
}

/* -- one try ------------------------------------------------------------------------- */

static int open_try(struct job *job, struct error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(job->id, sizeof job->id, "%d.%lld.%ld", (int)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    job->mpiexec = (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1};
    job->is_mpiexec_asked_to_stop = false;
    job->is_mpiexec_ended = job->is_mpiexec_killed = false;
    job->ending_since = 0;
    return launch_ranks_init(&job->ranks, job->log_dir, job->opt->n_ranks, job->epoll_fd,
                             err);
}

static void close_try(struct job *job)
{
    job->has_begun = job->has_begun || launch_ranks_any_known(&job->ranks);
    mpiexec_close(&job->mpiexec);
    launch_ranks_release(&job->ranks);
    launch_sweep_logs(job->log_dir, true);
}

/* Start the job and stay with it to its end; its exit code. */
static int run_once(struct job *job, char *const *argv, struct error *err)
{
    int code;
    if (open_try(job, err) || start_mpiexec(job, argv, err))
        code = error_exit_code(err);
    else {
        watch(job);
        struct launch_end end = {.wait_status = end_mpiexec(job),
                                 .mpiexec = job->mpiexec.pid,
                                 .said = job->mpiexec.said,
                                 .stop_signal = job->stop_signal,
                                 .n_stop_signals = job->n_stop_signals,
                                 .is_mpiexec_killed = job->is_mpiexec_killed};
        code = launch_verdict(&job->ranks, &end, err);
    }
    close_try(job);
    return code;
}

/* -- and again ----------------------------------------------------------------------- */

/* False: a signal came instead, which is in the job then. */
static bool pause_seconds(struct job *job, int seconds)
{
    double end = clock_seconds() + seconds;
    for (double left; (left = end - clock_seconds()) > 0 && job->n_stop_signals == 0;) {
        struct epoll_event event;
        if (epoll_wait(job->epoll_fd, &event, 1, (int)(left * 1000) + 1) == 1)
            take_signal(job);
    }
    return job->n_stop_signals == 0;
}

/* The job died as *err tells and is to be started again: say so, and wait. -1 with the
 * signal in *err when one came. */
static int prepare_restart(struct job *job, int64_t step, struct error *err)
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
    return error_set(err, ERROR_STOPPED,
                     "the job was stopped by SIG%s while it waited to be started again, "
                     "and can be resumed",
                     sigabbrev_np(job->stop_signal));
}

/* Words and newest checkpoint as they are now. */
static int look_for_checkpoint(const struct job *job, char *const **argv, int64_t *step,
                               struct error *err)
{
    const struct launch_resume *resume = job->opt->resume;
    *step = -1;
    return resume ? resume->next(resume->context, argv, step, err) : 0;
}

/* Whether the job that ended as *err tells goes on: 0, with the words for it; otherwise
 * -1, with all that is to be said in *err. */
static int go_on(struct job *job, char *const **argv, struct error *err)
{
    struct error died = *err;
    int64_t step;
    if (died.kind != ERROR_RUNTIME || !job->has_begun || job->n_stop_signals > 0 ||
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

static void close_job(struct job *job)
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

static int open_job(struct job *job, const struct launch_options *opt, struct error *err)
{
    *job = (struct job){.opt = opt,
                        .dialect = launch_dialect(),
                        .lock_fd = -1,
                        .epoll_fd = -1,
                        .signal_fd = -1,
                        .inotify_fd = -1,
                        .restart = {.most = opt->max_restarts, .newest_step = -1},
                        .tail = {.log_dir = job->log_dir, .fd = -1}};
    if (open_log_dir(job, err))
        return -1;
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
    struct job *job = malloc(sizeof *job);
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
