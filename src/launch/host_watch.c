#include "launch/host_watch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "launch/launch_command.h"
#include "launch/proc_stat.h"
#include "launch/rank_status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_CLOSER_AFTER 0.3 // seconds without progress: then /proc is asked
#define SEARCH_EVERY 1.0      // seconds, for ranks that have not begun
#define FACTS_NAPS 50         // of 10 ms, for what the kernel tells to be written
#define HELD_UP_AFTER 1.0     // seconds between two looks: this process was held up
#define SWAP_FAULTS 100       // pages read back since the last action: swapped out

struct host_rank {
    pid_t pid;            // 0: not seen
    int pidfd;            // -1: none
    bool has_begun;       // has a slot
    uint64_t start_ticks; // 0: it is not of the processes seen from here
    uint64_t n_actions;   // of the slot, when last looked at
    double moved;         // clock_seconds() when that changed
    uint64_t faults;      // major ones, at that moment
    enum rank_condition condition;
    double since; // of the condition
};

int host_watch_open(struct host_watch *hw, const char *path, int n_ranks,
                    struct error *err)
{
    *hw = (struct host_watch){.n_ranks = n_ranks, .opened = clock_seconds()};
    gethostname(hw->host, sizeof hw->host - 1);
    snprintf(hw->path, sizeof hw->path, "%s", path);
    hw->file = beat_file_map(path, n_ranks, err);
    if (!hw->file)
        return -1;
    hw->all = calloc((size_t)n_ranks, sizeof *hw->all);
    if (!hw->all) {
        host_watch_close(hw);
        return error_set(err, ERROR_RUNTIME, "out of memory to watch %d ranks", n_ranks);
    }
    for (int r = 0; r < n_ranks; r++)
        hw->all[r].pidfd = -1;
    return 0;
}

void host_watch_close(struct host_watch *hw)
{
    for (int r = 0; hw->all && r < hw->n_ranks; r++)
        if (hw->all[r].pidfd >= 0)
            close(hw->all[r].pidfd);
    if (hw->file && !hw->is_borrowed) // killed ranks may not have
        unlink(hw->path);
    beat_file_unmap(hw->file, hw->n_ranks);
    free(hw->all);
    *hw = (struct host_watch){0};
}

/* -- who is there -------------------------------------------------------------------- */

static void hold(struct host_rank *rank, pid_t pid, double now)
{
    if (rank->pidfd >= 0)
        close(rank->pidfd);
    rank->pid = pid;
    rank->pidfd = pidfd_open(pid, 0);
    rank->start_ticks = proc_stat_field(pid, PROC_START_TICKS);
    rank->moved = rank->since = now;
    rank->condition = RANK_RUNS;
}

pid_t host_watch_daemon(const char *rank_variable)
{
    char name[64], value[16];
    pid_t pid = getppid();
    snprintf(name, sizeof name, "%s=", rank_variable);
    while (pid > 1 && proc_stat_environment(pid, name, value, sizeof value))
        pid = (pid_t)proc_stat_field(pid, PROC_PARENT);
    return pid;
}

/* Whether a process is one of this job's, by where it comes from. */
static bool is_of_job(const struct host_watch *hw, pid_t pid, const char *rank_name)
{
    char value[128];
    if (hw->job)
        return proc_stat_environment(pid, LAUNCH_ENV_JOB "=", value, sizeof value) &&
               strcmp(value, hw->job) == 0;
    for (pid_t p = pid; p > 1; p = (pid_t)proc_stat_field(p, PROC_PARENT)) {
        if (p == hw->daemon)
            return true;
        if (!proc_stat_environment(p, rank_name, value, sizeof value))
            break;
    }
    return false;
}

/* Whether it runs under this host's name: what looks like several hosts may share their
 * process numbers. */
static bool is_of_host(pid_t pid)
{
    char path[64], mine[64], its[64];
    snprintf(path, sizeof path, "/proc/%d/ns/uts", (int)pid);
    ssize_t n_mine = readlink("/proc/self/ns/uts", mine, sizeof mine);
    ssize_t n_its = readlink(path, its, sizeof its);
    return n_mine > 0 && n_mine == n_its && memcmp(mine, its, (size_t)n_its) == 0;
}

static void take_unbegun(struct host_watch *hw, pid_t pid, double now)
{
    char name[64], value[16];
    snprintf(name, sizeof name, "%s=", hw->rank_variable);
    if (!proc_stat_environment(pid, name, value, sizeof value))
        return;
    int r = atoi(value);
    if (r >= 0 && r < hw->n_ranks && hw->all[r].pid == 0 && is_of_host(pid) &&
        is_of_job(hw, pid, name))
        hold(&hw->all[r], pid, now);
}

