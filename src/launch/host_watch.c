#include "launch/host_watch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_CLOSER_AFTER 0.3 // seconds without progress: then /proc is asked
#define HELD_UP_AFTER 1.0     // seconds between two looks: this process was held up
#define SWAP_FAULTS 100       // pages read back since the last action: swapped out
#define START_LEAST 60.0      // seconds, with hang_timeout, of ranks that run or wait
#define STEPS 10              // median ones, at least
#define STOP_MOST 30.0        // seconds, when the job is to stop
#define STOP_SAVE_MOST 120.0  // the same, of a save in the kernel: maybe a slow disk
#define ROWS_MOST 1000        // of a table: a job may have 100,000 ranks
#define NAMED_MOST 8          // culprits of a sentence

enum { STAT_STATE = 3, STAT_MAJOR_FAULTS = 12, STAT_EXIT_CODE = 52 }; // as in proc(5)

struct host_rank {
    pid_t pid;          // 0: it has not begun
    int pidfd;          // -1: gone, or of another space of process numbers
    uint64_t n_actions; // of the slot, when last looked at
    double moved;       // clock_seconds() when that changed
    uint64_t faults;    // major ones, at that moment
    enum rank_condition condition;
    double since; // of the condition
    bool is_asked;
    int64_t died_ns; // CLOCK_REALTIME; 0: not seen dead
    int exit_signal, exit_code;
    enum oom_evidence oom;
};

