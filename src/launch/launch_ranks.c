#include "launch/launch_ranks.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#define LOOKS_AT_ONCE 256 // files of a launch_ranks_look(): a job may have 100,000

int launch_ranks_init(struct launch_ranks *ranks, const char *log_dir, int64_t n_ranks,
                      int epoll_fd, struct error *err)
{
    *ranks = (struct launch_ranks){
        .log_dir = log_dir, .n_ranks = (int)n_ranks, .epoll_fd = epoll_fd};
    gethostname(ranks->host, sizeof ranks->host - 1);
    ranks->all = calloc((size_t)n_ranks, sizeof *ranks->all);
    if (!ranks->all)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld ranks",
                         (long long)n_ranks);
    for (int r = 0; r < ranks->n_ranks; r++)
        ranks->all[r].pidfd = -1;
    return 0;
}

void launch_ranks_release(struct launch_ranks *ranks)
{
    for (int r = 0; ranks->all && r < ranks->n_ranks; r++)
        if (ranks->all[r].pidfd >= 0)
            close(ranks->all[r].pidfd);
    free(ranks->all);
    free(ranks->told);
    *ranks = (struct launch_ranks){0};
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take_last_word(struct launch_rank *rank, const struct rank_status *status)
{
    if (rank->state != RANK_RUNNING)
        return;
    rank->state = status->state;
    rank->code = status->code;
    rank->time_ns = status->time_ns;
}

/* Get hold of a process of this machine. Its start time is compared after the pidfd is
 * there: the number may have gone to another process before, not any more. */
static void hold(struct launch_ranks *ranks, int r, const struct rank_status *status)
{
    struct launch_rank *rank = &ranks->all[r];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)r};
    rank->pid = status->pid;
    rank->start_ticks = status->start_ticks;
    rank->pidfd = pidfd_open(status->pid, 0);
    if (rank->pidfd >= 0 && rank_start_ticks(status->pid) == status->start_ticks &&
        epoll_ctl(ranks->epoll_fd, EPOLL_CTL_ADD, rank->pidfd, &event) == 0)
        return;
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    rank->pidfd = -1;
    if (rank_start_ticks(status->pid) != status->start_ticks)
        rank->seen_dead_ns = now_ns();
}

static void look_at(struct launch_ranks *ranks, int r)
{
    struct launch_rank *rank = &ranks->all[r];
    struct rank_status status;
    if (rank->state != RANK_RUNNING || !rank_status_read(ranks->log_dir, r, &status))
        return;
    if (!rank->is_known) {
        rank->is_known = true;
        ranks->n_known++;
        ranks->last_begun_at = clock_seconds();
        rank->is_local = strcmp(status.host, ranks->host) == 0;
        if (rank->is_local) {
            ranks->n_local++;
            ranks->job = status.job;
            memcpy(ranks->session, status.session, sizeof ranks->session);
            hold(ranks, r, &status);
            // a last word may have come between reading and holding
            if (!rank_status_read(ranks->log_dir, r, &status))
                return;
        }
    }
    take_last_word(rank, &status);
}

void launch_ranks_look(struct launch_ranks *ranks)
{
    for (int i = 0; i < LOOKS_AT_ONCE && i < ranks->n_ranks; i++) {
        look_at(ranks, ranks->next);
        ranks->next = (ranks->next + 1) % ranks->n_ranks;
    }
}

void launch_ranks_look_at(struct launch_ranks *ranks, int rank)
{
    if (rank >= 0 && rank < ranks->n_ranks)
        look_at(ranks, rank);
}

void launch_ranks_look_at_all(struct launch_ranks *ranks)
{
    for (int r = 0; r < ranks->n_ranks; r++)
        look_at(ranks, r);
}

void launch_ranks_take_spare(struct launch_ranks *ranks, const char *text)
{
    struct rank_status status;
    int r = rank_status_parse_spare(text, &status);
    if (r < 0 || r >= ranks->n_ranks)
        return;
    struct launch_rank *rank = &ranks->all[r];
    if (!rank->is_known)
        ranks->n_known++;
    rank->is_known = true;
    take_last_word(rank, &status);
    if (status.state == RANK_ENDED ||
        (ranks->told && ranks->told->time_ns <= status.time_ns))
        return;
    if (!ranks->told)
        ranks->told = malloc(sizeof *ranks->told);
    if (!ranks->told)
        return;
    *ranks->told = status;
    ranks->told_rank = r;
}

bool launch_ranks_status(const struct launch_ranks *ranks, int r,
                         struct rank_status *status)
{
    bool has_file = rank_status_read(ranks->log_dir, r, status);
    if (!ranks->told || ranks->told_rank != r ||
        (has_file && status->state != RANK_RUNNING))
        return has_file;
    int64_t step = has_file ? status->step : -1;
    *status = *ranks->told;
    status->step = step;
    return true;
}

void launch_ranks_note_end(struct launch_ranks *ranks, int r)
{
    struct launch_rank *rank = &ranks->all[r];
    if (rank->pidfd < 0)
        return;
    rank->exit_signal = rank_exit_signal(rank->pid, rank->start_ticks);
    rank->seen_dead_ns = now_ns();
    close(rank->pidfd); // leaves the epoll set by that
    rank->pidfd = -1;
    look_at(ranks, r);
}

/* -- questions ----------------------------------------------------------------------- */

/* When this rank failed; 0: it did not, as far as is known. */
static int64_t failure_time(const struct launch_rank *rank)
{
    if (rank->state == RANK_FAILED || rank->state == RANK_CRASHED)
        return rank->time_ns;
    return rank->state == RANK_RUNNING ? rank->seen_dead_ns : 0;
}

int launch_ranks_first_failure(const struct launch_ranks *ranks)
{
    int first = -1;
    for (int r = 0; r < ranks->n_ranks; r++) {
        int64_t t = failure_time(&ranks->all[r]);
        if (t > 0 && (first < 0 || t < failure_time(&ranks->all[first])))
            first = r;
    }
    return first;
}

int launch_ranks_count_ended(const struct launch_ranks *ranks, int code)
{
    int n = 0;
    for (int r = 0; r < ranks->n_ranks; r++)
        n += ranks->all[r].state == RANK_ENDED && ranks->all[r].code == code;
    return n;
}

int launch_ranks_first_unfinished(const struct launch_ranks *ranks)
{
    for (int r = 0; r < ranks->n_ranks; r++)
        if (ranks->all[r].state != RANK_ENDED)
            return r;
    return -1;
}

/* -- signals ------------------------------------------------------------------------- */

int launch_ranks_ask_to_stop(struct launch_ranks *ranks, int stop_signal)
{
    int n = 0, passed_on = stop_signal == SIGUSR1 ? SIGTERM : stop_signal;
    for (int r = 0; r < ranks->n_ranks; r++) {
        struct launch_rank *rank = &ranks->all[r];
        if (rank->pidfd < 0 || rank->is_signalled)
            continue;
        rank->is_signalled = true;
        n += pidfd_send_signal(rank->pidfd, passed_on, NULL, 0) == 0;
    }
    return n;
}

void launch_ranks_kill(const struct launch_ranks *ranks)
{
    for (int r = 0; r < ranks->n_ranks; r++)
        if (ranks->all[r].pidfd >= 0)
            pidfd_send_signal(ranks->all[r].pidfd, SIGKILL, NULL, 0);
}
