#include "launch/verdict.h"

#include "base/fs.h"
#include "launch/job_files.h"
#include "launch/job_watch.h"
#include "launch/join_failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define EXIT_STOPPED 75
#define SAME_MOMENT_NS 500000000 // deaths this close are ordered by what mpiexec says

/* -- causes -------------------------------------------------------------------------- */

/* The rank whose death mpiexec tells of, and the signal; -1: none. MPICH tells the process,
 * and of several on one host not always the right one: asked only about other hosts. */
static int find_told_death(const struct job_end *end, int *signal_number)
{
    int rank, pid;
    char host[256];
    mpiexec_told_death(end->said, &rank, &pid, host, signal_number);
    for (int r = 0; pid > 0 && r < end->opt->n_ranks; r++)
        if (end->ranks[r].is_seen && end->ranks[r].pid == pid &&
            strcmp(end->ranks[r].host, host) == 0 && strcmp(host, end->host) != 0)
            rank = r;
    return rank < end->opt->n_ranks ? rank : -1;
}

/* The rank to blame, and the signal that ended it (0: nobody knows): the first that failed
 * as far as was seen; but a death that mpiexec tells of is the cause of what other ranks
 * said in the same moment. */
static int find_cause(const struct job_end *end, int *number)
{
    const struct seen_rank *ranks = end->ranks;
    int told_signal, told = find_told_death(end, &told_signal);
    int cause = job_watch_first_failure(ranks, (int)end->opt->n_ranks);
    bool is_late = cause >= 0 && told >= 0 && ranks[told].is_seen &&
                   ranks[told].said_ns - ranks[cause].said_ns > SAME_MOMENT_NS;
    if (told >= 0 && !is_late && (cause < 0 || ranks[told].state == BEAT_ALIVE))
        cause = told;
    *number = 0;
    if (cause >= 0 && ranks[cause].state == BEAT_CRASHED)
        *number = ranks[cause].code;
    else if (cause >= 0)
        *number = ranks[cause].exit_signal || told != cause ? ranks[cause].exit_signal
                                                            : told_signal;
    return cause;
}

static bool is_any_seen(const struct job_end *end)
{
    bool is_any = false;
    for (int r = 0; r < end->opt->n_ranks; r++)
        is_any = is_any || end->ranks[r].is_seen;
    return is_any;
}

/* -- their words --------------------------------------------------------------------- */

/* "; its log: 'PATH'", or nothing where the log goes with the job or was removed. */
static const char *log_text(char buf[PATH_MAX + 64], const struct job_end *end, int rank,
                            const char *words)
{
    char path[PATH_MAX];
    buf[0] = '\0';
    job_files_log_path(path, sizeof path, end->log_dir, rank);
    if (!end->opt->is_log_temporary && fs_is_directory(end->log_dir))
        snprintf(buf, PATH_MAX + 64, "; %s: '%s'", words, path);
    return buf;
}

static const char *step_text(char buf[40], const struct seen_rank *rank)
{
    snprintf(buf, 40, " at step %lld", (long long)rank->step);
    return rank->step >= 0 ? buf : "";
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

static int explain_failure(const struct job_end *end, int rank, struct error *err)
{
    const struct seen_rank *seen = &end->ranks[rank];
    char step[40], log[PATH_MAX + 64], text[BEAT_REASON_BYTES], host[256];
    enum error_kind kind = seen->code == 2    ? ERROR_INPUT
                           : seen->is_lasting ? ERROR_DIVERGED
                                              : ERROR_RUNTIME;
    snprintf(text, sizeof text, "%s", seen->reason);
    snprintf(host, sizeof host, "%s", seen->host);
    take_origin(text, (int)end->opt->n_ranks, &rank, host);
    return error_set(err, kind, "rank %d on %s failed%s: %s%s", rank, host,
                     step_text(step, seen), text, log_text(log, end, rank, "its log"));
}

/* Who may have sent SIGKILL: lack of memory is named only where the kernel has counted a
 * process that it killed for that. */
static const char *sender_text(enum oom_evidence oom)
{
    static const char *const texts[] = {
        [OOM_UNKNOWN] = " (the kernel, a scheduler, a user or another program sent it)",
        [OOM_NONE] =
            " (a scheduler, a user or another program sent it: the kernel has not "
            "killed any process for lack of memory)",
        [OOM_COUNTED] =
            ", probably for lack of memory: the kernel has killed a process for "
            "that while the job ran",
    };
    return texts[oom];
}

/* Every other deadly signal a rank records itself: one that was not seen was SIGKILL,
 * unless a library has called _exit(). */
static int explain_death(const struct job_end *end, int rank, int number,
                         struct error *err)
{
    const struct seen_rank *seen = &end->ranks[rank];
    bool is_crash = seen->state == BEAT_CRASHED && number != SIGTERM &&
                    number != SIGINT && number != SIGHUP;
    char step[40], log[PATH_MAX + 64];
    if (!seen->is_seen)
        return error_set(err, ERROR_RUNTIME, "rank %d was killed before it could begin",
                         rank);
    log_text(log, end, rank, is_crash ? "its stack is at the end of its log" : "its log");
    if (number == 0 && seen->exit_code != 0)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d on %s (pid %d) ended with exit code %d%s and gave no "
                         "reason%s",
                         rank, seen->host, seen->pid, seen->exit_code,
                         step_text(step, seen), log);
    return error_set(
        err, ERROR_RUNTIME, "rank %d on %s (pid %d) was %s%s by signal %d (%s)%s%s%s%s",
        rank, seen->host, seen->pid, is_crash ? "ended" : "killed",
        number ? "" : ", it seems", number ? number : SIGKILL,
        strsignal(number ? number : SIGKILL), number ? "" : ",", step_text(step, seen),
        number && number != SIGKILL ? "" : sender_text(seen->oom), log);
}

