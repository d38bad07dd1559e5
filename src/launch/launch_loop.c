/*
 * The loop waits for the beginnings and ends of the ranks of this machine, for the end of
 * mpiexec and for signals, and ten times a second looks at logs and at the status files
 * of all machines.
 *
 * How a job is ended, counted from the moment it must end (a rank failed or hangs, ranks
 * do not begin, or the second signal came): first mpiexec may do it by itself, then the
 * launcher kills the ranks where mpiexec was told not to, then everything.
 */
#include "launch/launch_job.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/worker.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TICK_MS 100
#define KILL_RANKS_AFTER 1.0 // seconds, see above; longer with several hosts
#define KILL_ALL_AFTER 2.5
#define PATIENCE_WITH_HOSTS 5.0
#define PATIENCE_WITH_HANG 2.0 // watchers of other hosts end their ranks themselves
#define STOP_UNBEGUN_AFTER 5.0 // for ranks that are about to begin when a signal comes
#define BEGIN_WITHIN 45.0      // seconds after the rank before, or after mpiexec
#define BEGIN_WITHIN_COMPLAINT 30.0 // the same, when mpiexec has complained
#define END_WITHIN 10.0 // for mpiexec, when all ranks have written their end marks

/* -- signals ------------------------------------------------------------------------- */

/* The ranks are asked within a tick, but a step may be long. */
static void acknowledge(const struct launch_job *job)
{
    int64_t step = launch_watch_step(&job->watch, 0);
    if (step > 0)
        log_info("finishing step %lld; again to stop now", (long long)step);
    else
        log_info("stopping; again to stop now");
}

void launch_take_signals(struct launch_job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        double now = clock_seconds();
        if (!job->stop_signal) {
            job->stop_signal = (int)info.ssi_signo;
            job->stop_since = now;
            if (info.ssi_pid != (uint32_t)getpid()) // else it is no wish of a user's
                acknowledge(job);
        } else if (now - job->stop_since >= LAUNCH_AGAIN_SECONDS) {
            job->is_stop_repeated = true;
            job->ending_since = now - KILL_ALL_AFTER; // there was time enough
        }
    }
}

/* Ranks that begin after the signal came are asked as they become known. Ranks of other
 * machines learn it from those of this one, as they agree on every step; only when there
 * is none here must mpiexec pass it on. */
static void ask_to_stop(struct launch_job *job)
{
    launch_ranks_ask_to_stop(&job->ranks, job->stop_signal);
    if (job->ranks.n_local > 0 || job->is_mpiexec_asked_to_stop ||
        job->ranks.n_known == 0)
        return;
    pidfd_send_signal(job->mpiexec.pidfd, job->dialect->stop_signal, NULL, 0);
    job->is_mpiexec_asked_to_stop = true;
}

/* -- the end ------------------------------------------------------------------------- */

/* Whether ranks that should have begun will not: a host does not answer, or mpiexec is
 * stuck. Each rank that begins gives the others more time. */
static bool is_unbegun(const struct launch_job *job)
{
    const struct launch_ranks *ranks = &job->ranks;
    double since = ranks->last_begun_at > 0 ? ranks->last_begun_at : job->started_at;
    double most = job->mpiexec.n_said > 0 ? BEGIN_WITHIN_COMPLAINT : BEGIN_WITHIN;
    return ranks->n_known < ranks->n_ranks && clock_seconds() - since > most;
}

/* Whether the job must end: a rank failed or hangs, ranks do not begin; or it is to stop,
 * and after a while there is still no rank that could be asked to. */
static bool must_end(struct launch_job *job)
{
    if (launch_ranks_first_failure(&job->ranks) >= 0 ||
        launch_watch_has_hung(&job->watch))
        return true;
    job->is_unbegun = !job->stop_signal && is_unbegun(job);
    return job->is_unbegun || (job->stop_signal && job->ranks.n_known == 0 &&
                               clock_seconds() - job->stop_since > STOP_UNBEGUN_AFTER);
}

static void kill_all(struct launch_job *job)
{
    if (job->is_mpiexec_killed)
        return;
    job->is_mpiexec_killed = true;
    pidfd_send_signal(job->mpiexec.pidfd, SIGKILL, NULL, 0);
    launch_ranks_kill(&job->ranks);
}

/* The next step towards the end of a job that must end; see the top of this file. */
static void press_on(struct launch_job *job)
{
    bool has_hosts = job->opt->hosts || job->opt->hostfile;
    bool is_patient =
        has_hosts && !job->is_stop_repeated && job->ranks.n_known == job->ranks.n_ranks;
    double patience = is_patient ? PATIENCE_WITH_HOSTS : 1;
    if (is_patient && launch_watch_has_hung(&job->watch)) // mpiexec finds nothing to tell
        patience = PATIENCE_WITH_HANG;
    double seconds = clock_seconds() - job->ending_since;
    if (seconds >= KILL_RANKS_AFTER * patience && !job->dialect->kills_job)
        launch_ranks_kill(&job->ranks);
    if (seconds >= KILL_ALL_AFTER * patience)
        kill_all(job);
}

/* All work is done and told; mpiexec has only to leave. */
static void hurry_mpiexec(struct launch_job *job)
{
    if (job->all_ended_at <= 0 && launch_ranks_first_unfinished(&job->ranks) < 0)
        job->all_ended_at = clock_seconds();
    if (job->all_ended_at > 0 && clock_seconds() - job->all_ended_at > END_WITHIN)
        kill_all(job);
}

/* -- the loop ------------------------------------------------------------------------ */

static void take_status_files(struct launch_job *job)
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

static void tick(struct launch_job *job)
{
    launch_watch_tick(&job->watch, job->stop_signal != 0); // needs no file of the job's
    log_tail_copy(&job->tail);
    launch_ranks_look(&job->ranks);
    if (job->stop_signal)
        ask_to_stop(job);
    if (job->ending_since <= 0 && must_end(job)) {
        job->ending_since = clock_seconds();
        job->mpiexec.is_heard = job->is_unbegun; // from here on it tells of our doing
    }
    if (job->ending_since > 0)
        press_on(job);
    hurry_mpiexec(job);
}

/* What ranks say where their files cannot be written. */
static bool take_line(void *context, const char *line)
{
    struct launch_job *job = context;
    size_t n_log = strlen(WORKER_LOG_MARK), n_status = strlen(RANK_STATUS_MARK);
    if (strncmp(line, WORKER_LOG_MARK, n_log) == 0)
        log_tail_show(&job->tail, line + n_log);
    else if (strncmp(line, RANK_STATUS_MARK, n_status) == 0)
        launch_ranks_take_spare(&job->ranks, line + n_status);
    else
        return false;
    return true;
}

void launch_loop(struct launch_job *job)
{
    struct epoll_event events[64];
    job->mpiexec.take_line = take_line;
    job->mpiexec.context = job;
    double next_tick = clock_seconds();
    for (bool is_over = false; !is_over;) {
        int n = epoll_wait(job->epoll_fd, events, ARRAY_LEN(events), TICK_MS);
        for (int i = 0; i < n; i++) {
            uint64_t event = events[i].data.u64;
            if (event == EVENT_MPIEXEC)
                is_over = true;
            else if (event == EVENT_SIGNAL)
                launch_take_signals(job);
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