int host_watch_open(struct host_watch *hw, const char *path, int n_ranks,
                    struct error *err)
{
    struct stat space = {0};
    *hw = (struct host_watch){.n_ranks = n_ranks,
                              .deaths_fd = -1,
                              .oom_kills = memory_oom_kills(),
                              .machine_oom_kills = memory_oom_kills_of_machine()};
    gethostname(hw->host, sizeof hw->host - 1);
    snprintf(hw->path, sizeof hw->path, "%s", path);
    hw->file = beat_file_map(path, n_ranks, err);
    if (!hw->file)
        return -1;
    if (stat("/proc/self/ns/pid", &space) == 0)
        hw->pid_space = space.st_ino;
    hw->deaths_fd = epoll_create1(EPOLL_CLOEXEC);
    hw->all = calloc((size_t)n_ranks, sizeof *hw->all);
    if (!hw->all || hw->deaths_fd < 0) {
        host_watch_close(hw);
        return error_set(err, ERROR_RUNTIME, "cannot watch %d ranks: %s", n_ranks,
                         strerror(errno));
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
    if (hw->file) {
        close(hw->deaths_fd);
        unlink(hw->path); // killed ranks may not have
    }
    beat_file_unmap(hw->file, hw->n_ranks);
    free(hw->all);
    *hw = (struct host_watch){0};
}

/* -- /proc --------------------------------------------------------------------------- */

/* The text of a small file of /proc/PID; "": there is none. */
static const char *proc_text(pid_t pid, const char *name, char text[4096])
{
    char path[384];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, 4095) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* Where a field of a stat file begins. The second one is the program's name in brackets,
 * with any characters in it. */
static const char *stat_field(pid_t pid, const char *name, int wanted, char text[4096])
{
    const char *at = strrchr(proc_text(pid, name, text), ')');
    for (int field = 2; at && field < wanted; field++)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    return at ? at : "";
}

static uint64_t stat_number(pid_t pid, int field)
{
    char text[4096];
    return strtoull(stat_field(pid, "stat", field, text), NULL, 10);
}

/* R, S, T, D, Z, ...; D when any of its threads is in an uninterruptible sleep. */
static char process_state(pid_t pid)
{
    char text[4096], name[320];
    struct fs_names threads;
    struct error ignored;
    char state = *stat_field(pid, "stat", STAT_STATE, text);
    snprintf(name, sizeof name, "/proc/%d/task", (int)pid);
    if ((state != 'S' && state != 'R') || fs_list(name, &threads, &ignored))
        return state;
    for (int64_t i = 0; i < threads.n_names && state != 'D'; i++) {
        snprintf(name, sizeof name, "task/%s/stat", threads.names[i]);
        if (*stat_field(pid, name, STAT_STATE, text) == 'D')
            state = 'D';
    }
    fs_names_release(&threads);
    return state;
}

bool host_watch_is_stopped(pid_t pid)
{
    char text[4096], state = *stat_field(pid, "stat", STAT_STATE, text);
    return state == 'T' || state == 't';
}

static bool is_swapped(const struct host_rank *rank)
{
    char text[4096];
    proc_text(rank->pid, "status", text);
    const char *swap = strstr(text, "\nVmSwap:"), *rss = strstr(text, "\nVmRSS:");
    long long swapped = swap ? atoll(swap + 8) : 0, resident = rss ? atoll(rss + 7) : 0;
    uint64_t faults = stat_number(rank->pid, STAT_MAJOR_FAULTS) - rank->faults;
    return swapped > 0 && (swapped > resident || faults > SWAP_FAULTS);
}

static enum rank_condition condition_of(const struct host_rank *rank)
{
    char state = process_state(rank->pid);
    if (state == 'T' || state == 't')
        return RANK_STOPPED;
    if (is_swapped(rank))
        return RANK_SWAPPED;
    return state == 'D' ? RANK_UNINTERRUPTIBLE : RANK_RUNS;
}

/* -- beginnings and ends ------------------------------------------------------------- */

static enum oom_evidence find_oom(const struct host_watch *hw)
{
    uint64_t n = memory_oom_kills();
    if (n == UINT64_MAX || hw->oom_kills == UINT64_MAX)
        return OOM_UNKNOWN;
    if (n > hw->oom_kills)
        return OOM_COUNTED;
    // a rank may be in another group than this process
    return memory_oom_kills_of_machine() == hw->machine_oom_kills ? OOM_NONE
                                                                  : OOM_UNKNOWN;
}

/* The kernel reports how it ended until its parent has waited for it. */
static void note_death(const struct host_watch *hw, struct host_rank *rank)
{
    struct timespec now;
    int status = (int)stat_number(rank->pid, STAT_EXIT_CODE);
    clock_gettime(CLOCK_REALTIME, &now);
    rank->died_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    rank->exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    rank->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    rank->oom = find_oom(hw);
    rank->condition = RANK_GONE;
    rank->since = clock_seconds();
    if (rank->pidfd >= 0)
        close(rank->pidfd); // leaves the epoll set by that
    rank->pidfd = -1;
}

static void hold(struct host_watch *hw, int r, const struct beat_slot *slot)
{
    struct host_rank *rank = &hw->all[r];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)r};
    rank->pid = atomic_load(&slot->pid);
    rank->moved = rank->since = clock_seconds();
    if (atomic_load(&slot->pid_space) != hw->pid_space)
        return; // nothing can be known of its process
    rank->pidfd = pidfd_open(rank->pid, 0);
    if (rank->pidfd < 0 && errno == ESRCH)
        note_death(hw, rank);
    else if (rank->pidfd >= 0)
        epoll_ctl(hw->deaths_fd, EPOLL_CTL_ADD, rank->pidfd, &event);
    if (rank->pidfd >= 0 && hw->is_paused) // it began too late for the order
        pidfd_send_signal(rank->pidfd, SIGSTOP, NULL, 0);
}

static void note_deaths(struct host_watch *hw)
{
    struct epoll_event events[64];
    for (int n; (n = epoll_wait(hw->deaths_fd, events, ARRAY_LEN(events), 0)) > 0;)
        for (int i = 0; i < n; i++)
            note_death(hw, &hw->all[events[i].data.u32]);
}

/* -- what they do -------------------------------------------------------------------- */

