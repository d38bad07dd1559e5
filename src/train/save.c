/*
 * One save, by all ranks:
 *
 *     begin     rank 0 makes the temporary directory and its files, all learn its name
 *     write     each rank its slices, in a thread from its copy, or here from the state
 *     settle    all agree that all have written; hashes to rank 0, which commits
 *
 * The thread copies the state first, while the next step runs forward and backward, which
 * only read it; the update waits for the end of the copy. Offloaded state moves between
 * memory and disk all the time: there the copy is made before the step goes on.
 *
 * The thread makes no MPI calls and touches nothing but the copy, the sums and its own
 * result, which are not touched here until it is joined.
 */
#include "train/save.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_format.h"
#include "ckpt/ckpt_write.h"
#include "ckpt/keep_tokenizer.h"
#include "data/formats/dataset_list.h"
#include "train/state.h"

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
    SAVE_IN_PASSING, // training goes on, whatever comes of it
    SAVE_FINAL,      // the last one: complete, or an error
    SAVE_RESCUE,     // was in flight when the run failed
};

struct saver {
    struct train *t;
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
    bool copies_aside; // the copy is the thread's work too
    bool awaits_copy;  // is_copied was or will be posted, and has not been waited for
    sem_t is_copied;
    struct arena copy_arena;
    float *copy;      // (layout.n_kinds, n_copy)
    int64_t n_copy;   // elements of one kind, gaps included
    int64_t *copy_at; // (part.n_pieces) where each piece begins in it

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

static struct comm *world_of(const struct saver *s)
{
    return s->t->grid.world;
}

/* -- the copy ------------------------------------------------------------------------ */

static bool is_writer(const struct plan *plan, const struct param *row)
{
    return plan->layout.at.dp == 0 && row->is_counted;
}

/* Whether there are saves that training goes on after. */
static bool wants_copies(const struct config *cfg)
{
    const struct config_save_load *save = &cfg->save_load;
    return save->async_save && save->save_steps > 0 &&
           (cfg->max_steps == 0 || save->save_steps < cfg->max_steps);
}

size_t train_save_bytes(const struct plan *plan, const struct config *cfg)
{
    int64_t n = 0;
    if (!wants_copies(cfg))
        return 0;
    for (int64_t i = 0; i < plan->layout.map.n_pieces; i++) {
        const struct shard_piece *piece = &plan->layout.map.pieces[i];
        if (is_writer(plan, &plan->layout.table.params[piece->row]))
            n += i64_round_up(piece->n, COPY_ALIGN);
    }
    const struct update_rule *rule = update_rule_of(&cfg->optimizer);
    return (size_t)(update_rule_n_tensors(rule) * n) * sizeof(float);
}

static int64_t piece_index(const struct saver *s, const struct ckpt_piece *piece)
{
    return piece - s->part.pieces;
}

static float *copy_of(const struct saver *s, int kind, const struct ckpt_piece *piece)
{
    return s->copy + kind * s->n_copy + s->copy_at[piece_index(s, piece)];
}

static const float *view_copy(void *context, int kind, const struct ckpt_piece *piece,
                              int64_t first, int64_t n, float *room, struct error *err)
{
    (void)n;
    (void)room;
    (void)err;
    return copy_of(context, kind, piece) + first;
}

static const float *view_state(void *context, int kind, const struct ckpt_piece *piece,
                               int64_t first, int64_t n, float *room, struct error *err)
{
    struct saver *s = context;
    const struct shard_piece *shard = &s->t->plan.layout.map.pieces[piece->id];
    if (state_read(s->t, kind, shard, first, n, room, err))
        return NULL;
    return room;
}

static int copy_state(struct saver *s, struct error *err)
{
    for (int kind = 0; kind < s->layout.n_kinds; kind++)
        for (int64_t i = 0; i < s->part.n_pieces; i++) {
            const struct ckpt_piece *piece = &s->part.pieces[i];
            float *to = copy_of(s, kind, piece);
            if (!view_state(s, kind, piece, 0, piece->n, to, err))
                return -1;
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
    struct saver *s = context;
    struct ckpt_source source = {view_copy, s};
    s->rc = s->copies_aside ? copy_state(s, &s->err) : 0;
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
    struct saver *s = context;
    memset(s->copy, 0, (size_t)(s->layout.n_kinds * s->n_copy) * sizeof *s->copy);
    atomic_store(&s->is_done, true);
    return NULL;
}

/* The data may be elsewhere when somebody wants to generate. */
static bool keep_tokenizer(const struct config *cfg)
{
    char name[PATH_MAX];
    struct error err;
    int rc = dataset_list_tokenizer(&cfg->dataset.input_dir, name, sizeof name, &err);
    if (rc == 0 && name[0])
        rc = ckpt_keep_tokenizer(cfg->save_load.output_dir, name, &err);
    if (rc)
        log_warning(
            "the tokenizer is not kept beside the checkpoints, so eval and generate "
            "may have to be told --tokenizer: %s",
            err.text);
    return rc == 0;
}

static void prune(struct saver *s)
{
    const struct config_save_load *save = &s->t->cfg.save_load;
    struct ckpt_keep keep = {.last = save->keep_last, .every = save->keep_every};
    s->awaits_proof = false;
    ckpt_tidy_prune(save->output_dir, &s->commit.name, s->progress.run_id, &keep);
}

static void *tidy(void *context)
{
    struct saver *s = context;
    const struct config_save_load *save = &s->t->cfg.save_load;
    if (!s->has_kept_tokenizer)
        s->has_kept_tokenizer = keep_tokenizer(&s->t->cfg);
    ckpt_tidy_note(save->output_dir, &s->commit.name);
    if (!s->awaits_proof)
        prune(s);
    atomic_store(&s->is_done, true);
    return NULL;
}

/* Run it in a thread, or here where none can be had. */
static void run_aside(struct saver *s, void *(*work)(void *))
{
    atomic_store(&s->is_done, false);
    s->has_thread = thread_start(&s->thread, work, s) == 0;
    if (!s->has_thread)
        work(s);
}

static void join(struct saver *s)
{
    if (s->has_thread) {
        beat(BEAT_SAVER, 0);
        pthread_join(s->thread, NULL);
    }
    s->has_thread = false;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_lock(struct saver *s, struct error *err)
{
    const char *dir = s->t->cfg.save_load.output_dir;
    if (!s->is_first)
        return 0;
    if (fs_make_directories(dir, err))
        return -1;
    return ckpt_lock_open(&s->lock, dir, CKPT_LOCK_BEAT_SECONDS, err);
}

static int open_part(struct saver *s, struct error *err)
{
    const struct train *t = s->t;
    if (ckpt_layout_init(&s->layout, &t->plan.layout.whole,
                         update_rule_of(&t->cfg.optimizer),
                         t->cfg.save_load.max_file_bytes, err) ||
        ckpt_sums_init(&s->sums, s->layout.n_blocks, err) ||
        ckpt_part_init(&s->part, &t->plan.layout.map, true, err))
        return -1;
    if (t->plan.layout.at.dp > 0)
        s->part.n_pieces = 0; // replicas have nothing to add
    s->copy_at = calloc((size_t)s->part.n_pieces + 1, sizeof *s->copy_at);
    if (!s->copy_at)
        return error_set(err, ERROR_RUNTIME, "out of memory for saving checkpoints");
    for (int64_t i = 0; i < s->part.n_pieces; i++) {
        s->copy_at[i] = s->n_copy;
        s->n_copy += i64_round_up(s->part.pieces[i].n, COPY_ALIGN);
    }
    return 0;
}

/* Is there memory for the copy beside all that the run is still going to take? */
static bool has_room(const struct train *t, size_t copy_bytes)
{
    double resident = (double)memory_resident_bytes();
    double needed = t->memory.total - t->memory.saving;
    double rest = needed > resident ? needed - resident : 0;
    double available =
        (double)memory_available_bytes() / (double)comm_local_size(t->grid.world);
    return (double)copy_bytes + rest <= available;
}

/* All ranks or none. */
static int open_copy(struct saver *s, struct error *err)
{
    struct train *t = s->t;
    struct error ignored;
    size_t bytes = train_save_bytes(&t->plan, &t->cfg);
    if (!wants_copies(&t->cfg))
        return 0;
    int64_t is_lacking = bytes > 0 && (!has_room(t, bytes) ||
                                       arena_open(&s->copy_arena, bytes,
                                                  "the copy of a checkpoint", &ignored));
    if (comm_max_i64(world_of(s), &is_lacking, 1, err))
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

int train_save_open(struct train *t, struct error *err)
{
    struct saver *s = calloc(1, sizeof *s);
    int rc = 0;
    if (!s)
        rc = error_set(err, ERROR_RUNTIME, "out of memory for saving checkpoints");
    if (comm_agree(t->grid.world, rc, err) || !s) {
        free(s);
        return -1;
    }
    s->t = t;
    sem_init(&s->is_copied, 0, 0);
    s->copies_aside = !layout_offload_dir(&t->cfg);
    s->is_first = comm_rank(t->grid.world) == 0;
    t->saver = s;
    rc = open_lock(s, err);
    if (rc == 0)
        rc = open_part(s, err);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    return open_copy(s, err);
}

void train_save_close(struct train *t)
{
    struct saver *s = t->saver;
    struct error ignored = {.text = "the run ended"};
    if (!s)
        return;
    join(s);
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
    t->saver = NULL;
}

/* -- one save ------------------------------------------------------------------------ */

static void set_progress(struct saver *s)
{
    const struct train *t = s->t;
    s->progress = (struct ckpt_progress){
        .step = t->step,
        .epoch = train_epoch(t, t->consumed_samples),
        .consumed_samples = t->consumed_samples,
        .scaler = {.scale = t->scaler.is_dynamic ? t->scaler.scale : 0,
                   .good_steps = t->scaler.good_steps,
                   .bad_steps = t->scaler.bad_steps,
                   .n_skipped = t->scaler.n_skipped},
        .config_json = t->config_json,
    };
    input_set_fingerprint(&t->inputs, s->progress.data_fingerprint);
    memcpy(s->progress.run_id, t->run_id, sizeof t->run_id);
}

static int begin(struct saver *s, struct error *err)
{
    int rc = 0;
    s->start_seconds = clock_seconds();
    s->is_in_flight = true;
    set_progress(s);
    ckpt_sums_reset(&s->sums);
    if (s->is_first) {
        rc = ckpt_commit_begin(&s->commit, s->t->cfg.save_load.output_dir, &s->lock,
                               &s->layout, &s->progress, err);
        memcpy(s->temp, s->commit.temp, sizeof s->temp);
    }
    if (comm_agree(world_of(s), rc, err))
        return -1;
    return comm_bcast_bytes(world_of(s), s->temp, sizeof s->temp, 0, err);
}

/* For who looks at metrics alone. The disk that has no room for a checkpoint may have
 * none for this either. */
static void tell_metrics(struct saver *s, const struct error *err)
{
    struct error ignored;
    if (metrics_save_failed(&s->t->metrics, s->progress.step, err->text, &ignored))
        log_warning("%s", ignored.text);
}

/* What rank 0 makes of a failed save, told to all. Fatal: the run has no business here
 * any more, or this was its last save. */
static int give_up(struct saver *s, enum save_kind kind, struct error *err)
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
    if (comm_bcast_bytes(world_of(s), &verdict, sizeof verdict, 0, err))
        return -1;
    *err = verdict.err;
    if (s->is_first)
        tell_metrics(s, err);
    if (kind == SAVE_FINAL || verdict.is_lost)
        return -1;
    if (s->is_first)
        log_warning("%s%s", err->text, kind == SAVE_RESCUE ? "" : ". Training goes on");
    return 0;
}

static int commit(struct saver *s, struct error *err)
{
    int rc = 0;
    if (comm_agree(world_of(s), s->rc, &s->err)) {
        *err = s->err;
        return -1;
    }
    if (ckpt_gather_sums(&s->sums, world_of(s), err))
        return -1;
    if (s->is_first)
        rc = ckpt_commit_finish(&s->commit, &s->progress, &s->sums, err);
    return comm_agree(world_of(s), rc, err);
}

/* Every rank has written, or failed to. */
static int settle(struct saver *s, enum save_kind kind, struct error *err)
{
    if (commit(s, err))
        return give_up(s, kind, err);
    s->is_in_flight = false;
    if (!s->is_first)
        return 0;
    log_info("saved checkpoint '%s' (%.1f s)", s->commit.final,
             clock_seconds() - s->start_seconds);
    s->awaits_proof = kind != SAVE_FINAL && s->progress.step == s->t->step;
    if (s->is_async && kind == SAVE_IN_PASSING)
        run_aside(s, tidy);
    else
        tidy(s);
    return 0;
}

/* The save in flight, if any, whatever is left of it. */
static int finish_previous(struct saver *s, enum save_kind kind, struct error *err)
{
    train_save_before_update(s->t);
    join(s);
    return s->is_in_flight ? settle(s, kind, err) : 0;
}

static int write_now(struct saver *s, enum save_kind kind, struct error *err)
{
    struct ckpt_source source = {view_state, s};
    s->rc = ckpt_write_part(s->temp, &s->layout, &s->part, &source, s->is_first, &s->sums,
                            &s->err);
    return settle(s, kind, err);
}

static int write_aside(struct saver *s, struct error *err)
{
    int rc = s->copies_aside ? 0 : copy_state(s, err);
    if (comm_agree(world_of(s), rc, err))
        return give_up(s, SAVE_IN_PASSING, err);
    s->awaits_copy = true;
    run_aside(s, copy_and_write);
    return 0;
}

void train_save_before_update(struct train *t)
{
    struct saver *s = t->saver;
    double start = trace_begin(t->job_trace.trace);
    if (!s->awaits_copy)
        return;
    s->awaits_copy = false;
    beat(BEAT_SAVER, 0);
    while (sem_wait(&s->is_copied) && errno == EINTR)
        ;
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "save"});
}

int train_save(struct train *t, bool is_final, struct error *err)
{
    struct saver *s = t->saver;
    double start = trace_begin(t->job_trace.trace);
    enum save_kind kind = is_final ? SAVE_FINAL : SAVE_IN_PASSING;
    enum beat_phase before = beat_enter(BEAT_SAVE);
    int rc = finish_previous(s, SAVE_IN_PASSING, err);
    if (rc == 0) {
        join(s); // of old checkpoints being removed
        if (begin(s, err))
            rc = give_up(s, kind, err);
        else if (s->is_async && !is_final)
            rc = write_aside(s, err);
        else
            rc = write_now(s, kind, err);
    }
    beat_enter(before);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "save"});
    return rc;
}

