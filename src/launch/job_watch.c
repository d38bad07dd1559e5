#include "launch/job_watch.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100
#define STACK_SECONDS 0.7 // for ranks to write their stacks before they are killed
#define ABORT_SECONDS 2.0 // for ranks that can to end the job with its exit code
#define LAST_REPORT_SECONDS 2.0

int job_watch_open(struct job_watch *w, const char *path, int n_ranks,
                   char contact[WATCH_CONTACT_BYTES], struct error *err)
{
    *w = (struct job_watch){
        .n_ranks = n_ranks, .hang = {.culprit = -1}, .others = {.fd = -1}};
    beat_sweep();
    if (host_watch_open(&w->here, path, n_ranks, err))
        return -1;
    if (contact && watch_server_open(&w->others, n_ranks, contact, err))
        log_warning("ranks of other hosts are not watched: %s", err->text);
    w->seen = calloc((size_t)n_ranks, sizeof *w->seen);
    w->is_culprit = calloc((size_t)n_ranks, sizeof *w->is_culprit);
    if (w->seen && w->is_culprit)
        return 0;
    job_watch_close(w);
    return error_set(err, ERROR_RUNTIME, "out of memory to watch %d ranks", n_ranks);
}

void job_watch_close(struct job_watch *w)
{
    watch_server_close(&w->others);
    host_watch_close(&w->here);
    free(w->seen);
    free(w->is_culprit);
    *w = (struct job_watch){0};
}

/* -- steps --------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_step(const struct job_watch *w)
{
    double sorted[JOB_WATCH_STEPS];
    size_t n = (size_t)i64_min(w->n_timed, JOB_WATCH_STEPS);
    if (n == 0)
        return 0;
    memcpy(sorted, w->steps, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_seconds);
    return sorted[n / 2];
}

/* Ranks are never further apart than a step: one of them tells for all. */
static void time_steps(struct job_watch *w)
{
    int r = 0;
    while (r + 1 < w->n_ranks && !w->seen[r].is_seen)
        r++;
    int64_t n = w->seen[r].n_steps;
    double now = clock_seconds();
    if (n == w->n_steps)
        return;
    if (w->step_since > 0 && n > w->n_steps) // of a rank that is heard of later: not
        w->steps[w->n_timed++ % JOB_WATCH_STEPS] =
            (now - w->step_since) / (double)(n - w->n_steps);
    w->n_steps = n;
    w->step_since = now;
}

/* -- what is seen -------------------------------------------------------------------- */

void job_watch_look(struct job_watch *w, int stop_signal)
{
    int n_seen = 0;
    enum watch_order order = w->is_ended   ? WATCH_END
                             : stop_signal ? WATCH_STOP
                                           : WATCH_ON;
    host_watch_look(&w->here, w->seen);
    watch_server_serve(&w->others, order, w->seen);
    for (int r = 0; r < w->n_ranks; r++)
        n_seen += w->seen[r].is_seen;
    if (n_seen > w->n_seen)
        w->begun_at = clock_seconds();
    w->n_seen = n_seen;
    time_steps(w);
    if (stop_signal) // in a rank SIGUSR1 is MPICH's
        host_watch_ask_to_stop(&w->here, stop_signal == SIGUSR1 ? SIGTERM : stop_signal);
}

/* When this rank failed; 0: it did not, as far as is known. */
static int64_t failure_time(const struct seen_rank *r)
{
    bool failed = r->state == BEAT_CRASHED || (r->state == BEAT_FAILED && r->reason) ||
                  (r->state == BEAT_ALIVE && r->condition == RANK_GONE);
    return r->is_seen && failed ? r->said_ns : 0;
}

int job_watch_first_failure(const struct seen_rank *seen, int n_ranks)
{
    int first = -1;
    for (int r = 0; r < n_ranks; r++) {
        int64_t t = failure_time(&seen[r]);
        if (t > 0 && (first < 0 || t < failure_time(&seen[first])))
            first = r;
    }
    return first;
}

int job_watch_first_unfinished(const struct seen_rank *seen, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++)
        if (!seen[r].is_seen || seen[r].state != BEAT_ENDED)
            return r;
    return -1;
}

/* -- hangs --------------------------------------------------------------------------- */

void job_watch_kill(struct job_watch *w)
{
    w->is_ended = true;
    host_watch_kill(&w->here);
}

void job_watch_log_table(const struct job_watch *w)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (out)
        hang_table(out, w->seen, w->n_ranks);
    if (out && fclose(out) == 0)
        log_warning("no progress for %.1f s:\n%.*s", w->hang.seconds, (int)n - 1, text);
    free(text);
}