static void note_progress(struct host_rank *rank, const struct beat_slot *slot,
                          double now, bool is_paused)
{
    uint64_t n_actions = atomic_load_explicit(&slot->progress, memory_order_relaxed) +
                         atomic_load_explicit(&slot->aside, memory_order_relaxed);
    if (n_actions != rank->n_actions || is_paused) {
        rank->n_actions = n_actions;
        rank->moved = rank->since = now;
        rank->condition = RANK_RUNS;
        rank->faults = 0; // asked for when it is quiet for long enough to matter
    } else if (rank->pidfd >= 0 && now - rank->moved > LOOK_CLOSER_AFTER) {
        if (rank->faults == 0)
            rank->faults = stat_number(rank->pid, STAT_MAJOR_FAULTS);
        enum rank_condition condition = condition_of(rank);
        rank->since = condition == rank->condition ? rank->since : now;
        rank->condition = condition;
    }
}

static void fill_seen(const struct host_watch *hw, int r, double now,
                      struct seen_rank *seen)
{
    const struct host_rank *rank = &hw->all[r];
    const struct beat_slot *slot = &hw->file->slots[r];
    const struct beat_failure *failure = &hw->file->failure;
    enum beat_state state = (enum beat_state)atomic_load(&slot->state);
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
        .step = atomic_load(&slot->step),
        .n_steps = atomic_load(&slot->n_steps),
        .peer = atomic_load(&slot->peer),
        .host = hw->host,
        .pid = rank->pid,
        .outcome = atomic_load(&slot->outcome),
        .state = state,
        .code = atomic_load(&slot->code),
        .said_ns = state != BEAT_ALIVE ? atomic_load(&slot->said_ns) : rank->died_ns,
        .exit_signal = rank->exit_signal,
        .exit_code = rank->exit_code,
        .oom = rank->oom,
    };
    if (atomic_load(&failure->is_written) && atomic_load(&failure->by) == r + 1) {
        seen->reason = failure->text;
        seen->is_lasting = failure->is_lasting != 0;
    }
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
    forgive_pause(hw, now);
    note_deaths(hw);
    for (int r = 0; r < hw->n_ranks; r++) {
        struct host_rank *rank = &hw->all[r];
        const struct beat_slot *slot = &hw->file->slots[r];
        if (rank->pid == 0 && atomic_load(&slot->pid) != 0)
            hold(hw, r, slot);
        if (rank->pid == 0)
            continue;
        if (rank->died_ns == 0)
            note_progress(rank, slot, now, hw->is_paused);
        fill_seen(hw, r, now, &seen[r]);
    }
}

bool host_watch_any_alive(const struct host_watch *hw)
{
    int r = 0;
    while (r < hw->n_ranks && hw->all[r].pidfd < 0)
        r++;
    return r < hw->n_ranks;
}

double host_watch_timeout(const struct host_watch *hw)
{
    double seconds = 0;
    for (int r = 0; r < hw->n_ranks && seconds <= 0; r++)
        seconds = atomic_load(&hw->file->slots[r].hang_timeout);
    return seconds;
}

/* -- signals ------------------------------------------------------------------------- */

/* A stopped rank is let go on, into the handler of the signal that is waiting for it, and
 * is held there: so the signal is for its main thread, not for any that MPI has. */
void host_watch_stacks(struct host_watch *hw, const struct seen_rank *seen)
{
    for (int r = 0; r < hw->n_ranks; r++) {
        const struct host_rank *rank = &hw->all[r];
        if (rank->pidfd < 0 || seen[r].is_over)
            continue;
        atomic_store(&hw->file->slots[r].is_held, seen[r].condition == RANK_STOPPED);
        tgkill(rank->pid, rank->pid, HOST_WATCH_STACK_SIGNAL);
        if (seen[r].condition == RANK_STOPPED)
            pidfd_send_signal(rank->pidfd, SIGCONT, NULL, 0);
    }
}

void host_watch_ask_to_stop(struct host_watch *hw, int signal_number)
{
    for (int r = 0; r < hw->n_ranks; r++) {
        struct host_rank *rank = &hw->all[r];
        if (rank->pidfd >= 0 && !rank->is_asked)
            pidfd_send_signal(rank->pidfd, signal_number, NULL, 0);
        rank->is_asked = rank->is_asked || rank->pidfd >= 0;
    }
}

