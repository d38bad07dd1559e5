#include "launch/launch_verdict.h"

#include "base/fs.h"
#include "launch/launch_words.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define EXIT_STOPPED 75
#define SAME_MOMENT_NS 500000000 // deaths this close are ordered by what mpiexec says

/* -- words --------------------------------------------------------------------------- */

/* "code 1" or "signal 9 (Killed)". */
static void describe_end(char *buf, size_t size, int wait_status)
{
    if (WIFSIGNALED(wait_status))
        snprintf(buf, size, "signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(buf, size, "code %d", WEXITSTATUS(wait_status));
}

/* -- causes -------------------------------------------------------------------------- */

/* MPICH tells the process, and of several on one host not always the right one: asked
 * only about other hosts, where the launcher does not see for itself. */
static int find_told_rank(const struct launch_ranks *ranks,
                          const struct launch_death *death)
{
    if (death->rank >= 0 && death->rank < ranks->n_ranks)
        return death->rank;
    for (int r = 0; death->pid > 0 && r < ranks->n_ranks; r++) {
        struct rank_status status;
        if (ranks->all[r].is_known && !ranks->all[r].is_local &&
            rank_status_read(ranks->log_dir, r, &status) && status.pid == death->pid &&
            strcmp(status.host, death->host) == 0)
            return r;
    }
    return -1;
}

/* The rank to blame: the first that failed as far as the launcher saw; but a death that
 * mpiexec tells of is the cause of what other ranks said in the same moment. */
static int find_cause(const struct launch_ranks *ranks, const struct launch_death *death)
{
    int first = launch_ranks_first_failure(ranks);
    int told_rank = find_told_rank(ranks, death);
    if (told_rank < 0)
        return first;
    const struct launch_rank *told = &ranks->all[told_rank];
    if (told->state != RANK_RUNNING)
        return first >= 0 ? first : told_rank;
    bool is_late = first >= 0 && told->seen_dead_ns > 0 &&
                   ranks->all[first].state != RANK_RUNNING &&
                   told->seen_dead_ns - ranks->all[first].time_ns > SAME_MOMENT_NS;
    return is_late ? first : told_rank;
}

/* The signal that ended a rank: as it recorded itself, as the launcher saw, as mpiexec
 * told; -1: nobody knows. */
static int find_signal(const struct launch_rank *rank, const struct launch_death *death)
{
    if (rank->state == RANK_CRASHED)
        return rank->code;
    return rank->exit_signal > 0 ? rank->exit_signal : death->signal_number;
}

/* "; its log: 'PATH'", or nothing where the log goes with the job or was removed. */
static const char *log_text(char *buf, size_t size, const struct launch_ranks *ranks,
                            int rank, const char *words)
{
    char path[4096];
    buf[0] = '\0';
    rank_log_path(path, sizeof path, ranks->log_dir, rank);
    if (!ranks->is_log_temporary && fs_is_directory(ranks->log_dir))
        snprintf(buf, size, "; %s: '%s'", words, path);
    return buf;
}

static const char *step_text(char *buf, size_t size, int64_t step)
{
    buf[0] = '\0';
    if (step >= 0)
        snprintf(buf, size, " at step %lld", (long long)step);
    return buf;
}

/* A failure that the ranks agreed on has "rank R on HOST: " in it, at its head or after
 * what was to be done, from the one that passes it on: *rank and the host become those of
 * its origin, and the words are left out of the text. */
static void take_origin(char *text, int n_ranks, int *rank, char host[256])
{
    char *next;
    for (char *at = strstr(text, "rank "); at; at = strstr(next, "rank ")) {
        int origin, n = 0;
        char origin_host[256];
        next = at + 1;
        bool is_head = at == text || (at - text >= 2 && strncmp(at - 2, ": ", 2) == 0);
        if (!is_head ||
            sscanf(at, "rank %d on %255[^:, ]%n", &origin, origin_host, &n) != 2 ||
            origin < 0 || origin >= n_ranks)
            continue;
        const char *reason = strstr(at + n, ": ");
        if (!reason)
            return;
        *rank = origin;
        memcpy(host, origin_host, sizeof origin_host);
        memmove(at, reason + 2, strlen(reason + 2) + 1);
        next = at; // it may have been agreed on more than once
    }
}

static int explain_failure(const struct launch_ranks *ranks, int rank,
                           struct rank_status *status, struct error *err)
{
    char step[40], log[4200];
    enum error_kind kind = status->code == 2    ? ERROR_INPUT
                           : status->is_lasting ? ERROR_DIVERGED
                                                : ERROR_RUNTIME;
    take_origin(status->text, ranks->n_ranks, &rank, status->host);
    return error_set(err, kind, "rank %d on %s failed%s: %s%s", rank, status->host,
                     step_text(step, sizeof step, status->step), status->text,
                     log_text(log, sizeof log, ranks, rank, "its log"));
}

/* Every other deadly signal a rank records itself: one that nobody saw, as when MPICH's
 * daemon was the first to ask and then failed itself, was SIGKILL but for an _exit(). */
static int explain_death(const struct launch_ranks *ranks, int rank,
                         const struct rank_status *status, int signal_number,
                         struct error *err)
{
    char step[40], log[4200], by[128] = "", hint[128] = "";
    step_text(step, sizeof step, status->step);
    if (signal_number > 0)
        snprintf(by, sizeof by, " by signal %d (%s)", signal_number,
                 strsignal(signal_number));
    if (status->state == RANK_CRASHED)
        return error_set(
            err, ERROR_RUNTIME, "rank %d on %s (pid %d) was ended%s%s%s", rank,
            status->host, (int)status->pid, by, step,
            log_text(log, sizeof log, ranks, rank, "its stack is at the end of its log"));
    if (signal_number <= 0)
        snprintf(by, sizeof by, ", it seems by signal %d (%s),", SIGKILL,
                 strsignal(SIGKILL));
    if (signal_number <= 0 || signal_number == SIGKILL)
        snprintf(hint, sizeof hint, " (as the kernel does when memory runs out)");
    return error_set(err, ERROR_RUNTIME, "rank %d on %s (pid %d) was killed%s%s%s%s",
                     rank, status->host, (int)status->pid, by, step, hint,
                     log_text(log, sizeof log, ranks, rank, "its log"));
}

static int explain_rank(const struct launch_ranks *ranks, int rank, int signal_number,
                        struct error *err)
{
    struct rank_status status;
    if (launch_ranks_status(ranks, rank, &status))
        return status.state == RANK_FAILED
                   ? explain_failure(ranks, rank, &status, err)
                   : explain_death(ranks, rank, &status, signal_number, err);
    if (ranks->all[rank].is_known)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d ended, and what it left to say is lost: its files in "
                         "the log directory '%s' were removed while the job ran",
                         rank, ranks->log_dir);
    if (signal_number <= 0)
        return error_set(err, ERROR_RUNTIME, "rank %d ended before it could begin", rank);
    return error_set(err, ERROR_RUNTIME,
                     "rank %d was killed by signal %d (%s) before it could begin", rank,
                     signal_number, strsignal(signal_number));
}

