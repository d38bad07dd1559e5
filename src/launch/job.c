/*
 * The loop waits for the ends of the ranks of this machine, for the end of mpiexec and for
 * signals, and ten times a second looks at the log and at all ranks.
 *
 * How a job is ended, counted from the moment it must end (a rank failed or hangs, ranks
 * do not begin, or the second signal came): first mpiexec may do it by itself, then the
 * launcher kills the ranks, then everything.
 */
#include "launch/job.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "comm/comm.h"
#include "launch/verdict.h"
#include "launch/worker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
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

/* -- start --------------------------------------------------------------------------- */

static bool has_hosts(const struct launch_job *job)
{
    return job->opt->hosts || job->opt->hostfile;
}

/* Whether mpiexec may start ranks on other hosts: also by itself, in a batch system. */
static bool may_spread(const struct launch_job *job)
{
    static const char *const batch[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                        "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile"};
    bool is_batch = false;
    for (size_t i = 0; i < ARRAY_LEN(batch); i++)
        is_batch = is_batch || getenv(batch[i]);
    return is_batch || has_hosts(job);
}

/* What mpiexec and its ranks are told: they get the environment of this process. */
static void set_environment(const struct launch_job *job, const char *contact)
{
    const char *arguments = job->opt->rsh ? strchr(job->opt->rsh, ' ') : NULL;
    setenv(COMM_ENV_JOB, job->try_dir, 1);
    setenv(WORKER_ENV_LOG_DIR, job->log_dir, 1);
    setenv(WORKER_ENV_WATCH, contact, 1);
    if (job->opt->is_oversubscribed)
        setenv(WORKER_ENV_OVERSUBSCRIBE, "1", 1);
    if (arguments && job->dialect->rsh_arguments)
        setenv(job->dialect->rsh_arguments, arguments + 1, 1);
    // what Open MPI makes goes with the job; the name of a socket there must not be long
    if (strlen(job->dir.path) + strlen(job->watch.here.host) < 60)
        setenv("OMPI_MCA_orte_local_tmpdir_base", job->dir.path, 0);
    // ranks record their crashes themselves; UCX below MPICH would take that from them
    setenv("UCX_HANDLE_ERRORS", "none", 0);
}

static int open_try(struct launch_job *job, struct error *err)
{
    char path[PATH_MAX], contact[WATCH_CONTACT_BYTES] = "";
    job->mpiexec = (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1};
    job->is_mpiexec_killed = job->is_unbegun = false;
    job->ending_since = job->all_ended_at = 0;
    job->started_at = clock_seconds();
    job->hang[0] = '\0';
    snprintf(job->try_dir, sizeof job->try_dir, "%s/%d.%lld", job->dir.path,
             (int)getpid(), (long long)job->restart.n_restarts);
    if (mkdir(job->try_dir, 0700))
        return error_set(err, ERROR_RUNTIME, "cannot make '%s': %s", job->try_dir,
                         strerror(errno));
    beat_path(path, sizeof path, job->try_dir);
    if (job_watch_open(&job->watch, path, (int)job->opt->n_ranks, err))
        return -1;
    struct beat_file *file = job->watch.here.file;
    atomic_store(&file->watcher, (int)getpid());
    atomic_store(&file->is_shown, log_is_terminal());
    for (int r = 0; r < job->opt->n_ranks; r++) // it is read here
        atomic_store(&file->slots[r].is_reported, 1);
    if (may_spread(job))
        job_watch_listen(&job->watch, contact);
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
    int rc = mpiexec_find(job->dialect, mpiexec, sizeof mpiexec, err) ||
                     mpiexec_command_build(&cmd, job->dialect, mpiexec, program, job->opt,
                                           geteuid() == 0, argv, err) ||
                     mpiexec_open(&job->mpiexec, job->dialect, &cmd, err)
                 ? -1
                 : 0;
    mpiexec_command_release(&cmd);
    return rc;
}

/* -- signals ------------------------------------------------------------------------- */

/* The ranks are asked within a tick, but a step may be long. */
static void acknowledge(const struct launch_job *job)
{
    const struct seen_rank *seen = job->watch.seen;
    if (seen && seen[0].is_seen && seen[0].step > 0)
        log_info("finishing step %lld; again to stop now", (long long)seen[0].step);
    else
        log_info("stopping; again to stop now");
}