void host_watch_kill(struct host_watch *hw)
{
    for (int r = 0; r < hw->n_ranks; r++)
        if (hw->all[r].pidfd >= 0)
            pidfd_send_signal(hw->all[r].pidfd, SIGKILL, NULL, 0);
}

void host_watch_pause(struct host_watch *hw, bool is_paused)
{
    for (int r = 0; is_paused != hw->is_paused && r < hw->n_ranks; r++) {
        hw->all[r].moved = hw->all[r].since = clock_seconds();
        if (hw->all[r].pidfd >= 0)
            pidfd_send_signal(hw->all[r].pidfd, is_paused ? SIGSTOP : SIGCONT, NULL, 0);
    }
    hw->is_paused = is_paused;
}

/* -- hangs --------------------------------------------------------------------------- */

/* Seconds without any action, by phase, where hang_timeout is not given. Files may lie on
 * a disk that many share; what a rank does before its first step is seldom cut small. */
static const double default_bounds[BEAT_N_PHASES] = {
    [BEAT_START] = 300,    [BEAT_LOAD] = 600, [BEAT_STEP] = 60,
    [BEAT_EVALUATE] = 120, [BEAT_SAVE] = 600, [BEAT_END] = 300,
};

/* It may go on by itself, however long that takes. */
static bool may_get_there(const struct seen_rank *r)
{
    return r->condition == RANK_RUNS || r->condition == RANK_SWAPPED;
}

double hang_bound(const struct hang_rule *rule, const struct seen_rank *r)
{
    bool is_starting =
        r->phase == BEAT_START || (r->phase == BEAT_STEP && r->n_steps == 0);
    double bound = default_bounds[is_starting ? BEAT_START : r->phase];
    if (rule->hang_timeout > 0) {
        bound = rule->hang_timeout;
        if (is_starting && may_get_there(r))
            bound = fmax(bound, START_LEAST);
    } else if (r->phase == BEAT_STEP || r->phase == BEAT_EVALUATE) {
        bound = fmax(bound, STEPS * rule->median_step);
    }
    bool is_in_kernel = (r->phase == BEAT_SAVE || r->phase == BEAT_END) && // files
                        r->condition == RANK_UNINTERRUPTIBLE;
    double most = is_in_kernel ? STOP_SAVE_MOST : STOP_MOST;
    return rule->is_stopping ? fmin(bound, most) : bound;
}

/* A rank that waited for long and is stopped then is frozen since it was stopped. */
static double frozen_seconds(const struct seen_rank *r)
{
    return may_get_there(r) ? r->quiet : fmin(r->quiet, r->in_condition);
}

/* While somebody makes progress so does the job, and who is out of reach may live. Beside
 * a frozen rank, if it is so only for a moment, nobody else is blamed for being quiet. */
struct hang hang_judge(const struct seen_rank *ranks, int n_ranks,
                       const struct hang_rule *rule, bool *is_culprit)
{
    struct hang hang = {.culprit = -1};
    bool job_moves = false, all_wait = true, has_frozen = false;
    double least = (double)INFINITY; // quiet of those at work
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &ranks[i];
        bool is_at_work = r->is_seen && !r->is_over;
        bool is_late = is_at_work && r->quiet > hang_bound(rule, r);
        job_moves |= is_at_work && !is_late && may_get_there(r);
        all_wait &=
            r->is_seen &&
            (r->is_over || (is_late && may_get_there(r) && r->peer != BEAT_NOBODY));
        least = is_at_work ? fmin(least, r->quiet) : least;
    }
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &ranks[i];
        is_culprit[i] = r->is_seen && !r->is_over && !may_get_there(r) &&
                        !(r->condition == RANK_OUT_OF_REACH && job_moves);
        has_frozen |= is_culprit[i];
    }
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &ranks[i];
        if (!has_frozen)
            is_culprit[i] =
                r->is_seen && !r->is_over && may_get_there(r) && r->peer == BEAT_NOBODY;
        is_culprit[i] = is_culprit[i] && frozen_seconds(r) > hang_bound(rule, r);
        if (!is_culprit[i])
            continue;
        hang.decision = has_frozen || rule->hang_timeout > 0 ? HANG_ENDS : HANG_NAMED;
        hang.seconds = fmax(hang.seconds, frozen_seconds(r));
        hang.culprit = hang.culprit < 0 ? i : hang.culprit;
    }
    if (hang.culprit < 0 && !has_frozen && all_wait && isfinite(least))
        hang = (struct hang){HANG_ENDS, .is_deadlock = true, -1, least};
    return hang;
}

