#include "launch/watcher.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/job_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100
#define ABORT_SECONDS 2.0 // for ranks that can to end the job with its exit code
#define LAST_REPORT_SECONDS 2.0

struct watcher {
    const struct watcher_options *opt;
    struct job_watch job;
    struct watch_reporter reporter;
    double ends_at; // clock_seconds(); 0: nothing to end
};

/* Without a pipe of its own it speaks through that of a rank, lent for the moment: of the
 * lowest one, as ranks do. */
static void speak(struct watcher *w, const char *table, const char *who, bool is_end)
{
    int fd = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int r = 0; r < w->opt->n_ranks && fd < 0; r++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/2", w->job.seen[r].pid);
        if (w->job.seen[r].is_seen)
            fd = open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    }
    if (fd >= 0) {
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
    log_warning("%s", table ? table : "");
    if (is_end)
        log_error("%s; the job is ended", who);
    else
        log_warning("%s and makes no progress; the job goes on", who);
    dup2(null, STDERR_FILENO);
    close(null);
}

static void end_ranks(struct watcher *w)
{
    if (w->ends_at > 0)
        return;
    w->ends_at = clock_seconds() + ABORT_SECONDS;
    if (!w->opt->has_launcher)
        atomic_store(&w->job.here.file->must_end, 1);
}

/* The main watcher of a job, or one that does not know it. */
static void judge(struct watcher *w)
{
    char who[1024], *table = NULL;
    enum hang_decision decision =
        job_watch_judge(&w->job, false, &table, who, sizeof who);
    if (decision != HANG_NONE)
        speak(w, table, who, decision == HANG_ENDS);
    if (decision == HANG_ENDS)
        end_ranks(w);
    free(table);
}

/* All ranks of this host are quiet, and the main watcher has been for as long: it is out
 * of reach, and will end the job without us. */
static bool is_cut_off(const struct watcher *w, double hang_timeout)
{
    struct hang_rule rule = {.hang_timeout = hang_timeout};
    double silent = clock_seconds() - w->reporter.heard;
    bool has_work = false; // those that have done theirs are let go
    for (int r = 0; r < w->opt->n_ranks; r++) {
        const struct seen_rank *seen = &w->job.seen[r];
        double bound = seen->is_seen ? hang_bound(&rule, seen) : 0;
        if (seen->is_seen && !seen->is_over && (seen->quiet <= bound || silent <= bound))
            return false;
        has_work = has_work || (seen->is_seen && !seen->is_over);
    }
    return has_work;
}

/* Ranks wait until their last word is on its way (worker.c). */
static bool take_news(struct watcher *w)
{
    bool has_news = false;
    for (int r = 0; r < w->opt->n_ranks; r++) {
        const struct seen_rank *seen = &w->job.seen[r];
        if (seen->is_seen && (seen->state != BEAT_ALIVE || seen->condition == RANK_GONE))
            has_news |= !atomic_exchange(&w->job.here.file->slots[r].is_reported, 1);
    }
    return has_news;
}

static void report(struct watcher *w)
{
    double hang_timeout = host_watch_timeout(&w->job.here);
    enum watch_order order = watch_reporter_tick(
        &w->reporter, w->job.seen, w->opt->n_ranks, hang_timeout, take_news(w));
    if (order == WATCH_STOP)
        host_watch_ask_to_stop(&w->job.here, SIGTERM);
    if (w->ends_at <= 0 && (order == WATCH_END || is_cut_off(w, hang_timeout))) {
        host_watch_stacks(&w->job.here, w->job.seen);
        end_ranks(w);
    }
}

/* The ranks are gone; that is said until it was heard. */
static void report_last(struct watcher *w)
{
    double begin = clock_seconds();
    while (w->reporter.contact[0] && w->reporter.heard <= begin &&
           clock_seconds() - begin < LAST_REPORT_SECONDS) {
        watch_reporter_tick(&w->reporter, w->job.seen, w->opt->n_ranks, 0, true);
        poll(&(struct pollfd){.fd = w->reporter.fd, .events = POLLIN}, 1, TICK_MS);
    }
}

static void run(struct watcher *w)
{
    const struct beat_file *file = w->job.here.file;
    struct pollfd fds[] = {{.fd = w->job.here.deaths_fd, .events = POLLIN},
                           {.fd = w->job.others.fd, .events = POLLIN}};
    do {
        poll(fds, ARRAY_LEN(fds), TICK_MS);
        if (!w->reporter.contact[0] &&
            atomic_load(&file->contact_of) == BEAT_CONTACT_MAIN)
            watch_reporter_init(&w->reporter, file->contact);
        job_watch_look(&w->job, 0);
        if (w->reporter.contact[0])
            report(w);
        else
            judge(w);
        if (w->ends_at > 0 && clock_seconds() > w->ends_at)
            host_watch_kill(&w->job.here);
    } while (host_watch_any_alive(&w->job.here));
    job_watch_look(&w->job, 0);
    report_last(w);
}

/* Nothing of the rank is kept: its pipes would never end, its locks never be free, its
 * directory never be unmounted. */
static void let_go(void)
{
    sigset_t all;
    if (chdir("/"))
        _exit(1);
    beat_detach();
    setsid();
    prctl(PR_SET_NAME, "trefoil-watch");
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    close_range(3, ~0U, 0);
    sigfillset(&all); // a signal to all processes of a job is for its ranks
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
}

/* The parent of this process goes on as a rank; this one does not come back. */
_Noreturn static void become(const struct watcher_options *opt)
{
    struct watcher w = {.opt = opt};
    struct error err;
    let_go();
    if (job_watch_open(&w.job, opt->path, opt->n_ranks, &err))
        _exit(1);
    watch_reporter_init(&w.reporter, opt->contact);
    if (!opt->has_launcher) {
        job_watch_listen(&w.job, w.job.here.file->contact);
        atomic_store(&w.job.here.file->contact_of, BEAT_CONTACT_HERE);
    }
    if (fork() != 0) // nobody's child: no rank has to wait for it
        _exit(0);
    run(&w);
    job_watch_close(&w.job);
    _exit(0);
}

void watcher_start(struct beat_file *file, const struct watcher_options *opt)
{
    int none = 0, status = 1;
    if (!atomic_compare_exchange_strong(&file->watcher, &none, (int)getpid()))
        return;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(opt);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        log_warning("this host is not watched for hangs");
}