static int explain_join(const struct job_end *end, int rank, struct error *err)
{
    char path[PATH_MAX], where[PATH_MAX + 64];
    job_files_log_path(path, sizeof path, end->log_dir, rank);
    return join_failure_explain(rank, &end->ranks[rank], end->said, path,
                                log_text(where, end, rank, "its log"), err);
}

/* A host that is lost takes its ranks with it, and then the others are killed or complain
 * of its silence: none of that is the cause. NULL: none was lost. */
static const char *find_lost_host(const struct job_end *end)
{
    for (int r = 0; r < end->opt->n_ranks; r++)
        if (end->ranks[r].is_seen && end->ranks[r].condition == RANK_OUT_OF_REACH &&
            end->ranks[r].state == BEAT_ALIVE)
            return end->ranks[r].host;
    return NULL;
}

static int explain_lost_host(const struct job_end *end, const char *host,
                             struct error *err)
{
    char words[600], which[256] = "";
    size_t used = 0;
    for (int r = 0; r < end->opt->n_ranks && used < sizeof which - 32; r++)
        if (end->ranks[r].is_seen && strcmp(end->ranks[r].host, host) == 0)
            used += (size_t)snprintf(which + used, sizeof which - used, "%s%d",
                                     used ? ", " : "", r);
    mpiexec_condense(end->said, words, sizeof words);
    return error_set(err, ERROR_RUNTIME,
                     "host %s was lost with rank %s: the machine, its network or its MPI "
                     "daemon is gone; mpiexec said: %s",
                     host, which, words[0] ? words : "nothing");
}

/* The host that keeps rank `rank` from beginning; "": not known. While no rank has begun,
 * the first that is not this machine; else the rank's own: they are filled in order. */
static void find_silent_host(const struct job_end *end, int rank, char found[256])
{
    char spelled[LAUNCH_HOSTS_BYTES], host[256];
    int first = 0, n;
    struct error ignored;
    bool has_begun = is_any_seen(end);
    found[0] = '\0';
    if (!end->opt->hosts ||
        launch_hosts_spell(spelled, sizeof spelled, end->opt->hosts, &ignored) < 0)
        return;
    for (const char *at = spelled; (at = launch_hosts_next(at, host, &n)); first += n)
        if (!found[0] && (has_begun ? rank >= first && rank < first + n
                                    : strcmp(host, end->host) != 0))
            memcpy(found, host, sizeof host);
}

static int explain_unbegun(const struct job_end *end, struct error *err)
{
    char words[600], host[256], missing[64] = "no rank began";
    const char *rsh = end->opt->rsh ? end->opt->rsh : "ssh";
    bool is_remote = end->opt->hosts || end->opt->hostfile;
    int rank = 0;
    while (rank < end->opt->n_ranks && end->ranks[rank].is_seen)
        rank++;
    if (is_any_seen(end))
        snprintf(missing, sizeof missing, "rank %d did not begin", rank);
    find_silent_host(end, rank, host);
    mpiexec_condense(end->said, words, sizeof words);
    const char *where = host[0] ? host : is_remote ? "HOST" : "-n 1";
    return error_set(err, ERROR_RUNTIME,
                     "%s%s%s; mpiexec said%s%s; see that '%s %s true' works by itself",
                     missing, host[0] ? " on " : "", host, words[0] ? ": " : " nothing",
                     words, is_remote ? rsh : "mpiexec", where);
}

static int explain_mpiexec(const struct job_end *end, struct error *err)
{
    const char *said = end->said + strspn(end->said, " \n");
    if (WIFSIGNALED(end->wait_status))
        return error_set(err, ERROR_RUNTIME,
                         "mpiexec (pid %d) was killed by signal %d (%s), and the ranks "
                         "with it",
                         (int)end->mpiexec, WTERMSIG(end->wait_status),
                         strsignal(WTERMSIG(end->wait_status)));
    return error_set(err, ERROR_RUNTIME, "mpiexec ended with code %d%s%.1600s",
                     WEXITSTATUS(end->wait_status),
                     *said ? "; it said:\n" : " and did not say why", said);
}

