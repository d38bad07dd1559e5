/*
 * A job from its start to its end, and then perhaps again: the log directory, the signals
 * and the directory of the job are the launcher's as long as it lives, all else is of one
 * try. The loop waits for the ends of the ranks of this machine, for the end of mpiexec and
 * for signals, and ten times a second looks at the log and at all ranks.
 *
 * How a job is ended, counted from the moment it must end (a rank failed or hangs, ranks
 * do not begin, or the second signal came): first mpiexec may do it by itself, then the
 * launcher kills the ranks, then everything.
 */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "comm/comm.h"
#include "launch/job_files.h"
#include "launch/job_watch.h"
#include "launch/restart.h"
#include "launch/verdict.h"
#include "launch/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100
#define AGAIN_SECONDS 2.0    // a signal that comes sooner after the first is the same
#define KILL_RANKS_AFTER 1.0 // seconds, see above
#define KILL_ALL_AFTER 2.5
#define KILL_ALL_OF_HOSTS_AFTER 6.0
#define STOP_UNBEGUN_AFTER 5.0 // for ranks that are about to begin when a signal comes
#define BEGIN_WITHIN 45.0      // seconds after the rank before, or after mpiexec
#define BEGIN_WITHIN_COMPLAINT 30.0 // the same, when mpiexec has complained
#define END_WITHIN 10.0             // for mpiexec, when all ranks have ended
#define LAST_WORDS_WITHIN 3.0       // from other hosts, when mpiexec has ended

struct launch_job {
    const struct launch_options *opt;
    const struct mpiexec_dialect *dialect;
    struct job_files files;
    int signal_fd;
    sigset_t old_mask;
    int write_errno;    // what rank 0 printed could not be passed on; 0: it could
    double stop_since;  // clock_seconds() of the first signal
    struct job_end end; // what is known of it so far
    bool has_hosts;     // that the user named
    bool is_woken;      // mpiexec was stopped, and has been continued
    bool has_begun;     // a rank of it was seen, in this try or an earlier one
    pid_t teller;       // a child that is not the job's, see opt->tell; 0: none
    struct restart restart;

    // of one try
    char try_dir[PATH_MAX + 64]; // in `dir`: all that goes with it
    struct mpiexec_process mpiexec;
    struct job_watch watch;
    char hang[2048];     // why the job was ended; "": it does not hang
    double started_at;   // clock_seconds() of mpiexec's start
    double ending_since; // clock_seconds(); 0: nothing to end
    double all_ended_at; // every rank had said that it ended; 0: not yet
};

/* -- news ---------------------------------------------------------------------------- */

static void tell(struct launch_job *job, const struct launch_news *news)
{
    if (job->opt->tell)
        job->teller = job->opt->tell(job->opt->tell_context, news);
}

/* `rank` is whose news it is, -1: nobody's. */
static void tell_of(struct launch_job *job, bool is_stall, int rank, const char *text,
                    enum error_kind kind)
{
    const struct job_watch *w = &job->watch;
    int of = rank >= 0 ? rank : 0;
    bool is_known = w->seen && w->n_ranks > of && w->seen[of].is_seen;
    tell(job, &(struct launch_news){.is_stall = is_stall,
                                    .is_diverged = !is_stall && kind == ERROR_DIVERGED,
                                    .rank = rank,
                                    .step = is_known ? w->seen[of].step : -1,
                                    .text = text});
}

/* -- start --------------------------------------------------------------------------- */

/* What mpiexec and its ranks are told: they get the environment of this process. */
static void set_environment(const struct launch_job *job, const char *contact)
{
    const char *arguments = job->opt->rsh ? strchr(job->opt->rsh, ' ') : NULL;
    setenv(COMM_ENV_JOB, job->try_dir, 1);
    setenv(WORKER_ENV_LOG_DIR, job->files.log_dir, 1);
    setenv(WORKER_ENV_WATCH, contact, 1);
    if (job->opt->has_output)
        setenv(WORKER_ENV_OUTPUT, "1", 1);
    if (job->opt->is_oversubscribed)
        setenv(WORKER_ENV_OVERSUBSCRIBE, "1", 1);
    if (arguments && job->dialect->rsh_arguments)
        setenv(job->dialect->rsh_arguments, arguments + 1, 1);
    // what Open MPI makes goes with the job; the name of a socket there must not be long
    if (strlen(job->files.dir) + strlen(job->watch.here.host) < 60)
        setenv("OMPI_MCA_orte_local_tmpdir_base", job->files.dir, 0);
    // ranks record their crashes themselves; UCX below MPICH would take that from them
    setenv("UCX_HANDLE_ERRORS", "none", 0);
}