enum hang_decision job_watch_judge(struct job_watch *w, bool is_stopping, char *who,
                                   size_t size)
{
    if (w->ended_since > 0) { // the stacks are on their way; then everything ends
        if (clock_seconds() - w->ended_since > STACK_SECONDS)
            job_watch_kill(w);
        return HANG_NONE;
    }
    double here = host_watch_timeout(&w->here);
    struct hang_rule rule = {.hang_timeout = here > 0 ? here : w->others.hang_timeout,
                             .median_step = median_step(w),
                             .is_stopping = is_stopping};
    struct hang before = w->hang;
    w->hang = hang_judge(w->seen, w->n_ranks, &rule, w->is_culprit);
    if (w->hang.decision == HANG_NONE ||
        (before.decision == w->hang.decision && before.culprit == w->hang.culprit))
        return HANG_NONE; // no news
    if (w->hang.decision == HANG_ENDS) {
        w->ended_since = clock_seconds();
        w->is_ended = true;
        host_watch_stacks(&w->here, w->seen);
    }
    hang_sentence(who, size, w->seen, w->n_ranks, &w->hang, w->is_culprit);
    return w->hang.decision;
}

/* -- a watcher ----------------------------------------------------------------------- */

struct watcher {
    struct job_watch job;
    struct watch_reporter reporter;
    bool has_launcher; // that ends the job; else ranks that can do, with its exit code
    double ends_at;    // clock_seconds(); 0: nothing to end
};

/* Without a pipe of its own it speaks through that of a rank, lent for the moment: of the
 * lowest one, as ranks do. */
static void borrow_output(const struct job_watch *w)
{
    int fd = -1;
    for (int r = 0; r < w->n_ranks && fd < 0; r++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/2", w->seen[r].pid);
        if (w->seen[r].is_seen)
            fd = open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    }
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static void end_ranks(struct watcher *w)
{
    if (w->ends_at > 0)
        return;
    w->ends_at = clock_seconds() + ABORT_SECONDS;
    if (!w->has_launcher)
        atomic_store(&w->job.here.file->must_end, 1);
}

/* The main watcher of a job, or one that does not know it. */
static void judge(struct watcher *w)
{
    char who[1024];
    enum hang_decision decision = job_watch_judge(&w->job, false, who, sizeof who);
    if (decision == HANG_NONE)
        return;
    borrow_output(&w->job);
    job_watch_log_table(&w->job);
    if (decision == HANG_NAMED)
        log_warning("%s and makes no progress; the job goes on", who);
    if (decision == HANG_ENDS) {
        log_error("%s; the job is ended", who);
        end_ranks(w);
    }
    close(STDERR_FILENO);
}

/* All ranks of this host are quiet, and the main watcher has been for as long: it is out
 * of reach, and will end the job without us. */
static bool is_cut_off(const struct watcher *w, double hang_timeout)
{
    struct hang_rule rule = {.hang_timeout = hang_timeout};
    double silent = clock_seconds() - w->reporter.heard;
    bool has_work = false; // those that have done theirs are let go
    for (int r = 0; r < w->job.n_ranks; r++) {
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
    for (int r = 0; r < w->job.n_ranks; r++) {
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
        &w->reporter, w->job.seen, w->job.n_ranks, hang_timeout, take_news(w));
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
        watch_reporter_tick(&w->reporter, w->job.seen, w->job.n_ranks, 0, true);
        poll(&(struct pollfd){.fd = w->reporter.fd, .events = POLLIN}, 1, TICK_MS);
    }
}

static void run(struct watcher *w)
{
    const struct beat_file *file = w->job.here.file;
    struct pollfd fds[] = {{.fd = w->job.here.deaths_fd, .events = POLLIN},
                           {.fd = w->job.others.fd, .events = POLLIN}};
    for (;; poll(fds, ARRAY_LEN(fds), TICK_MS)) {
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
        if (!host_watch_any_alive(&w->job.here))
            break;
    }
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
_Noreturn static void become_watcher(const char *path, int n_ranks, const char *launcher)
{
    struct watcher w = {.has_launcher = launcher != NULL};
    char contact[WATCH_CONTACT_BYTES];
    struct error err;
    let_go();
    if (job_watch_open(&w.job, path, n_ranks, launcher ? NULL : contact, &err))
        _exit(1);
    watch_reporter_init(&w.reporter, launcher);
    if (!launcher) {
        memcpy(w.job.here.file->contact, contact, sizeof contact);
        atomic_store(&w.job.here.file->contact_of, BEAT_CONTACT_HERE);
    }
    if (fork() != 0) // nobody's child: no rank has to wait for it
        _exit(0);
    run(&w);
    watch_reporter_close(&w.reporter);
    job_watch_close(&w.job);
    _exit(0);
}

void job_watch_start(struct beat_file *file, const char *path, int n_ranks,
                     const char *contact)
{
    int none = 0, status = 1;
    if (!atomic_compare_exchange_strong(&file->watcher, &none, (int)getpid()))
        return;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become_watcher(path, n_ranks, contact);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        log_warning("this host is not watched for hangs");
}
