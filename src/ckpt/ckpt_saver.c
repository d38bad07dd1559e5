/*
 * One save, by all ranks:
 *
 *     begin     rank 0 makes the temporary directory and its files, all learn its name
 *     write     each rank its slices, in a thread from its copy, or here from the state
 *     end       all agree that all have written; hashes to rank 0, which commits
 *
 * The thread copies the state first, while the next step runs forward and backward, which
 * only read it; the update waits for the end of the copy. Offloaded state moves between
 * memory and disk all the time: there the copy is made before the step goes on.
 *
 * The thread makes no MPI calls and touches nothing but the copy, the sums and its own
 * result, which are not touched here until it is joined.
 */
#include "ckpt/ckpt_saver.h"

#include "base/arena.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_latest.h"
#include "ckpt/ckpt_tokenizer.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define COPY_ALIGN 16       // elements
#define RESCUE_SECONDS 60.0 // in which all ranks must have come to a rescue

enum save_kind {
    SAVE_IN_PASSING, // the job goes on, whatever comes of it
    SAVE_FINAL,      // the last one: complete, or an error
    SAVE_RESCUE,     // was in flight when the job failed
};

struct ckpt_saver {
    struct ckpt_saver_options opt;
    bool is_first; // rank 0
    struct ckpt_layout layout;
    struct ckpt_part part; // what this rank writes
    struct ckpt_sums sums;
    struct ckpt_lock lock; // rank 0's
    /* What was saved last is of a state that no step has begun with yet: it may be the
     * one that gives no loss, so older ones stay until a step has. */
    bool awaits_proof;
    bool has_kept_tokenizer;

    bool is_async;
    bool awaits_copy; // is_copied was or will be posted, and has not been waited for
    sem_t is_copied;
    struct arena copy_arena;
    float *copy;      // (layout.n_kinds, n_copy)
    int64_t n_copy;   // elements of one kind, gaps included
    int64_t *copy_at; // (part.n_pieces) where each piece begins in it

    int64_t step_now;  // of the job, as it said last
    bool is_in_flight; // begun, and neither committed nor given up
    struct ckpt_progress progress;
    struct ckpt_commit commit; // rank 0's
    char temp[PATH_MAX];
    double start_seconds;

    pthread_t thread;
    bool has_thread;
    atomic_bool is_done; // the thread will touch nothing any more
    int rc;              // of the last write
    struct error err;
};

/* -- all ranks ----------------------------------------------------------------------- */

static int agree_in_job(struct ckpt_saver *s, int rc, struct error *err)
{
    return s->opt.world ? comm_agree(s->opt.world, rc, err) : rc;
}

/* What rank 0 has, to all. */
static int broadcast_from_first(struct ckpt_saver *s, void *bytes, size_t n,
                                struct error *err)
{
    return s->opt.world ? comm_bcast_bytes(s->opt.world, bytes, (int64_t)n, 0, err) : 0;
}

/* True on all ranks if it is on one. */
static int share_flag(struct ckpt_saver *s, bool *flag, struct error *err)
{
    int64_t value = *flag;
    if (s->opt.world && comm_max_i64(s->opt.world, &value, 1, err))
        return -1;
    *flag = value != 0;
    return 0;
}

/* -- the copy ------------------------------------------------------------------------ */

size_t ckpt_saver_copy_bytes(const struct shard_map *map, bool is_replica,
                             const struct update_rule *rule)
{
    int64_t n = 0;
    for (int64_t i = 0; i < map->n_pieces && !is_replica; i++)
        if (map->table->params[map->pieces[i].row].is_counted)
            n += i64_round_up(map->pieces[i].n, COPY_ALIGN);
    return (size_t)(update_rule_n_tensors(rule) * n) * sizeof(float);
}

static int64_t piece_index(const struct ckpt_saver *s, const struct ckpt_piece *piece)
{
    return piece - s->part.pieces;
}

static float *copy_of(const struct ckpt_saver *s, int kind,
                      const struct ckpt_piece *piece)
{
    return s->copy + kind * s->n_copy + s->copy_at[piece_index(s, piece)];
}

static const float *view_copy(void *context, int kind, const struct ckpt_piece *piece,
                              int64_t first, int64_t n, float *buffer, struct error *err)
{
    (void)n;
    (void)buffer;
    (void)err;
    return copy_of(context, kind, piece) + first;
}

static int copy_state(struct ckpt_saver *s, struct error *err)
{
    for (int kind = 0; kind < s->layout.n_kinds; kind++)
        for (int64_t i = 0; i < s->part.n_pieces; i++) {
            const struct ckpt_piece *piece = &s->part.pieces[i];
            float *to = copy_of(s, kind, piece);
            const float *x = s->opt.source.view(s->opt.source.context, kind, piece, 0,
                                                piece->n, to, err);
            if (!x)
                return -1;
            if (x != to)
                memcpy(to, x, (size_t)piece->n * sizeof *to);
            beat_aside();
        }
    if (ckpt_failpoint(CKPT_AT_COPIED))
        return error_set(err, ERROR_RUNTIME, "cannot copy the state: %s",
                         strerror(errno));
    return 0;
}