/* Ranks whose processes are there and have not come to take their slots. */
static void search(struct host_watch *hw, double now)
{
    struct fs_names list;
    struct error ignored;
    if (now < hw->next_search || !hw->rank_variable)
        return;
    hw->next_search = now + SEARCH_EVERY;
    if (fs_list("/proc", &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        pid_t pid = atoi(list.names[i]);
        if (pid > 1 && pid != getpid())
            take_unbegun(hw, pid, now);
    }
    fs_names_release(&list);
}

/* -- what they do -------------------------------------------------------------------- */

static enum rank_condition condition_of(const struct host_rank *rank)
{
    uint64_t swapped_kb, resident_kb;
    if (rank->start_ticks == 0)
        return RANK_RUNS; // of another space of process numbers: nothing is known
    if (proc_stat_field(rank->pid, PROC_START_TICKS) != rank->start_ticks)
        return RANK_GONE;
    char state = proc_stat_state(rank->pid);
    if (state == 'T' || state == 't')
        return RANK_STOPPED;
    if (state == 'Z' || state == 'X' || state == '\0')
        return RANK_GONE;
    proc_stat_swap(rank->pid, &swapped_kb, &resident_kb);
    uint64_t faults = proc_stat_field(rank->pid, PROC_MAJOR_FAULTS) - rank->faults;
    if (swapped_kb > 0 && (swapped_kb > resident_kb || faults > SWAP_FAULTS))
        return RANK_SWAPPED;
    return state == 'D' ? RANK_UNINTERRUPTIBLE : RANK_RUNS;
}

static void note_condition(struct host_rank *rank, double now)
{
    enum rank_condition condition = condition_of(rank);
    if (condition != rank->condition)
        rank->since = now;
    rank->condition = condition;
}

static void note_progress(struct host_rank *rank, const struct beat_slot *slot,
                          double now)
{
    uint64_t n_actions = atomic_load_explicit(&slot->progress, memory_order_relaxed) +
                         atomic_load_explicit(&slot->aside, memory_order_relaxed);
    if (n_actions == rank->n_actions)
        return;
    rank->n_actions = n_actions;
    rank->moved = rank->since = now;
    rank->condition = RANK_RUNS;
    rank->faults = 0; // asked for when it is quiet for long enough to matter
}

static void tell(const struct host_watch *hw, int r, double now, struct seen_rank *seen)
{
    const struct host_rank *rank = &hw->all[r];
    const struct beat_slot *slot = &hw->file->slots[r];
    *seen = (struct seen_rank){
        .is_seen = true,
        .is_over = atomic_load(&slot->is_over) != 0 && rank->condition != RANK_STOPPED &&
                   rank->condition != RANK_UNINTERRUPTIBLE, // those never get away
        .condition = rank->condition,
        .in_condition = now - rank->since,
        .quiet = now - rank->moved,
        .phase = (enum beat_phase)atomic_load(&slot->phase),
        .action = (enum beat_action)atomic_load(&slot->action),
        .detail = atomic_load(&slot->detail),
        .step = rank->has_begun ? atomic_load(&slot->step) : -1,
        .n_steps = atomic_load(&slot->n_steps),
        .peer = rank->has_begun ? atomic_load(&slot->peer) : BEAT_NOBODY,
        .host = hw->host,
    };
}

/* A job that is paused as a whole (a scheduler's suspend, a frozen container) is not
 * looked at meanwhile: nobody was seen to be quiet then. */
static void forgive_pause(struct host_watch *hw, double now)
{
    double gap = hw->looked > 0 ? now - hw->looked : 0;
    hw->looked = now;
    for (int r = 0; gap > HELD_UP_AFTER && r < hw->n_ranks; r++) {
        hw->all[r].moved += gap;
        hw->all[r].since += gap;
    }
}

void host_watch_look(struct host_watch *hw, struct seen_rank *seen)
{
    double now = clock_seconds();
    bool is_any_missing = false;
    forgive_pause(hw, now);
    for (int r = 0; r < hw->n_ranks; r++) {
        struct host_rank *rank = &hw->all[r];
        const struct beat_slot *slot = &hw->file->slots[r];
        int pid = atomic_load(&slot->pid);
        if (pid != 0 && !rank->has_begun) {
            hold(rank, pid, now);
            rank->has_begun = true;
        }
        is_any_missing = is_any_missing || rank->pid == 0;
        if (rank->pid == 0)
            continue;
        note_progress(rank, slot, now);
        if (now - rank->moved > LOOK_CLOSER_AFTER) {
            if (rank->faults == 0)
                rank->faults = proc_stat_field(rank->pid, PROC_MAJOR_FAULTS);
            note_condition(rank, now);
        }
        tell(hw, r, now, &seen[r]);
    }
    if (is_any_missing && now - hw->opened > LOOK_CLOSER_AFTER)
        search(hw, now);
}

bool host_watch_any_alive(const struct host_watch *hw)
{
    for (int r = 0; r < hw->n_ranks; r++) {
        const struct host_rank *rank = &hw->all[r];
        char state = rank->pid ? proc_stat_state(rank->pid) : '\0';
        if (state && state != 'Z' && state != 'X' &&
            proc_stat_field(rank->pid, PROC_START_TICKS) == rank->start_ticks)
            return true;
    }
    return false;
}

double host_watch_timeout(const struct host_watch *hw)
{
    double seconds = 0;
    for (int r = 0; r < hw->n_ranks && seconds <= 0; r++)
        seconds = atomic_load(&hw->file->slots[r].hang_timeout);
    return seconds;
}

/* -- the end ------------------------------------------------------------------------- */

/* What the kernel says about a process that cannot speak for itself. */
static void append_kernel_facts(FILE *out, pid_t pid)
{
    static const char *const names[] = {"wchan", "syscall", "stack"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char path[64], *text;
        size_t n;
        struct error ignored;
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, names[i]);
        if (fs_read_all(path, 65536, &text, &n, &ignored))
            continue;
        if (n > 0)
            fprintf(out, "%s: %s%s", names[i], text, text[n - 1] == '\n' ? "" : "\n");
        free(text);
    }
}