void job_take_signals(struct launch_job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        double now = clock_seconds();
        if (!job->stop_signal) {
            job->stop_signal = (int)info.ssi_signo;
            job->stop_since = now;
            if (info.ssi_pid != (uint32_t)getpid()) // else it is no wish of a user's
                acknowledge(job);
        } else if (now - job->stop_since >= AGAIN_SECONDS) {
            job->is_stop_repeated = true;
            job->ending_since = now - KILL_ALL_OF_HOSTS_AFTER; // there was time enough
        }
    }
}

/* -- the end ------------------------------------------------------------------------- */

/* Whether ranks that should have begun will not: a host does not answer, or mpiexec is
 * stuck. Each rank that begins gives the others more time. */
static bool is_unbegun(const struct launch_job *job)
{
    const struct job_watch *w = &job->watch;
    double since = w->begun_at > 0 ? w->begun_at : job->started_at;
    double most = job->mpiexec.n_said > 0 ? BEGIN_WITHIN_COMPLAINT : BEGIN_WITHIN;
    return w->n_seen < w->n_ranks && clock_seconds() - since > most;
}

/* Whether the job must end: a rank failed or hangs, ranks do not begin; or it is to stop,
 * and after a while there is still no rank that could be asked to. */
static bool must_end(struct launch_job *job)
{
    const struct job_watch *w = &job->watch;
    if (job_watch_first_failure(w->seen, w->n_ranks) >= 0 || job->hang[0])
        return true;
    job->is_unbegun = !job->stop_signal && is_unbegun(job);
    return job->is_unbegun || (job->stop_signal && w->n_seen == 0 &&
                               clock_seconds() - job->stop_since > STOP_UNBEGUN_AFTER);
}

static void kill_all(struct launch_job *job)
{
    if (!job->is_mpiexec_killed)
        pidfd_send_signal(job->mpiexec.pidfd, SIGKILL, NULL, 0);
    job->is_mpiexec_killed = true;
    job_watch_kill(&job->watch);
}

static void end_in_time(struct launch_job *job)
{
    double now = clock_seconds();
    double most = has_hosts(job) ? KILL_ALL_OF_HOSTS_AFTER : KILL_ALL_AFTER;
    if (job->ending_since <= 0 && must_end(job)) {
        job->ending_since = now;
        job->mpiexec.is_heard = job->is_unbegun; // from here on it tells of our doing
    }
    if (job->ending_since > 0 && now - job->ending_since >= KILL_RANKS_AFTER)
        job_watch_kill(&job->watch);
    if (job_watch_first_unfinished(job->watch.seen, job->watch.n_ranks) >= 0)
        job->all_ended_at = 0;
    else if (job->all_ended_at <= 0)
        job->all_ended_at = now; // all work is done: mpiexec has only to leave
    if ((job->ending_since > 0 && now - job->ending_since >= most) ||
        (job->all_ended_at > 0 && now - job->all_ended_at > END_WITHIN))
        kill_all(job);
}

/* -- the loop ------------------------------------------------------------------------ */

/* Say on the terminal what was found, and keep the message with which the job ends. */
static void judge_hang(struct launch_job *job)
{
    char who[1024], *table = NULL, step[40] = "", log[PATH_MAX],
                    where[PATH_MAX + 64] = "";
    struct job_watch *w = &job->watch;
    enum hang_decision decision =
        job_watch_judge(w, job->stop_signal != 0, &table, who, sizeof who);
    if (decision != HANG_NONE)
        log_warning("%s", table ? table : "");
    free(table);
    if (decision == HANG_NAMED)
        log_warning("%s and makes no progress; the job goes on, and is ended in such a "
                    "case where hang_timeout is set",
                    who);
    if (decision != HANG_ENDS)
        return;
    int r = w->hang.culprit;
    worker_log_path(log, sizeof log, job->log_dir, r >= 0 ? r : 0);
    if (r >= 0 && w->seen[r].step >= 0)
        snprintf(step, sizeof step, " at step %lld", (long long)w->seen[r].step);
    if (!job->opt->is_log_temporary)
        snprintf(where, sizeof where, "; stacks are in the logs, as in '%s'", log);
    snprintf(job->hang, sizeof job->hang,
             "%s%s: the job made no progress for %.1f s and was ended%.700s", who, step,
             w->hang.seconds, where);
}