static const struct {
    const char *words, *word; // of a sentence, of a table
} conditions[N_RANK_CONDITIONS] = {
    [RANK_RUNS] = {"is running", "running"},
    [RANK_SWAPPED] = {"is swapped out", "swapped"},
    [RANK_STOPPED] = {"is stopped", "stopped"},
    [RANK_UNINTERRUPTIBLE] = {"is uninterruptible (disk or network file system)",
                              "uninterruptible"},
    [RANK_GONE] = {"is gone", "gone"},
    [RANK_OUT_OF_REACH] = {"is out of reach (its host or the network)", "out of reach"},
};

void hang_table(FILE *out, const struct seen_rank *ranks, int n_ranks)
{
    fprintf(out, "%6s %-16s %8s %-8s %-20s %-10s %-15s %s\n", "rank", "host", "step",
            "phase", "does", "waits for", "state", "for");
    for (int i = 0; i < n_ranks && i < ROWS_MOST; i++) {
        const struct seen_rank *r = &ranks[i];
        char peer[24], action[48], step[24] = "-";
        snprintf(peer, sizeof peer, "%s", r->peer == BEAT_EVERYBODY ? "all" : "-");
        if (!r->is_seen || r->is_over) {
            fprintf(out, "%6d %-16s %s\n", i, r->host ? r->host : "-",
                    r->is_over ? "has ended" : "has not begun");
            continue;
        }
        if (r->peer >= 0)
            snprintf(peer, sizeof peer, "rank %d", r->peer);
        snprintf(action, sizeof action, "%s", beat_action_name(r->action));
        if (r->action == BEAT_FORWARD || r->action == BEAT_BACKWARD)
            snprintf(action + strlen(action), sizeof action - strlen(action),
                     " of block %lld", (long long)r->detail);
        if (r->step >= 0)
            snprintf(step, sizeof step, "%lld", (long long)r->step);
        fprintf(out, "%6d %-16s %8s %-8s %-20s %-10s %-15s %.1f s\n", i, r->host, step,
                beat_phase_name(r->phase), action, peer, conditions[r->condition].word,
                r->quiet);
    }
    if (n_ranks > ROWS_MOST)
        fprintf(out, "   and %d more\n", n_ranks - ROWS_MOST);
}

void hang_sentence(char *buf, size_t size, const struct seen_rank *ranks, int n_ranks,
                   const struct hang *hang, const bool *is_culprit)
{
    size_t used = 0;
    int n_named = 0;
    snprintf(buf, size, "%s", hang->is_deadlock ? "all ranks wait for each other" : "");
    for (int i = 0; i < n_ranks; i++) {
        if (!is_culprit[i] || n_named++ >= NAMED_MOST)
            continue;
        int n = snprintf(buf + used, size - used, "%srank %d on %s %s", used ? ", " : "",
                         i, ranks[i].host, conditions[ranks[i].condition].words);
        used += n > 0 && (size_t)n < size - used ? (size_t)n : size - used - 1;
    }
    if (n_named > NAMED_MOST)
        snprintf(buf + used, size - used, ", and %d more", n_named - NAMED_MOST);
}