/* It runs no handler that would write its stack. */
static bool is_speechless(const struct seen_rank *seen)
{
    return seen->is_seen && !seen->is_over &&
           (seen->condition == RANK_STOPPED || seen->condition == RANK_UNINTERRUPTIBLE);
}

static void append_facts(const struct host_watch *hw, int r, const struct seen_rank *seen,
                         const char *log_dir)
{
    char path[PATH_MAX + 32];
    if (log_dir)
        rank_log_path(path, sizeof path, log_dir, r);
    else
        snprintf(path, sizeof path, "/proc/%d/fd/2", (int)hw->all[r].pid);
    int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *out = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (!out) {
        if (fd >= 0)
            close(fd);
        return;
    }
    fprintf(out, "\nrank %d on %s %s; as the kernel sees it:\n", r, hw->host,
            hang_condition_words(seen->condition));
    append_kernel_facts(out, hw->all[r].pid);
    (void)fclose(out);
}

/* By a child, which is not waited for long: the log may lie on the very disk that hangs.
 * It keeps no file of ours open, least of all a pipe that somebody reads to its end. */
static void append_facts_aside(const struct host_watch *hw, const struct seen_rank *seen,
                               const char *log_dir)
{
    static const struct timespec nap = {.tv_nsec = 10000000};
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        close_range(3, ~0U, 0);
        for (int r = 0; r < hw->n_ranks; r++)
            if (hw->all[r].pidfd >= 0 && is_speechless(&seen[r]))
                append_facts(hw, r, &seen[r], log_dir);
        _exit(0);
    }
    for (int i = 0; pid > 0 && i < FACTS_NAPS && waitpid(pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&nap, NULL);
}

/* A stopped rank is let go on, into the handler of the signal that is waiting for it, and
 * is held there: so the signal is for its main thread, not for any that MPI has. */
void host_watch_stacks(struct host_watch *hw, const struct seen_rank *seen,
                       const char *log_dir)
{
    append_facts_aside(hw, seen, log_dir);
    for (int r = 0; r < hw->n_ranks; r++) {
        const struct host_rank *rank = &hw->all[r];
        if (rank->pidfd < 0 || seen[r].condition == RANK_GONE || seen[r].is_over)
            continue;
        if (!rank->has_begun)
            continue; // it has no handler yet
        atomic_store(&hw->file->slots[r].is_held, seen[r].condition == RANK_STOPPED);
        tgkill(rank->pid, rank->pid, HOST_WATCH_STACK_SIGNAL);
        if (seen[r].condition == RANK_STOPPED)
            pidfd_send_signal(rank->pidfd, SIGCONT, NULL, 0);
    }
}

void host_watch_kill(struct host_watch *hw)
{
    for (int r = 0; r < hw->n_ranks; r++)
        if (hw->all[r].pidfd >= 0)
            pidfd_send_signal(hw->all[r].pidfd, SIGKILL, NULL, 0);
}