/* Who has a rank that left no last word, beside this machine: "b" or "b, c". */
static void list_other_hosts(const struct launch_ranks *ranks, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < ranks->n_ranks; r++) {
        struct rank_status status;
        const struct launch_rank *rank = &ranks->all[r];
        if (!rank->is_known || rank->is_local || rank->state != RANK_RUNNING ||
            !rank_status_read(ranks->log_dir, r, &status) || strstr(text, status.host))
            continue;
        int n = snprintf(text + used, size - used, "%s%s", used ? ", " : "", status.host);
        used += (size_t)i64_min(n, (int64_t)(size - used) - 1);
    }
}

/* Whether a rank of this host has said why it failed: then the host was not lost. */
static bool has_last_word_from(const struct launch_ranks *ranks, const char *host)
{
    for (int r = 0; r < ranks->n_ranks; r++) {
        struct rank_status status;
        if (ranks->all[r].is_known && !ranks->all[r].is_local &&
            (ranks->all[r].state == RANK_FAILED || ranks->all[r].state == RANK_CRASHED) &&
            rank_status_read(ranks->log_dir, r, &status) &&
            (!host[0] || strcmp(status.host, host) == 0))
            return true;
    }
    return false;
}

/* A host that is lost takes its ranks with it, and then the others are killed or complain
 * of its silence: none of that is the cause. */
static bool find_lost_host(const struct launch_ranks *ranks, const struct launch_end *end,
                           char *hosts, size_t size)
{
    char told[256];
    if (!launch_words_lost_host(end->said, told) || has_last_word_from(ranks, told))
        return false;
    if (told[0])
        snprintf(hosts, size, "%s", told);
    else
        list_other_hosts(ranks, hosts, size);
    return hosts[0] != '\0';
}