static int open_try(struct launch_job *job, struct error *err)
{
    char path[PATH_MAX], contact[WATCH_CONTACT_BYTES] = "";
    job->mpiexec =
        (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1, .results = -1};
    job->end.is_mpiexec_killed = job->end.is_unbegun = false;
    job->ending_since = job->all_ended_at = 0;
    job->started_at = clock_seconds();
    job->hang[0] = '\0';
    snprintf(job->try_dir, sizeof job->try_dir, "%s/%d.%lld", job->files.dir,
             (int)getpid(), (long long)job->restart.n_restarts);
    if (mkdir(job->try_dir, 0700))
        return error_set(err, ERROR_RUNTIME, "cannot make '%s': %s", job->try_dir,
                         strerror(errno));
    beat_path(path, sizeof path, job->try_dir);
    if (job_watch_open(&job->watch, path, (int)job->opt->n_ranks, contact, err))
        return -1;
    struct beat_file *file = job->watch.here.file;
    atomic_store(&file->watcher, (int)getpid());
    atomic_store(&file->is_shown, log_is_terminal());
    for (int r = 0; r < job->opt->n_ranks; r++) // it is read here
        atomic_store(&file->slots[r].is_reported, 1);
    set_environment(job, contact);
    return 0;
}

static int start_mpiexec(struct launch_job *job, char *const *argv, struct error *err)
{
    struct mpiexec_command cmd = {0};
    char mpiexec[PATH_MAX], program[PATH_MAX] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return error_set(err, ERROR_RUNTIME, "cannot read /proc/self/exe: %s",
                         strerror(errno));
    bool failed =
        mpiexec_find(job->dialect, mpiexec, sizeof mpiexec, err) ||
        mpiexec_command_build(&cmd, job->dialect, mpiexec, program, job->opt,
                              geteuid() == 0, argv, err) ||
        mpiexec_open(&job->mpiexec, job->dialect, &cmd, job->opt->has_output, err);
    mpiexec_command_release(&cmd);
    return failed ? -1 : 0;
}

/* -- signals ------------------------------------------------------------------------- */

/* SIGTSTP, as by ^Z on a terminal: the ranks are stopped first, and continued after SIGCONT.
 * The kernel stops this process only where a shell can continue it. */
static void pause_job(struct launch_job *job)
{
    double begin = clock_seconds();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    log_info("the job is paused; fg or SIGCONT continues it");
    if (job->watch.seen)
        job_watch_pause(&job->watch);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL); // stops here
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (job->watch.seen)
        job_watch_continue(&job->watch);
    double seconds = clock_seconds() - begin;
    log_info("the job continues after a pause of %.1f s", seconds);
    double *const times[] = {&job->stop_since, &job->started_at, &job->ending_since,
                             &job->all_ended_at};
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        *times[i] += *times[i] > 0 ? seconds : 0;
}

/* The ranks are asked within a tick, but a step may be long: so it is acknowledged, unless
 * it is no wish of a user's. */
static void take_signals(struct launch_job *job)
{
    struct signalfd_siginfo info;
    const struct seen_rank *seen = job->watch.seen;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        double now = clock_seconds();
        if (info.ssi_signo == SIGTSTP) {
            pause_job(job);
            continue;
        }
        if (job->end.stop_signal && now - job->stop_since >= AGAIN_SECONDS) {
            job->end.is_stop_repeated = true;
            job->ending_since = now - KILL_ALL_OF_HOSTS_AFTER; // there was time enough
            job_watch_kill(&job->watch);
        }
        if (job->end.stop_signal)
            continue;
        job->end.stop_signal = (int)info.ssi_signo;
        job->stop_since = now;
        if (info.ssi_pid == (uint32_t)getpid())
            continue;
        if (seen) // the step of now, not of the last look
            job_watch_look(&job->watch, 0);
        if (seen && seen[0].is_seen && seen[0].step > 0)
            log_info("finishing step %lld; again to stop now", (long long)seen[0].step);
        else
            log_info("stopping; again to stop now");
    }
}

/* -- the end ------------------------------------------------------------------------- */

/* Whether the job must end: a rank failed or hangs; ranks do not begin, because a host does
 * not answer or mpiexec is stuck (each that begins gives the others more time); or it is to
 * stop, and after a while there is still no rank that could be asked to. */