/* mpiexec is content, but a rank is not accounted for. */
static int explain_missing(const struct job_end *end, int rank, struct error *err)
{
    char log[PATH_MAX + 64];
    if (!end->ranks[rank].is_seen)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d was not heard of: its host must be able to send "
                         "datagrams to %s",
                         rank, end->host);
    return error_set(err, ERROR_RUNTIME, "rank %d ended before its work was done%s", rank,
                     log_text(log, end, rank, "its log"));
}

static void explain_stop(const struct job_end *end, enum error_kind kind, const char *how,
                         struct error *err)
{
    const char *name = end->stop_signal ? sigabbrev_np(end->stop_signal) : NULL;
    error_set(err, kind, "the job was stopped%s%s%s", name ? " by SIG" : "",
              name ? name : "", how);
}

/* All ranks have saved, and then the job had to be ended. */
static void explain_stop_hung(const struct job_end *end, struct error *err)
{
    char how[1024];
    snprintf(how, sizeof how, ", and can be resumed; %s", end->hang);
    explain_stop(end, ERROR_STOPPED, how, err);
}

/* Ranks asked to stop so early that they did not listen yet, or that never do, died of
 * it. */
static bool is_stopped_early(const struct job_end *end, int cause, int number)
{
    if (!end->stop_signal || !is_any_seen(end))
        return end->stop_signal != 0;
    if (cause < 0 || end->ranks[cause].state == BEAT_FAILED || end->ranks[cause].step > 0)
        return false;
    return number == SIGTERM || number == SIGINT || number == SIGHUP || number == 0;
}

/* Whether all ranks finished with this exit code, although they could not leave MPI. */
static bool have_all_done(const struct job_end *end, int code)
{
    for (int r = 0; r < end->opt->n_ranks; r++)
        if (!end->ranks[r].is_seen || end->ranks[r].outcome != 1 + code)
            return false;
    return true;
}

int verdict(const struct job_end *end, struct error *err)
{
    int number, cause = find_cause(end, &number);
    int missing = job_watch_first_unfinished(end->ranks, (int)end->opt->n_ranks);
    int joining = cause < 0 ? -1
                            : join_failure_find(end->ranks, (int)end->opt->n_ranks,
                                                end->log_dir, cause, number);
    const char *lost = find_lost_host(end);
    const char *reason = cause >= 0 ? end->ranks[cause].reason : NULL;
    bool has_last_word = cause >= 0 && end->ranks[cause].state != BEAT_ALIVE;
    bool is_content = WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0;
    // Hydra's mpiexec also dies of the pipe to its own daemon when a rank was killed
    bool is_shot = WIFSIGNALED(end->wait_status) && !end->is_mpiexec_killed &&
                   WTERMSIG(end->wait_status) != SIGPIPE;
    bool has_saved = false; // a rank said at its end that it was stopped and has saved
    for (int r = 0; r < end->opt->n_ranks; r++)
        has_saved |=
            end->ranks[r].state == BEAT_ENDED && end->ranks[r].code == EXIT_STOPPED;
    bool is_done = missing < 0 && (is_content || end->is_mpiexec_killed);

    if (missing < 0 && has_saved)
        explain_stop(end, ERROR_STOPPED, ", and can be resumed", err);
    else if (is_done || (end->hang[0] && have_all_done(end, 0)))
        return 0;
    else if (end->hang[0] && have_all_done(end, EXIT_STOPPED))
        explain_stop_hung(end, err);
    else if (end->hang[0])
        error_set(err, ERROR_RUNTIME, "%s", end->hang);
    else if (end->is_stop_repeated && !has_last_word)
        error_set(err, ERROR_RUNTIME,
                  "the job was killed by the second signal, before it had stopped; its "
                  "last checkpoint is intact");
    else if (end->stop_signal && reason && strncmp(reason, "stopped by ", 11) == 0)
        error_set(err, ERROR_RUNTIME, "the job was %s", reason); // it had nothing to save
    else if (is_stopped_early(end, cause, number))
        explain_stop(end, ERROR_RUNTIME, " before it had anything to save", err);
    else if (lost && !is_content)
        explain_lost_host(end, lost, err);
    else if (end->is_unbegun ||
             (!is_any_seen(end) && WIFEXITED(end->wait_status) && !is_content))
        explain_unbegun(end, err);
    else if ((is_shot && !has_last_word) || (cause < 0 && !is_content))
        explain_mpiexec(end, err);
    else if (joining >= 0)
        explain_join(end, joining, err);
    else if (cause >= 0 && reason)
        explain_failure(end, cause, err);
    else if (cause >= 0)
        explain_death(end, cause, number, err);
    else
        explain_missing(end, missing, err);
    return error_exit_code(err);
}