static int explain_lost_host(const struct launch_ranks *ranks,
                             const struct launch_end *end, const char *hosts,
                             struct error *err)
{
    char words[600], which[256] = "";
    struct rank_status status;
    size_t used = 0;
    for (int r = 0; r < ranks->n_ranks; r++)
        if (ranks->all[r].is_known && rank_status_read(ranks->log_dir, r, &status) &&
            strstr(hosts, status.host) && used < sizeof which - 32)
            used += (size_t)snprintf(which + used, sizeof which - used, "%s%d",
                                     used ? ", " : " with rank ", r);
    launch_words_condense(end->said, words, sizeof words);
    return error_set(err, ERROR_RUNTIME,
                     "host %s was lost%s: the machine, its network or its MPI daemon is "
                     "gone; mpiexec said: %s",
                     hosts, which, words);
}

/* The host that keeps rank `rank` from beginning; "": not known. Where mpiexec names one
 * it is that; else, while no rank has begun, the first that is not this machine; else the
 * rank's own: hosts are filled in their order. */
static void find_silent_host(const struct launch_ranks *ranks,
                             const struct launch_end *end, int rank, char found[256])
{
    char spelled[65536], host[256];
    int64_t first = 0;
    int how_sure = 0; // 2: named, 1: by its place
    struct error ignored;
    found[0] = '\0';
    if (!end->opt || !end->opt->hosts ||
        launch_hosts_spell(spelled, sizeof spelled, end->opt->hosts, &ignored) < 0)
        return;
    for (char *at = spelled; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = 0;
        if (sscanf(at, "%255[^:]:%d", host, &n) != 2)
            break;
        bool is_here = strcmp(host, ranks->host) == 0;
        bool has_it = ranks->n_known == 0 ? !is_here : rank >= first && rank < first + n;
        int sureness = !is_here && strstr(end->said, host) ? 2 : has_it ? 1 : 0;
        if (sureness > how_sure) {
            how_sure = sureness;
            snprintf(found, 256, "%s", host);
        }
        first += n;
    }
}

/* What may help ranks to begin. */
static void suggest_for_beginning(const struct launch_end *end, const char *host,
                                  char *text, size_t size)
{
    struct rlimit files;
    const char *rsh = end->opt && end->opt->rsh ? end->opt->rsh : "ssh";
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 256)
        snprintf(text, size,
                 "the limit of open files is %llu here, which is too low: raise it, as "
                 "in ulimit -n 1024",
                 (unsigned long long)files.rlim_cur);
    else if (host[0])
        snprintf(text, size, "see that '%s %s true' works by itself", rsh, host);
    else if (end->opt && end->opt->hostfile)
        snprintf(text, size, "see that '%s HOST true' works for every host of '%s'", rsh,
                 end->opt->hostfile);
    else
        snprintf(text, size, "see that 'mpiexec -n 1 true' works by itself");
}

static int explain_unbegun(const struct launch_ranks *ranks, const struct launch_end *end,
                           struct error *err)
{
    char words[600], host[256], remedy[1024], missing[64] = "no rank began";
    int rank = 0;
    while (rank < ranks->n_ranks && ranks->all[rank].is_known)
        rank++;
    if (ranks->n_known > 0)
        snprintf(missing, sizeof missing, "rank %d did not begin", rank);
    find_silent_host(ranks, end, rank, host);
    suggest_for_beginning(end, host, remedy, sizeof remedy);
    launch_words_condense(end->said, words, sizeof words);
    return error_set(err, ERROR_RUNTIME, "%s%s%s; mpiexec said%s%s; %s", missing,
                     host[0] ? " on " : "", host, words[0] ? ": " : " nothing", words,
                     remedy);
}

static int explain_mpiexec(const struct launch_end *end, struct error *err)
{
    char how[96];
    const char *said = end->said + strspn(end->said, " \n");
    describe_end(how, sizeof how, end->wait_status);
    if (WIFSIGNALED(end->wait_status))
        return error_set(err, ERROR_RUNTIME,
                         "mpiexec (pid %d) was killed by %s, and the ranks with it",
                         (int)end->mpiexec, how);
    return error_set(err, ERROR_RUNTIME, "mpiexec ended with %s%s%.1600s", how,
                     *said ? "; it said:\n" : " and did not say why", said);
}

