#include "launch/job_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/job_files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100
#define STACK_SECONDS 0.7      // for ranks to write their stacks before they are killed
#define ABORT_SECONDS 2.0      // for ranks that can to end the job with its exit code
#define PAUSE_SECONDS 1.2      // for watchers to report and to get the order
#define PAUSE_SECONDS_MAX 20.0 // for those of slow hosts
#define PAUSE_BEGIN_SECONDS 10 // for ranks that are about to begin
#define LAST_REPORT_SECONDS 2.0
#define REPORT_EVERY 0.5     // seconds
#define OUT_OF_REACH_AFTER 3 // seconds of silence; it matters when nobody moves

struct report { // a datagram, of one rank
    char token[WATCH_TOKEN_BYTES], host[256];
    double hang_timeout;
    int rank;
    struct seen_rank seen;          // its pointers mean nothing
    char reason[BEAT_REASON_BYTES]; // "": none; cut to its length
};

/* -- the launcher listens ------------------------------------------------------------ */

/* Token, port and all addresses of this host; the loopback where there is no other. */
static int write_contact(struct watch_server *s, char contact[WATCH_CONTACT_BYTES])
{
    unsigned char random[(WATCH_TOKEN_BYTES - 1) / 2];
    struct sockaddr_in at = {0};
    socklen_t n_at = sizeof at;
    struct ifaddrs *all;
    char address[INET_ADDRSTRLEN];
    if (getsockname(s->fd, (struct sockaddr *)&at, &n_at) ||
        getrandom(random, sizeof random, 0) != (ssize_t)sizeof random || getifaddrs(&all))
        return -1;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(s->token + 2 * i, sizeof s->token - 2 * i, "%02x", random[i]);
    size_t n_head = (size_t)snprintf(contact, WATCH_CONTACT_BYTES, "%s %d", s->token,
                                     ntohs(at.sin_port));
    size_t used = n_head;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        memcpy(&at, i->ifa_addr, sizeof at);
        inet_ntop(AF_INET, &at.sin_addr, address, sizeof address);
        if (used + strlen(address) + 2 < WATCH_CONTACT_BYTES)
            used += (size_t)snprintf(contact + used, WATCH_CONTACT_BYTES - used, " %s",
                                     address);
    }
    if (used == n_head)
        snprintf(contact + used, WATCH_CONTACT_BYTES - used, " 127.0.0.1");
    freeifaddrs(all);
    return 0;
}

int watch_server_open(struct watch_server *s, int n_ranks,
                      char contact[WATCH_CONTACT_BYTES], struct error *err)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY};
    *s = (struct watch_server){.n_ranks = n_ranks};
    s->ranks = calloc((size_t)n_ranks, sizeof *s->ranks);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->ranks && s->fd >= 0 && bind(s->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
        write_contact(s, contact) == 0)
        return 0;
    contact[0] = '\0';
    error_set(err, ERROR_RUNTIME, "cannot listen to watchers of other hosts: %s",
              strerror(errno));
    watch_server_close(s);
    return -1;
}

void watch_server_close(struct watch_server *s)
{
    for (int r = 0; s->ranks && r < s->n_ranks; r++) {
        free(s->ranks[r].host);
        free(s->ranks[r].reason);
    }
    if (s->ranks && s->fd >= 0)
        close(s->fd);
    free(s->ranks);
    *s = (struct watch_server){.fd = -1};
}

/* False: it is a stranger's. */
static bool take_report(struct watch_server *s, struct report *told)
{
    unsigned char differs = 0; // all of the token is compared, whatever the beginning
    for (size_t i = 0; i < WATCH_TOKEN_BYTES; i++)
        differs |= (unsigned char)(s->token[i] ^ told->token[i]);
    if (differs || !s->token[0] || told->rank < 0 || told->rank >= s->n_ranks ||
        (unsigned)told->seen.condition >= N_RANK_CONDITIONS ||
        (unsigned)told->seen.phase >= BEAT_N_PHASES || told->seen.peer >= s->n_ranks)
        return false;
    struct reported_rank *rank = &s->ranks[told->rank];
    told->host[sizeof told->host - 1] = told->reason[sizeof told->reason - 1] = '\0';
    rank->host = rank->host ? rank->host : strdup(told->host);
    if (told->reason[0] && !rank->reason)
        rank->reason = strdup(told->reason);
    rank->seen = told->seen;
    rank->seen.host = rank->host;
    rank->seen.reason = rank->reason;
    rank->at = clock_seconds();
    s->hang_timeout = told->hang_timeout > 0 ? told->hang_timeout : s->hang_timeout;
    return true;
}