static bool must_end(struct launch_job *job)
{
    const struct job_watch *w = &job->watch;
    double since = w->begun_at > 0 ? w->begun_at : job->started_at;
    double most = job->mpiexec.n_said > 0 ? BEGIN_WITHIN_COMPLAINT : BEGIN_WITHIN;
    if (job_watch_first_failure(w->seen, w->n_ranks) >= 0 || job->hang[0])
        return true;
    job->end.is_unbegun =
        !job->end.stop_signal && w->n_seen < w->n_ranks && clock_seconds() - since > most;
    return job->end.is_unbegun ||
           (job->end.stop_signal && w->n_seen == 0 &&
            clock_seconds() - job->stop_since > STOP_UNBEGUN_AFTER);
}

static void end_in_time(struct launch_job *job)
{
    double now = clock_seconds();
    double most = job->has_hosts ? KILL_ALL_OF_HOSTS_AFTER : KILL_ALL_AFTER;
    if (job->ending_since <= 0 && must_end(job)) {
        job->ending_since = now;
        job->mpiexec.is_heard = job->end.is_unbegun; // from here on it tells of our doing
    }
    if (job->ending_since > 0 && now - job->ending_since >= KILL_RANKS_AFTER)
        job_watch_kill(&job->watch);
    if (job->all_ended_at <= 0 &&
        job_watch_first_unfinished(job->watch.seen, job->watch.n_ranks) < 0)
        job->all_ended_at = now; // all work is done: mpiexec has only to leave
    if ((job->ending_since > 0 && now - job->ending_since >= most) ||
        (job->all_ended_at > 0 && now - job->all_ended_at > END_WITHIN)) {
        pidfd_send_signal(job->mpiexec.pidfd, SIGKILL, NULL, 0);
        job->end.is_mpiexec_killed = true;
    }
}

/* Whether all ranks that are still there have done their work and wait for MPI to let them
 * go, which mpiexec has a part in. */
static bool are_all_leaving(const struct job_watch *w)
{
    bool is_any = false;
    for (int r = 0; r < w->n_ranks; r++) {
        bool is_leaving = w->seen[r].is_seen && w->seen[r].action == BEAT_LEAVE;
        if (!w->seen[r].is_over && !is_leaving)
            return false;
        is_any |= is_leaving && !w->seen[r].is_over;
    }
    return is_any;
}

/* No rank can leave MPI while mpiexec is stopped. */
static void wake_mpiexec(struct launch_job *job)
{
    if ((!job->end.stop_signal && !are_all_leaving(&job->watch)) ||
        !host_watch_is_stopped(job->mpiexec.pid))
        return;
    if (!job->is_woken)
        log_warning(
            "mpiexec (pid %d) is stopped, and the job cannot end without it: it is "
            "continued",
            (int)job->mpiexec.pid);
    job->is_woken = true;
    pidfd_send_signal(job->mpiexec.pidfd, SIGCONT, NULL, 0);
}

/* -- the loop ------------------------------------------------------------------------ */

/* Say on the terminal what was found, and keep the message with which the job ends. */
static void judge_hang(struct launch_job *job)
{
    char who[1024], step[40] = "", log[PATH_MAX], where[PATH_MAX + 64] = "";
    struct job_watch *w = &job->watch;
    enum hang_decision decision =
        job_watch_judge(w, job->end.stop_signal != 0, who, sizeof who);
    if (w->hang.is_deadlock && are_all_leaving(w))
        snprintf(who, sizeof who,
                 "mpiexec (pid %d) or a daemon of it does not respond, and no rank can "
                 "leave MPI",
                 (int)job->mpiexec.pid);
    if (decision != HANG_NONE) {
        job_watch_log_table(w);
        tell_of(job, true, w->hang.culprit, who, ERROR_RUNTIME);
    }
    if (decision == HANG_NAMED)
        log_warning("%s and makes no progress; the job goes on, and is ended in such a "
                    "case where hang_timeout is set",
                    who);
    if (decision != HANG_ENDS)
        return;
    int r = w->hang.culprit;
    job_files_log_path(log, sizeof log, job->files.log_dir, r >= 0 ? r : 0);
    if (r >= 0 && w->seen[r].step >= 0)
        snprintf(step, sizeof step, " at step %lld", (long long)w->seen[r].step);
    if (!job->opt->is_log_temporary)
        snprintf(where, sizeof where, "; stacks are in the logs, as in '%s'", log);
    snprintf(job->hang, sizeof job->hang,
             "%s%s: the job made no progress for %.1f s and was ended%.700s", who, step,
             w->hang.seconds, where);
}