static void show_line(void *context, const char *line)
{
    struct launch_job *job = context;
    log_tail_show(&job->tail, line);
}

static void stay_with(struct launch_job *job)
{
    struct pollfd fds[] = {{.fd = job->mpiexec.pidfd, .events = POLLIN},
                           {.fd = job->signal_fd, .events = POLLIN},
                           {.fd = job->watch.here.deaths_fd, .events = POLLIN},
                           {.fd = job->mpiexec.output, .events = POLLIN}};
    double next_tick = 0;
    while (!(fds[0].revents & POLLIN)) {
        poll(fds, ARRAY_LEN(fds), TICK_MS);
        if (fds[1].revents)
            job_take_signals(job);
        mpiexec_listen(&job->mpiexec, WORKER_LOG_MARK, show_line, job);
        if (fds[3].revents & ~POLLIN)
            fds[3].fd = -1; // closed: nothing more will come
        if (!fds[1].revents && !fds[2].revents && clock_seconds() < next_tick)
            continue;
        next_tick = clock_seconds() + TICK_MS / 1000.0;
        job_watch_look(&job->watch, job->stop_signal);
        judge_hang(job); // needs no file of the job's
        log_tail_copy(&job->tail, job->watch.here.file);
        end_in_time(job);
    }
}

/* -- one try ------------------------------------------------------------------------- */

/* Whether a rank of another host, which is heard of, has not said how it ended. */
static bool is_word_missing(const struct job_watch *w)
{
    for (int r = 0; r < w->n_ranks; r++)
        if (w->seen[r].is_seen && w->seen[r].state == BEAT_ALIVE &&
            w->seen[r].condition != RANK_GONE &&
            w->seen[r].condition != RANK_OUT_OF_REACH)
            return true;
    return false;
}

/* Processes first: what they hold could not be removed, and they could still write. */
static int end_mpiexec(struct launch_job *job)
{
    static const struct timespec nap = {.tv_nsec = 20000000};
    int status = 0;
    while (waitpid(job->mpiexec.pid, &status, 0) < 0 && errno == EINTR)
        continue;
    job_watch_look(&job->watch, 0);
    job_dir_kill_processes(&job->dir);
    double begin = clock_seconds();
    job->watch.is_ended = true; // others that are left on other hosts end, too
    do
        job_watch_look(&job->watch, 0);
    while (is_word_missing(&job->watch) && clock_seconds() - begin < LAST_WORDS_WITHIN &&
           nanosleep(&nap, NULL) == 0);
    mpiexec_listen(&job->mpiexec, WORKER_LOG_MARK, show_line, job);
    log_tail_copy(&job->tail, job->watch.here.file);
    return status;
}

int job_run(struct launch_job *job, char *const *argv, struct error *err)
{
    int code;
    struct error ignored;
    if (open_try(job, err) || start_mpiexec(job, argv, err))
        code = error_exit_code(err);
    else {
        stay_with(job);
        struct job_end end = {.opt = job->opt,
                              .log_dir = job->log_dir,
                              .wait_status = end_mpiexec(job),
                              .ranks = job->watch.seen,
                              .host = job->watch.here.host,
                              .mpiexec = job->mpiexec.pid,
                              .said = job->mpiexec.said,
                              .stop_signal = job->stop_signal,
                              .is_stop_repeated = job->is_stop_repeated,
                              .is_mpiexec_killed = job->is_mpiexec_killed,
                              .is_unbegun = job->is_unbegun,
                              .hang = job->hang};
        code = verdict(&end, err);
        job->has_begun = job->has_begun || job->watch.n_seen > 0;
    }
    mpiexec_close(&job->mpiexec);
    job_watch_close(&job->watch);
    int unused = fs_remove_tree(job->try_dir, &ignored);
    (void)unused; // goes with the directory of the job, or by the next one
    return code;
}