/* Returns whether any rank was reported. Since its last report it may have done anything; but a host that is silent
 * for long is lost. */
static bool fill_reported(const struct watch_server *s, struct seen_rank *seen)
{
    bool is_any = false;
    for (int r = 0; r < s->n_ranks; r++) {
        const struct reported_rank *rank = &s->ranks[r];
        if (!rank->host)
            continue;
        is_any = true;
        double silent = clock_seconds() - rank->at;
        seen[r] = rank->seen;
        seen[r].quiet += silent;
        seen[r].in_condition += silent;
        if (silent > OUT_OF_REACH_AFTER && !seen[r].is_over &&
            seen[r].condition != RANK_GONE) {
            seen[r].condition = RANK_OUT_OF_REACH;
            seen[r].in_condition = silent;
        }
    }
    return is_any;
}

bool watch_server_serve(struct watch_server *s, enum watch_order order,
                        struct seen_rank *seen)
{
    struct sockaddr_in from;
    char answer = (char)order;
    while (s->fd >= 0) {
        struct report told = {.rank = -1};
        socklen_t n_from = sizeof from;
        if (recvfrom(s->fd, &told, sizeof told, 0, (struct sockaddr *)&from, &n_from) < 0)
            break;
        if (take_report(s, &told))
            (void)sendto(s->fd, &answer, 1, 0, (struct sockaddr *)&from, n_from);
    }
    return s->fd >= 0 && fill_reported(s, seen);
}

/* -- watchers report ----------------------------------------------------------------- */