/* What rank 0 prints goes to our standard output, at most as much at once as a pipe takes
 * without waiting. After a failure it is read all the same, so that the job is not held up
 * before it has stopped; Hydra has its own words in it then. False: the reader does not
 * read. */
static bool copy_results(struct launch_job *job)
{
    char buf[PIPE_BUF];
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    for (ssize_t n = 1; n > 0;) {
        if (poll(&out, 1, 0) == 0)
            return false;
        n = read(job->mpiexec.results, buf, sizeof buf);
        if (n > 0 && !job->write_errno && job->ending_since <= 0 &&
            fs_write_exact(STDOUT_FILENO, buf, (size_t)n)) {
            job->write_errno = errno;
            job->end.stop_signal = job->end.stop_signal ? job->end.stop_signal : SIGTERM;
            job->stop_since = clock_seconds();
        }
    }
    return true;
}

static void show_line(void *context, const char *line)
{
    struct launch_job *job = context;
    job_files_show_line(&job->files, line);
}

static void stay_with(struct launch_job *job)
{
    struct pollfd fds[] = {{.fd = job->mpiexec.pidfd, .events = POLLIN},
                           {.fd = job->signal_fd, .events = POLLIN},
                           {.fd = job->watch.here.deaths_fd, .events = POLLIN},
                           {.fd = job->mpiexec.output, .events = POLLIN},
                           {.fd = job->mpiexec.results, .events = POLLIN}};
    double next_tick = 0;
    while (!(fds[0].revents & POLLIN)) {
        poll(fds, ARRAY_LEN(fds), TICK_MS);
        if (fds[1].revents)
            take_signals(job);
        // not to its end: a terminal may be slower than the job, and signals wait
        (void)mpiexec_listen(&job->mpiexec, WORKER_LOG_MARK, show_line, job);
        bool is_read = job->mpiexec.results < 0 || copy_results(job);
        fds[4].events = is_read ? POLLIN : 0;
        for (int i = 3; i < 5; i++)
            if (fds[i].revents & ~POLLIN)
                fds[i].fd = -1; // closed: nothing more will come
        if (!fds[1].revents && !fds[2].revents && clock_seconds() < next_tick)
            continue;
        next_tick = clock_seconds() + TICK_MS / 1000.0;
        job_watch_look(&job->watch, job->end.stop_signal);
        wake_mpiexec(job);
        judge_hang(job); // needs no file of the job's
        job_files_show_progress(&job->files, job->watch.here.file);
        end_in_time(job);
        tell(job, NULL);
    }
}

/* -- one try ------------------------------------------------------------------------- */

/* Whether there may be more to hear: of a rank of another host that has not said how it
 * ended, or that began only now. */
static bool is_word_missing(const struct launch_job *job)
{
    const struct job_watch *w = &job->watch;
    for (int r = 0; r < w->n_ranks; r++)
        if (w->seen[r].is_seen
                ? w->seen[r].state == BEAT_ALIVE && w->seen[r].condition != RANK_GONE &&
                      w->seen[r].condition != RANK_OUT_OF_REACH
                : w->n_seen > 0 && job->has_hosts)
            return true;
    return false;
}

/* Ranks that are left, here and on other hosts, end with it; then all processes. */
static int end_mpiexec(struct launch_job *job)
{
    static const struct timespec nap = {.tv_nsec = 20000000};
    int status = 0;
    while (waitpid(job->mpiexec.pid, &status, 0) < 0 && errno == EINTR)
        continue;
    double begin = clock_seconds();
    job_watch_look(&job->watch, 0);
    job_watch_kill(&job->watch);
    while (is_word_missing(job) && clock_seconds() - begin < LAST_WORDS_WITHIN &&
           nanosleep(&nap, NULL) == 0)
        job_watch_look(&job->watch, 0);
    job_files_kill_processes(&job->files, job->teller);
    job_watch_look(&job->watch, 0);
    while (mpiexec_listen(&job->mpiexec, WORKER_LOG_MARK, show_line, job))
        continue;
    while (job->mpiexec.results >= 0 && !copy_results(job))
        poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, TICK_MS);
    return status;
}