int train_save_poll(struct train *t, struct error *err)
{
    struct saver *s = t->saver;
    if (s->awaits_proof && s->progress.step < t->step)
        prune(s);
    if (!s->is_in_flight)
        return 0;
    int64_t is_busy = !atomic_load(&s->is_done);
    if (comm_max_i64(world_of(s), &is_busy, 1, err))
        return -1;
    if (is_busy)
        return 0;
    double start = trace_begin(t->job_trace.trace);
    enum beat_phase before = beat_enter(BEAT_SAVE);
    int rc = finish_previous(s, SAVE_IN_PASSING, err);
    beat_enter(before);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "save"});
    return rc;
}

/* -- when the run has failed --------------------------------------------------------- */

/* All ranks come here, or the job ends: one that does not must not be waited for without
 * end, and what this one has in flight with it cannot be taken back. */
static int meet(struct saver *s, const struct error *why, struct error *err)
{
    struct comm_request request;
    float unused = 0;
    double end = clock_seconds() + RESCUE_SECONDS;
    const struct timespec pause = {.tv_nsec = 1000000};
    comm_max_f32_start(world_of(s), &unused, 1, &request);
    beat_wait(BEAT_SAVER, BEAT_EVERYBODY);
    while (!comm_test(&request)) {
        if (clock_seconds() > end)
            comm_abort_with(world_of(s), why);
        nanosleep(&pause, NULL);
    }
    beat_go_on();
    return comm_wait(&request, err);
}

void train_save_rescue(struct train *t, const struct error *why)
{
    struct saver *s = t->saver;
    struct error err;
    if (!s || !s->is_in_flight || comm_is_broken(world_of(s)))
        return;
    if (meet(s, why, &err) || finish_previous(s, SAVE_RESCUE, &err))
        log_warning("the checkpoint that was being saved is lost: %s", err.text);
}