void watch_reporter_init(struct watch_reporter *r, const char *contact)
{
    *r = (struct watch_reporter){.fd = -1, .heard = clock_seconds()};
    snprintf(r->contact, sizeof r->contact, "%s", contact ? contact : "");
    if (r->contact[0])
        r->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* To all addresses, until one has answered. What is lost is said again. */
static void send_report(const struct watch_reporter *r, const struct report *report)
{
    char contact[WATCH_CONTACT_BYTES], *rest, *address;
    struct sockaddr_in to = {.sin_family = AF_INET};
    size_t n = offsetof(struct report, reason) + strlen(report->reason) + 1;
    if (r->is_answered) {
        (void)send(r->fd, report, n, 0);
        return;
    }
    memcpy(contact, r->contact, sizeof contact);
    strtok_r(contact, " ", &rest);
    const char *port = strtok_r(NULL, " ", &rest);
    to.sin_port = htons((uint16_t)(port ? atoi(port) : 0));
    while ((address = strtok_r(NULL, " ", &rest)))
        if (inet_pton(AF_INET, address, &to.sin_addr) == 1)
            (void)sendto(r->fd, report, n, 0, (struct sockaddr *)&to, sizeof to);
}

enum watch_order watch_reporter_tick(struct watch_reporter *r,
                                     const struct seen_rank *seen, int n_ranks,
                                     double hang_timeout, bool has_news)
{
    char answer, order = WATCH_ON;
    struct sockaddr_in from;
    socklen_t n_from = sizeof from;
    struct report report = {.hang_timeout = hang_timeout};
    while (r->fd >= 0 &&
           recvfrom(r->fd, &answer, 1, 0, (struct sockaddr *)&from, &n_from) == 1) {
        order = answer > order ? answer : order;
        r->is_paused = answer == WATCH_PAUSE;
        r->heard = clock_seconds();
        if (!r->is_answered)
            r->is_answered = connect(r->fd, (struct sockaddr *)&from, n_from) == 0;
        n_from = sizeof from;
    }
    if (r->fd < 0 || (!has_news && clock_seconds() - r->reported < REPORT_EVERY))
        return (enum watch_order)order;
    snprintf(report.token, sizeof report.token, "%.*s", (int)strcspn(r->contact, " "),
             r->contact);
    gethostname(report.host, sizeof report.host - 1);
    for (int i = 0; i < n_ranks; i++)
        if (seen[i].is_seen) {
            report.rank = i;
            report.seen = seen[i];
            snprintf(report.reason, sizeof report.reason, "%s",
                     seen[i].reason ? seen[i].reason : "");
            send_report(r, &report);
        }
    r->reported = clock_seconds();
    return (enum watch_order)order;
}

/* -- all ranks ----------------------------------------------------------------------- */

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

/* The median of the seconds of a step, followed from one to the next: half of them are
 * longer. Ranks are never further apart than a step: one of them tells for all. */
static void time_steps(struct job_watch *w)
{
    int r = 0;
    while (r + 1 < w->n_ranks && !w->seen[r].is_seen)
        r++;
    int64_t n = w->seen[r].n_steps - w->n_steps;
    double now = clock_seconds(), seconds = (now - w->step_since) / (double)n;
    if (n == 0)
        return;
    if (w->step_since > 0 && n > 0) // of a rank that is heard of later: not
        w->median_step = w->median_step <= 0        ? seconds
                         : seconds > w->median_step ? w->median_step * 1.1
                                                    : w->median_step / 1.1;
    w->n_steps += n;
    w->step_since = now;
}

/* -- what is seen -------------------------------------------------------------------- */

void job_watch_look(struct job_watch *w, int stop_signal)
{
    int n_seen = 0;
    enum watch_order order = w->is_ended         ? WATCH_END
                             : stop_signal       ? WATCH_STOP
                             : w->here.is_paused ? WATCH_PAUSE
                                                 : WATCH_ON;
    host_watch_look(&w->here, w->seen);
    w->has_others = watch_server_serve(&w->others, order, w->seen);
    for (int r = 0; r < w->n_ranks; r++)
        n_seen += w->seen[r].is_seen;
    if (n_seen > w->n_seen)
        w->begun_at = clock_seconds();
    w->n_seen = n_seen;
    time_steps(w);
    if (stop_signal) // in a rank SIGUSR1 is MPICH's
        host_watch_ask_to_stop(&w->here, stop_signal == SIGUSR1 ? SIGTERM : stop_signal);
}

int job_watch_first_failure(const struct seen_rank *seen, int n_ranks)
{
    int first = -1;
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &seen[i];
        bool failed = r->state == BEAT_CRASHED ||
                      (r->state == BEAT_FAILED && r->reason) ||
                      (r->state == BEAT_ALIVE && r->condition == RANK_GONE);
        if (r->is_seen && failed && r->said_ns > 0 &&
            (first < 0 || r->said_ns < seen[first].said_ns))
            first = i;
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

/* -- pauses -------------------------------------------------------------------------- */

/* Have all ranks of other hosts been reported, and their hosts answered, since then? */
static bool have_all_reported(const struct watch_server *s, double since)
{
    for (int r = 0; r < s->n_ranks; r++)
        if (s->ranks[r].host && !s->ranks[r].seen.is_over && s->ranks[r].at < since)
            return false;
    return true;
}

/* Can a rank that the order of then has not reached still get it? */
static bool is_order_due(const struct job_watch *w, double since)
{
    double seconds = clock_seconds() - since;
    bool has_hosts = w->others.fd >= 0 && w->has_others;
    if (w->n_seen < w->n_ranks && seconds < PAUSE_BEGIN_SECONDS)
        return true; // mpiexec goes on and starts them
    return has_hosts &&
           (seconds < PAUSE_SECONDS ||
            (!have_all_reported(&w->others, since) && seconds < PAUSE_SECONDS_MAX));
}

void job_watch_pause(struct job_watch *w)
{
    double begin = clock_seconds();
    host_watch_pause(&w->here, true);
    job_watch_look(w, 0);
    while (is_order_due(w, begin)) {
        poll(&(struct pollfd){.fd = w->others.fd, .events = POLLIN}, 1, TICK_MS);
        job_watch_look(w, 0);
    }
    w->paused_at = begin;
}

void job_watch_continue(struct job_watch *w)
{
    double now = clock_seconds(), seconds = now - w->paused_at;
    host_watch_pause(&w->here, false);
    w->begun_at += w->begun_at > 0 ? seconds : 0;
    w->step_since += w->step_since > 0 ? seconds : 0;
    for (int r = 0; r < w->others.n_ranks; r++) {
        double *at = &w->others.ranks[r].at; // may lie in the pause
        *at = fmin(*at + seconds, now);
    }
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
                             .median_step = w->median_step,
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
    struct watch_reporter reporter; // with a launcher, which ends the job
    double ends_at;                 // clock_seconds(); 0: nothing to end
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

/* Without a launcher: ranks that can end the job, with its exit code. */
static void judge_host(struct watcher *w)
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
        w->ends_at = clock_seconds() + ABORT_SECONDS;
        atomic_store(&w->job.here.file->must_end, 1);
    }
    close(STDERR_FILENO);
}

/* All ranks of this host are quiet, and the launcher has been for as long: it is out of
 * reach, and will end the job without us. Ranks that have done their work are let go. */
static bool is_cut_off(const struct watcher *w, double hang_timeout)
{
    struct hang_rule rule = {.hang_timeout = hang_timeout};
    double silent = clock_seconds() - w->reporter.heard;
    bool has_work = false;
    for (int r = 0; r < w->job.n_ranks; r++) {
        const struct seen_rank *seen = &w->job.seen[r];
        if (!seen->is_seen || seen->is_over)
            continue;
        double bound = hang_bound(&rule, seen);
        if (seen->quiet <= bound || silent <= bound)
            return false;
        has_work = true;
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

static void report_host(struct watcher *w)
{
    double hang_timeout = host_watch_timeout(&w->job.here);
    enum watch_order order = watch_reporter_tick(
        &w->reporter, w->job.seen, w->job.n_ranks, hang_timeout, take_news(w));
    host_watch_pause(&w->job.here, w->reporter.is_paused);
    if (order == WATCH_STOP)
        host_watch_ask_to_stop(&w->job.here, SIGTERM);
    if (w->ends_at <= 0 && (order == WATCH_END || is_cut_off(w, hang_timeout))) {
        host_watch_stacks(&w->job.here, w->job.seen);
        w->ends_at = clock_seconds() + ABORT_SECONDS;
    }
}

/* As long as a rank of this host lives; that they are gone is said until it was heard. */
static void watch_host(struct watcher *w, bool has_launcher)
{
    struct pollfd deaths = {.fd = w->job.here.deaths_fd, .events = POLLIN};
    do {
        poll(&deaths, 1, TICK_MS);
        job_watch_look(&w->job, 0);
        if (has_launcher)
            report_host(w);
        else
            judge_host(w);
        if (w->ends_at > 0 && clock_seconds() > w->ends_at)
            host_watch_kill(&w->job.here);
    } while (host_watch_any_alive(&w->job.here));
    job_watch_look(&w->job, 0);
    double begin = clock_seconds();
    while (w->reporter.fd >= 0 && w->reporter.heard <= begin &&
           clock_seconds() - begin < LAST_REPORT_SECONDS) {
        watch_reporter_tick(&w->reporter, w->job.seen, w->job.n_ranks, 0, true);
        poll(&(struct pollfd){.fd = w->reporter.fd, .events = POLLIN}, 1, TICK_MS);
    }
}

/* The parent of this process goes on as a rank; this one does not come back. Nothing of
 * the rank is kept: its pipes would never end, its locks never be free, its directory
 * never be unmounted. */
_Noreturn static void become_watcher(const char *path, int n_ranks, const char *launcher)
{
    struct watcher w = {0};
    struct error err;
    if (chdir("/"))
        _exit(1);
    beat_detach();
    job_files_become_background("trefoil-watch", -1);
    if (job_watch_open(&w.job, path, n_ranks, NULL, &err))
        _exit(1);
    watch_reporter_init(&w.reporter, launcher);
    if (fork() != 0) // nobody's child: no rank has to wait for it
        _exit(0);
    watch_host(&w, launcher != NULL);
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