/* 0, or -1 with how it ended in *err. */
static int run_once(struct launch_job *job, char *const *argv, struct error *err)
{
    struct error ignored;
    int rc = -1;
    if (open_try(job, err) == 0 && start_mpiexec(job, argv, err) == 0) {
        stay_with(job);
        job->end.wait_status = end_mpiexec(job);
        job->end.ranks = job->watch.seen;
        job->end.host = job->watch.here.host;
        job->end.mpiexec = job->mpiexec.pid;
        rc = verdict(&job->end, err) ? -1 : 0;
        if (rc == 0 && job->hang[0])
            log_warning("%s; its work was done", job->hang);
        if (rc && !job->end.stop_signal)
            tell_of(job, false,
                    job_watch_first_failure(job->watch.seen, job->watch.n_ranks),
                    err->text, err->kind);
        job->has_begun = job->has_begun || job->watch.n_seen > 0;
    }
    mpiexec_close(&job->mpiexec);
    job_watch_close(&job->watch);
    int unused = fs_remove_tree(job->try_dir, &ignored);
    (void)unused; // goes with the directory of the job, or by the next one
    return rc;
}

/* -- and again ----------------------------------------------------------------------- */

/* The job died as *err tells and is to be started again: say so, and wait. -1 with the
 * signal in *err when one came. */
static int prepare_restart(struct launch_job *job, int64_t step, struct error *err)
{
    const struct restart *r = &job->restart;
    struct pollfd fd = {.fd = job->signal_fd, .events = POLLIN};
    int seconds = restart_pause(r->n_restarts);
    char from[64] = "from the beginning";
    if (step >= 0)
        snprintf(from, sizeof from, "resuming from step %lld", (long long)step);
    log_warning("%s. Restart %lld of %lld in %d s, %s", err->text,
                (long long)r->n_restarts, (long long)r->most, seconds, from);
    double end = clock_seconds() + seconds;
    for (double left; (left = end - clock_seconds()) > 0 && !job->end.stop_signal;)
        if (poll(&fd, 1, (int)(left * 1000) + 1) == 1)
            take_signals(job);
    if (!job->end.stop_signal)
        return 0;
    return error_set(err, step >= 0 ? ERROR_STOPPED : ERROR_RUNTIME,
                     "the job was stopped by SIG%s while it waited to be started again, "
                     "and %s",
                     sigabbrev_np(job->end.stop_signal),
                     step >= 0 ? "can be resumed" : "has saved nothing");
}

/* Words and newest checkpoint as they are now. */
static int find_checkpoint(const struct launch_job *job, char *const **argv,
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
    if (died.kind != ERROR_RUNTIME || !job->has_begun || job->end.stop_signal ||
        job->opt->max_restarts == 0)
        return -1;
    if (find_checkpoint(job, argv, &step, err))
        return error_prefix(err, "%.400s. It is not started again", died.text);
    enum restart_decision decision = restart_decide(&job->restart, step);
    if (decision == RESTART_AGAIN)
        return prepare_restart(job, step, err);
    if (decision == RESTART_SPENT)
        return error_prefix(err, "after %lld restart%s", (long long)job->restart.most,
                            job->restart.most > 1 ? "s" : "");
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
    struct sigaction hangup, suspend;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    if (sigaction(SIGHUP, NULL, &hangup) || hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    if (sigaction(SIGTSTP, NULL, &suspend) || suspend.sa_handler != SIG_IGN)
        sigaddset(&set, SIGTSTP);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigprocmask(SIG_BLOCK, &set, &job->old_mask);
    if (job->signal_fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot watch a job: %s", strerror(errno));
    return 0;
}

static void close_job(struct launch_job *job)
{
    if (job->signal_fd >= 0) {
        close(job->signal_fd);
        sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    }
    job_files_close(&job->files);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

int launch_run(const struct launch_options *opt, char *const *argv, struct error *err)
{
    struct launch_job job = {.opt = opt,
                             .dialect = mpiexec_dialect(),
                             .signal_fd = -1,
                             .has_hosts = opt->hosts || opt->hostfile,
                             .restart = {.most = opt->max_restarts},
                             .end = {.opt = opt,
                                     .log_dir = job.files.log_dir,
                                     .said = job.mpiexec.said,
                                     .hang = job.hang}};
    if (launch_check(opt, err))
        return error_exit_code(err);
    bool failed = job_files_open(&job.files, opt, err) || catch_signals(&job, err) ||
                  stop_check(err) || // by a signal that came before
                  find_checkpoint(&job, &argv, &job.restart.newest_step, err);
    for (bool is_over = failed; !is_over;) {
        failed = run_once(&job, argv, err) != 0;
        is_over = !failed || go_on(&job, &argv, err);
    }
    close_job(&job);
    if (job.write_errno) // it is why the job was stopped
        failed = error_set(err, ERROR_RUNTIME, "cannot write to standard output: %s",
                           strerror(job.write_errno)) != 0;
    return failed ? error_exit_code(err) : 0;
}