/* -- the thread ---------------------------------------------------------------------- */

static void *copy_and_write(void *context)
{
    struct ckpt_saver *s = context;
    struct ckpt_source source = {view_copy, s};
    s->rc = s->opt.copies_aside ? copy_state(s, &s->err) : 0;
    sem_post(&s->is_copied);
    if (s->rc == 0)
        s->rc = ckpt_write_part(s->temp, &s->layout, &s->part, &source, s->is_first,
                                &s->sums, &s->err);
    atomic_store(&s->is_done, true);
    return NULL;
}

/* The first write to a page costs more than all later ones: not during a save. */
static void *touch_copy(void *context)
{
    struct ckpt_saver *s = context;
    memset(s->copy, 0, (size_t)(s->layout.n_kinds * s->n_copy) * sizeof *s->copy);
    atomic_store(&s->is_done, true);
    return NULL;
}

static bool keep_tokenizer(const struct ckpt_saver *s)
{
    struct error err;
    if (!s->opt.inputs ||
        ckpt_tokenizer_keep_of(s->opt.output_dir, s->opt.inputs, &err) == 0)
        return true;
    log_warning("the tokenizer is not kept beside the checkpoints, so eval and generate "
                "may need --tokenizer: %s",
                err.text);
    return false;
}

static void prune_old(struct ckpt_saver *s)
{
    s->awaits_proof = false;
    ckpt_tidy_prune(s->opt.output_dir, &s->commit.name, s->progress.run_id, &s->opt.keep);
}

static void *tidy_up(void *context)
{
    struct ckpt_saver *s = context;
    if (!s->has_kept_tokenizer)
        s->has_kept_tokenizer = keep_tokenizer(s);
    ckpt_latest_note(s->opt.output_dir, &s->commit.name);
    if (!s->awaits_proof)
        prune_old(s);
    atomic_store(&s->is_done, true);
    return NULL;
}

/* Run it in a thread, or here where none can be had. */
static void run_aside(struct ckpt_saver *s, void *(*work)(void *))
{
    atomic_store(&s->is_done, false);
    s->has_thread = thread_start(&s->thread, work, s) == 0;
    if (!s->has_thread)
        work(s);
}