/* mpiexec is content, but a rank is not accounted for. */
static int explain_missing(const struct launch_ranks *ranks, int rank, struct error *err)
{
    char log[4200];
    if (!ranks->all[rank].is_known)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d left no word in '%s'; the log directory must be on a "
                         "file system that all hosts share",
                         rank, ranks->log_dir);
    return error_set(err, ERROR_RUNTIME, "rank %d ended before its work was done%s", rank,
                     log_text(log, sizeof log, ranks, rank, "its log"));
}

/* -- the verdict --------------------------------------------------------------------- */

static void stopped(const struct launch_end *end, enum error_kind kind, const char *how,
                    struct error *err)
{
    const char *name = end->stop_signal ? sigabbrev_np(end->stop_signal) : NULL;
    error_set(err, kind, "the job was stopped%s%s%s", name ? " by SIG" : "",
              name ? name : "", how);
}

/* Ranks that were asked to stop had nothing to save, and said so: that is no failure of
 * theirs. */
static bool is_stopped_unsaved(const struct launch_ranks *ranks,
                               const struct launch_end *end, int cause,
                               struct rank_status *status)
{
    return end->stop_signal && cause >= 0 && launch_ranks_status(ranks, cause, status) &&
           status->state == RANK_FAILED && strncmp(status->text, "stopped by ", 11) == 0;
}

/* Ranks asked to stop so early that they did not listen yet, or that never do, died of
 * it. */
static bool is_stopped_early(const struct launch_ranks *ranks,
                             const struct launch_end *end, int cause, int signal_number)
{
    struct rank_status status;
    if (!end->stop_signal || ranks->n_known == 0)
        return end->stop_signal != 0;
    if (cause < 0 || ranks->all[cause].state != RANK_RUNNING)
        return false;
    bool has_step = rank_status_read(ranks->log_dir, cause, &status) && status.step > 0;
    return !has_step && (signal_number == SIGTERM || signal_number == SIGINT ||
                         signal_number == SIGHUP || signal_number <= 0);
}

/* Somebody killed mpiexec. Hydra's also dies of the pipe to its own daemon when a rank
 * was killed. */
static bool is_mpiexec_shot(const struct launch_end *end)
{
    return WIFSIGNALED(end->wait_status) && !end->is_mpiexec_killed &&
           WTERMSIG(end->wait_status) != SIGPIPE;
}

int launch_verdict(const struct launch_ranks *ranks, const struct launch_end *end,
                   struct error *err)
{
    struct launch_death death;
    struct rank_status status;
    char hosts[1024];
    launch_words_death(end->said, &death);
    int cause = find_cause(ranks, &death);
    int signal_number = cause >= 0 ? find_signal(&ranks->all[cause], &death) : -1;
    int missing = launch_ranks_first_unfinished(ranks);
    bool has_last_word = cause >= 0 && ranks->all[cause].state != RANK_RUNNING;
    bool is_mpiexec_content =
        WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0;

    if (missing < 0 && launch_ranks_count_ended(ranks, EXIT_STOPPED))
        stopped(end, ERROR_STOPPED, ", and can be resumed", err);
    else if (missing < 0 && (is_mpiexec_content || end->is_mpiexec_killed))
        return 0;
    else if (end->hang && end->hang[0])
        error_set(err, ERROR_RUNTIME, "%s", end->hang);
    else if (end->is_stop_repeated && !has_last_word)
        error_set(err, ERROR_RUNTIME,
                  "the job was killed by the second signal, before it had stopped; its "
                  "last checkpoint is intact");
    else if (is_stopped_unsaved(ranks, end, cause, &status))
        error_set(err, ERROR_RUNTIME, "the job was %s", status.text);
    else if (is_stopped_early(ranks, end, cause, signal_number))
        stopped(end, ERROR_RUNTIME, " before it had anything to save", err);
    else if (find_lost_host(ranks, end, hosts, sizeof hosts))
        explain_lost_host(ranks, end, hosts, err);
    else if (end->is_unbegun ||
             (ranks->n_known == 0 && WIFEXITED(end->wait_status) && !is_mpiexec_content))
        explain_unbegun(ranks, end, err);
    else if ((is_mpiexec_shot(end) && !has_last_word) ||
             (cause < 0 && !is_mpiexec_content))
        explain_mpiexec(end, err);
    else if (cause >= 0)
        explain_rank(ranks, cause, signal_number, err);
    else
        explain_missing(ranks, missing, err);
    return error_exit_code(err);
}
