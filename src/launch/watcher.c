#include "launch/watcher.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/host_watch.h"
#include "launch/job_watch.h"
#include "launch/watch_link.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100
#define ABORT_SECONDS 2.0 // for ranks that can to end the job with its exit code

struct watcher {
    const struct watcher_options *opt;
    struct job_watch job;
    struct watch_reporter reporter;
    bool asks_ranks; // to end the job themselves where they can, with its exit code
    double ends_at;  // clock_seconds(); 0: nothing to end
};

/* -- what it says -------------------------------------------------------------------- */

/* Without a pipe of its own it speaks through that of a rank, lent for the moment: of the
 * lowest one, as ranks do. */
static void speak(struct watcher *w, const char *sentence, bool is_end)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char *table = job_watch_table(&w->job);
    for (int r = 0; r < w->opt->n_ranks; r++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/2",
                 (int)atomic_load(&w->job.here.file->slots[r].pid));
        int fd = w->job.seen[r].is_seen
                     ? open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC)
                     : -1;
        if (fd < 0)
            continue;
        dup2(fd, STDERR_FILENO);
        close(fd);
        break;
    }
    log_warning("%s", table ? table : "");
    if (is_end)
        log_error("%s; the job is ended", sentence);
    else
        log_warning("%s and makes no progress; the job goes on", sentence);
    dup2(null, STDERR_FILENO);
    close(null);
    free(table);
}

/* -- its rounds ---------------------------------------------------------------------- */

static void end_ranks(struct watcher *w)
{
    if (w->ends_at > 0)
        return;
    w->ends_at = clock_seconds() + ABORT_SECONDS;
    if (w->asks_ranks)
        atomic_store(&w->job.here.file->must_end, 1);
}

/* The main watcher of a job, or one that does not know it. */
static void judge(struct watcher *w)
{
    char sentence[1024];
    enum hang_decision decision = job_watch_tick(&w->job, false, w->opt->log_dir);
    if (decision == HANG_NONE)
        return;
    job_watch_sentence(&w->job, sentence, sizeof sentence);
    speak(w, sentence, decision == HANG_ENDS);
    if (decision == HANG_ENDS)
        end_ranks(w);
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

static void report(struct watcher *w)
{
    double hang_timeout = host_watch_timeout(&w->job.here);
    host_watch_look(&w->job.here, w->job.seen);
    bool is_end =
        watch_reporter_tick(&w->reporter, w->job.seen, w->opt->n_ranks, hang_timeout);
    if (w->ends_at <= 0 && (is_end || is_cut_off(w, hang_timeout))) {
        host_watch_stacks(&w->job.here, w->job.seen, w->opt->log_dir);
        end_ranks(w);
    }
}

/* The ranks have learnt where the main watcher is, and it is another one. */
static void look_for_contact(struct watcher *w)
{
    const struct beat_file *file = w->job.here.file;
    if (!w->reporter.contact[0] && atomic_load(&file->contact_of) == BEAT_CONTACT_MAIN)
        watch_reporter_init(&w->reporter, file->contact);
}

static void run(struct watcher *w)
{
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};
    do {
        nanosleep(&tick, NULL);
        look_for_contact(w);
        if (w->reporter.contact[0])
            report(w);
        else
            judge(w);
        if (w->ends_at > 0 && clock_seconds() > w->ends_at)
            host_watch_kill(&w->job.here);
    } while (host_watch_any_alive(&w->job.here));
}

/* -- its start ----------------------------------------------------------------------- */

/* Nothing of the rank is kept: its pipes would never end, its locks never be free, its
 * directory never be unmounted. */
static void let_go(int kept)
{
    if (chdir("/"))
        _exit(1);
    prctl(PR_SET_NAME, "trefoil-watch");
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (kept > 3)
        close_range(3, (unsigned)kept - 1, 0);
    close_range(kept >= 3 ? (unsigned)kept + 1 : 3, ~0U, 0);
    // a signal to all processes of a job is for its ranks
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
}

/* The parent of this process goes on as a rank; this one does not come back. */
static void become(struct watcher *w)
{
    beat_detach();
    setsid();
    if (fork() != 0) // nobody's child: no rank has to wait for it
        _exit(0);
    let_go(w->job.others.fd);
    run(w);
    job_watch_close(&w->job);
    _exit(0);
}

void watcher_start(struct beat_file *file, const struct watcher_options *opt)
{
    struct watcher w = {.opt = opt};
    struct error err;
    int none = 0;
    if (!atomic_compare_exchange_strong(&file->watcher, &none, (int)getpid()))
        return;
    beat_sweep();
    if (job_watch_open(&w.job, opt->path, opt->n_ranks, &err)) {
        log_warning("this host is not watched for hangs: %s", err.text);
        return;
    }
    w.asks_ranks = !opt->job;
    w.job.here.job = opt->job;
    w.job.here.rank_variable = opt->rank_variable;
    w.job.here.daemon = opt->job ? 0 : host_watch_daemon(opt->rank_variable);
    watch_reporter_init(&w.reporter, opt->contact);
    if (!opt->job && job_watch_listen(&w.job, &err) == 0) {
        watch_server_contact(&w.job.others, file->contact);
        atomic_store(&file->contact_of, BEAT_CONTACT_HERE);
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(&w);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    w.job.here.is_borrowed = true; // it is the watcher's now
    job_watch_close(&w.job);
}