static void join_thread(struct ckpt_saver *s)
{
    if (s->has_thread) {
        beat(BEAT_SAVER, 0);
        pthread_join(s->thread, NULL);
    }
    s->has_thread = false;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_lock(struct ckpt_saver *s, struct error *err)
{
    if (!s->is_first)
        return 0;
    if (fs_make_directories(s->opt.output_dir, err))
        return -1;
    return ckpt_lock_open(&s->lock, s->opt.output_dir, CKPT_LOCK_BEAT_SECONDS, err);
}

static int open_part(struct ckpt_saver *s, struct error *err)
{
    const struct ckpt_saver_options *opt = &s->opt;
    if (ckpt_layout_init(&s->layout, opt->whole, opt->rule, opt->max_file_bytes, err) ||
        ckpt_sums_init(&s->sums, s->layout.n_blocks, err) ||
        ckpt_part_init(&s->part, opt->map, true, err))
        return -1;
    if (opt->is_replica)
        s->part.n_pieces = 0;
    s->copy_at = calloc((size_t)s->part.n_pieces + 1, sizeof *s->copy_at);
    if (!s->copy_at)
        return error_set(err, ERROR_RUNTIME, "out of memory for saving checkpoints");
    for (int64_t i = 0; i < s->part.n_pieces; i++) {
        s->copy_at[i] = s->n_copy;
        s->n_copy += i64_round_up(s->part.pieces[i].n, COPY_ALIGN);
    }
    return 0;
}

/* Is there memory for the copy beside all that the process is still going to take? */
static bool has_memory(const struct ckpt_saver *s, size_t copy_bytes)
{
    double resident = (double)memory_resident_bytes();
    double rest = s->opt.other_bytes > resident ? s->opt.other_bytes - resident : 0;
    int n_local = s->opt.world ? comm_local_size(s->opt.world) : 1;
    double available = (double)memory_available_bytes() / (double)n_local;
    return (double)copy_bytes + rest <= available;
}

/* All ranks or none. */
static int open_copy(struct ckpt_saver *s, struct error *err)
{
    struct error ignored;
    size_t bytes = ckpt_saver_copy_bytes(s->opt.map, s->opt.is_replica, s->opt.rule);
    if (!s->opt.wants_copies)
        return 0;
    bool is_lacking = bytes > 0 && (!has_memory(s, bytes) ||
                                    arena_open(&s->copy_arena, bytes,
                                               "the copy of a checkpoint", &ignored));
    if (share_flag(s, &is_lacking, err))
        return -1;
    if (is_lacking) {
        arena_close(&s->copy_arena);
        if (s->is_first)
            log_info("checkpoints are saved while training waits: there is no memory for "
                     "copies (%.1f MB in rank 0)",
                     (double)bytes / 1e6);
        return 0;
    }
    s->is_async = true;
    if (bytes > 0) {
        s->copy = arena_f32(&s->copy_arena, s->layout.n_kinds * s->n_copy);
        (void)madvise(s->copy_arena.base, bytes, MADV_HUGEPAGE); // only a wish
        run_aside(s, touch_copy);
    }
    return 0;
}

int ckpt_saver_open(struct ckpt_saver **out, const struct ckpt_saver_options *opt,
                    struct error *err)
{
    struct ckpt_saver *s = calloc(1, sizeof *s);
    int rc = 0;
    *out = s;
    if (!s)
        rc = error_set(err, ERROR_RUNTIME, "out of memory for saving checkpoints");
    if (opt->world)
        rc = comm_agree(opt->world, rc, err);
    if (rc || !s) {
        free(s);
        *out = NULL;
        return -1;
    }
    s->opt = *opt;
    sem_init(&s->is_copied, 0, 0);
    s->is_first = !opt->world || comm_rank(opt->world) == 0;
    rc = open_lock(s, err);
    if (rc == 0)
        rc = open_part(s, err);
    if (agree_in_job(s, rc, err))
        return -1;
    return open_copy(s, err);
}

void ckpt_saver_close(struct ckpt_saver *s)
{
    struct error ignored = {.text = "the run ended"};
    if (!s)
        return;
    join_thread(s);
    if (s->is_in_flight && s->is_first)
        ckpt_commit_abandon(&s->commit, &ignored);
    ckpt_lock_close(&s->lock);
    arena_close(&s->copy_arena);
    ckpt_part_release(&s->part);
    ckpt_sums_release(&s->sums);
    ckpt_layout_release(&s->layout);
    sem_destroy(&s->is_copied);
    free(s->copy_at);
    free(s);
}

/* -- one save ------------------------------------------------------------------------ */

static int begin_save(struct ckpt_saver *s, const struct ckpt_progress *progress,
                      struct error *err)
{
    int rc = 0;
    s->start_seconds = clock_seconds();
    s->is_in_flight = true;
    s->progress = *progress;
    ckpt_sums_reset(&s->sums);
    if (s->is_first) {
        rc = ckpt_commit_begin(&s->commit, s->opt.output_dir, &s->lock, &s->layout,
                               &s->progress, err);
        memcpy(s->temp, s->commit.temp, sizeof s->temp);
    }
    if (agree_in_job(s, rc, err))
        return -1;
    return broadcast_from_first(s, s->temp, sizeof s->temp, err);
}

static void report_end(const struct ckpt_saver *s, const struct error *err)
{
    if (s->is_first && s->opt.on_end)
        s->opt.on_end(s->opt.context, s->commit.final, &s->progress,
                      clock_seconds() - s->start_seconds, err);
}

/* What rank 0 makes of a failed save, for all. Fatal: the job has no business here
 * any more, or this was its last save. */
static int give_up(struct ckpt_saver *s, enum save_kind kind, struct error *err)
{
    struct {
        struct error err;
        bool is_lost;
    } verdict = {.err = *err};
    struct error lost;
    if (s->is_first) {
        ckpt_commit_abandon(&s->commit, &verdict.err);
        verdict.is_lost = ckpt_lock_check(&s->lock, &lost) != 0;
    }
    s->is_in_flight = false;
    if (broadcast_from_first(s, &verdict, sizeof verdict, err))
        return -1;
    *err = verdict.err;
    report_end(s, err);
    if (kind == SAVE_FINAL || verdict.is_lost)
        return -1;
    if (s->is_first)
        log_warning("%s%s", err->text, kind == SAVE_RESCUE ? "" : ". Training goes on");
    return 0;
}

static int commit_save(struct ckpt_saver *s, struct error *err)
{
    int rc = 0;
    if (agree_in_job(s, s->rc, &s->err)) {
        *err = s->err;
        return -1;
    }
    if (s->opt.world && ckpt_gather_sums(&s->sums, s->opt.world, err))
        return -1;
    if (s->is_first)
        rc = ckpt_commit_finish(&s->commit, &s->progress, &s->sums, err);
    return agree_in_job(s, rc, err);
}

/* Every rank has written, or failed to. */
static int end_save(struct ckpt_saver *s, enum save_kind kind, struct error *err)
{
    if (commit_save(s, err))
        return give_up(s, kind, err);
    s->is_in_flight = false;
    report_end(s, NULL);
    if (!s->is_first)
        return 0;
    s->awaits_proof = kind != SAVE_FINAL && s->progress.step == s->step_now;
    if (s->is_async && kind == SAVE_IN_PASSING)
        run_aside(s, tidy_up);
    else
        tidy_up(s);
    return 0;
}

/* The save in flight, if any, whatever is left of it. */
static int finish_previous(struct ckpt_saver *s, enum save_kind kind, struct error *err)
{
    ckpt_saver_await_copy(s);
    join_thread(s);
    return s->is_in_flight ? end_save(s, kind, err) : 0;
}

static int write_now(struct ckpt_saver *s, enum save_kind kind, struct error *err)
{
    s->rc = ckpt_write_part(s->temp, &s->layout, &s->part, &s->opt.source, s->is_first,
                            &s->sums, &s->err);
    return end_save(s, kind, err);
}

static int write_aside(struct ckpt_saver *s, struct error *err)
{
    int rc = s->opt.copies_aside ? 0 : copy_state(s, err);
    if (agree_in_job(s, rc, err))
        return give_up(s, SAVE_IN_PASSING, err);
    s->awaits_copy = true;
    run_aside(s, copy_and_write);
    return 0;
}

static void trace_save(const struct ckpt_saver *s, double start)
{
    trace_end(s->opt.trace, start, &(struct trace_span){.name = "save"});
}

void ckpt_saver_await_copy(struct ckpt_saver *s)
{
    double start = trace_begin(s->opt.trace);
    if (!s->awaits_copy)
        return;
    s->awaits_copy = false;
    beat(BEAT_SAVER, 0);
    while (sem_wait(&s->is_copied) && errno == EINTR)
        ;
    trace_save(s, start);
}

int ckpt_saver_save(struct ckpt_saver *s, const struct ckpt_progress *progress,
                    bool is_final, struct error *err)
{
    enum save_kind kind = is_final ? SAVE_FINAL : SAVE_IN_PASSING;
    double start = trace_begin(s->opt.trace);
    enum beat_phase before = beat_enter(BEAT_SAVE);
    s->step_now = progress->step;
    int rc = finish_previous(s, SAVE_IN_PASSING, err);
    if (rc == 0) {
        join_thread(s); // of old checkpoints being removed
        if (begin_save(s, progress, err))
            rc = give_up(s, kind, err);
        else if (s->is_async && !is_final)
            rc = write_aside(s, err);
        else
            rc = write_now(s, kind, err);
    }
    beat_enter(before);
    trace_save(s, start);
    return rc;
}

int ckpt_saver_poll(struct ckpt_saver *s, int64_t step, struct error *err)
{
    s->step_now = step;
    if (s->awaits_proof && s->progress.step < step)
        prune_old(s);
    if (!s->is_in_flight)
        return 0;
    bool is_busy = !atomic_load(&s->is_done);
    if (share_flag(s, &is_busy, err))
        return -1;
    if (is_busy)
        return 0;
    double start = trace_begin(s->opt.trace);
    enum beat_phase before = beat_enter(BEAT_SAVE);
    int rc = finish_previous(s, SAVE_IN_PASSING, err);
    beat_enter(before);
    trace_save(s, start);
    return rc;
}

/* -- when the job has failed --------------------------------------------------------- */

/* All ranks come here, or the job ends: one that does not must not be waited for without
 * end, and what this one has in flight with it cannot be taken back. */
static int await_all(struct ckpt_saver *s, const struct error *why, struct error *err)
{
    struct comm_request request;
    float unused = 0;
    double end = clock_seconds() + RESCUE_SECONDS;
    const struct timespec pause = {.tv_nsec = 1000000};
    if (!s->opt.world)
        return 0;
    comm_max_f32_start(s->opt.world, &unused, 1, &request);
    beat_wait(BEAT_SAVER, BEAT_EVERYBODY);
    while (!comm_test(&request)) {
        if (clock_seconds() > end)
            comm_abort_with(s->opt.world, why);
        nanosleep(&pause, NULL);
    }
    beat_go_on();
    return comm_wait(&request, err);
}

void ckpt_saver_rescue(struct ckpt_saver *s, int64_t step, const struct error *why)
{
    struct error err;
    if (!s || !s->is_in_flight || (s->opt.world && comm_is_broken(s->opt.world)))
        return;
    s->step_now = step;
    if (await_all(s, why, &err) || finish_previous(s, SAVE_RESCUE, &err))
        log_warning("the checkpoint that was being saved is lost: %s", err.text);
}
