#include "launch/launch_verdict.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define EXIT_STOPPED 75
#define SAME_MOMENT_NS 500000000 // deaths this close are ordered by what mpiexec says

/* -- mpiexec's words ----------------------------------------------------------------- */

/* The words that follow `mark` in `said`; NULL: it is not there. */
static const char *after(const char *said, const char *mark)
{
    const char *at = said ? strstr(said, mark) : NULL;
    return at ? at + strlen(mark) : NULL;
}

/*
 * Open MPI: "... noticed that process rank 1 with PID 0 on node n exited on signal 9
 * (Killed)." MPICH: "=   PID 4711 RUNNING AT n", "=   EXIT CODE: 9", which is a wait
 * status, and "... TERMINATED WITH THE EXIT STRING: Killed (signal 9)".
 */
void launch_verdict_read(const char *said, struct launch_death *death)
{
    *death = (struct launch_death){.rank = -1, .pid = -1, .signal_number = -1};
    const char *at = after(said, "noticed that process rank ");
    const char *by = after(at, "exited on signal ");
    if (by) {
        death->rank = atoi(at);
        death->signal_number = atoi(by);
        return;
    }
    at = after(said, "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES");
    if (at && sscanf(at, " = PID %d RUNNING AT %255s = EXIT CODE: %d", &death->pid,
                     death->host, &death->signal_number) != 3)
        death->pid = -1;
    if (death->signal_number > 31) // its exit code, which it has told by itself
        death->signal_number = -1;
    at = after(after(said, "EXIT STRING: "), "(signal ");
    if (at)
        death->signal_number = atoi(at);
}

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

static const char *step_text(char *buf, size_t size, int64_t step)
{
    buf[0] = '\0';
    if (step >= 0)
        snprintf(buf, size, " at step %lld", (long long)step);
    return buf;
}

/* A failure that the ranks agreed on is headed "rank R on HOST: " by the one that passes
 * it on: *rank and the host become those of its origin. Returns the reason. */
static const char *find_origin(const char *text, int n_ranks, int *rank, char host[256])
{
    int origin, at = 0;
    char origin_host[256];
    if (sscanf(text, "rank %d on %255[^:, ]%n", &origin, origin_host, &at) != 2 ||
        origin < 0 || origin >= n_ranks)
        return text;
    const char *reason = strstr(text + at, ": ");
    if (!reason)
        return text;
    *rank = origin;
    memcpy(host, origin_host, sizeof origin_host);
    return reason + 2;
}

static int explain_failure(const struct launch_ranks *ranks, int rank,
                           struct rank_status *status, struct error *err)
{
    char step[40], log[4096];
    const char *reason = find_origin(status->text, ranks->n_ranks, &rank, status->host);
    enum error_kind kind = status->code == 2    ? ERROR_INPUT
                           : status->is_lasting ? ERROR_DIVERGED
                                                : ERROR_RUNTIME;
    rank_log_path(log, sizeof log, ranks->log_dir, rank);
    return error_set(err, kind, "rank %d on %s failed%s: %s; its log: '%s'", rank,
                     status->host, step_text(step, sizeof step, status->step), reason,
                     log);
}

/* Every other deadly signal a rank records itself: one that nobody saw, as when MPICH's
 * daemon was the first to ask and then failed itself, was SIGKILL but for an _exit(). */
static int explain_death(const struct launch_ranks *ranks, int rank,
                         const struct rank_status *status, int signal_number,
                         struct error *err)
{
    char step[40], log[4096], by[128] = "", hint[128] = "";
    rank_log_path(log, sizeof log, ranks->log_dir, rank);
    step_text(step, sizeof step, status->step);
    if (signal_number > 0)
        snprintf(by, sizeof by, " by signal %d (%s)", signal_number,
                 strsignal(signal_number));
    if (status->state == RANK_CRASHED)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d on %s (pid %d) was ended%s%s; its stack is at the end "
                         "of its log: '%s'",
                         rank, status->host, (int)status->pid, by, step, log);
    if (signal_number <= 0)
        snprintf(by, sizeof by, ", it seems by signal %d (%s),", SIGKILL,
                 strsignal(SIGKILL));
    if (signal_number <= 0 || signal_number == SIGKILL)
        snprintf(hint, sizeof hint, " (as the kernel does when memory runs out)");
    return error_set(err, ERROR_RUNTIME,
                     "rank %d on %s (pid %d) was killed%s%s%s; its log: '%s'", rank,
                     status->host, (int)status->pid, by, step, hint, log);
}

static int explain_rank(const struct launch_ranks *ranks, int rank, int signal_number,
                        struct error *err)
{
    struct rank_status status;
    if (!rank_status_read(ranks->log_dir, rank, &status))
        return error_set(err, ERROR_RUNTIME,
                         "rank %d was killed by signal %d before it could begin", rank,
                         signal_number);
    if (status.state == RANK_FAILED)
        return explain_failure(ranks, rank, &status, err);
    return explain_death(ranks, rank, &status, signal_number, err);
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
    char log[4096];
    rank_log_path(log, sizeof log, ranks->log_dir, rank);
    if (!ranks->all[rank].is_known)
        return error_set(err, ERROR_RUNTIME,
                         "rank %d left no word in '%s'; the log directory must be on a "
                         "file system that all hosts share",
                         rank, ranks->log_dir);
    return error_set(err, ERROR_RUNTIME,
                     "rank %d ended before its work was done; its log: '%s'", rank, log);
}

/* -- the verdict --------------------------------------------------------------------- */

static int stopped(const struct launch_end *end, const char *how, struct error *err)
{
    const char *name = end->stop_signal ? sigabbrev_np(end->stop_signal) : NULL;
    error_set(err, ERROR_STOPPED, "the job was stopped%s%s%s", name ? " by SIG" : "",
              name ? name : "", how);
    return EXIT_STOPPED;
}

/* Ranks asked to stop so early that they did not listen yet died of it. */
static bool is_stopped_early(const struct launch_end *end, int signal_number)
{
    return end->stop_signal && (signal_number == SIGTERM || signal_number <= 0);
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
    launch_verdict_read(end->said, &death);
    int cause = find_cause(ranks, &death);
    int signal_number = cause >= 0 ? find_signal(&ranks->all[cause], &death) : -1;
    int missing = launch_ranks_first_unfinished(ranks);
    bool has_last_word = cause >= 0 && ranks->all[cause].state != RANK_RUNNING;
    bool is_mpiexec_content =
        WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0;

    if (missing < 0 && is_mpiexec_content)
        return launch_ranks_count_ended(ranks, EXIT_STOPPED)
                   ? stopped(end, ", and can be resumed", err)
                   : 0;
    if (end->n_stop_signals > 1 && !has_last_word)
        error_set(err, ERROR_RUNTIME,
                  "the job was killed by the second signal, before it had stopped; its "
                  "last checkpoint is intact");
    else if ((cause >= 0 && !has_last_word && is_stopped_early(end, signal_number)) ||
             (end->stop_signal && !launch_ranks_any_known(ranks)))
        return stopped(end, " before it began to train", err);
    else if ((is_mpiexec_shot(end) && !has_last_word) ||
             (cause < 0 && !is_mpiexec_content))
        explain_mpiexec(end, err);
    else if (cause >= 0)
        explain_rank(ranks, cause, signal_number, err);
    else
        explain_missing(ranks, missing, err);
    return error_exit_code(err);
}
