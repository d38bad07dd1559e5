/*
 * The order of compute is arithmetic: a stage runs a warm-up of forwards, then forward
 * and backward in turn, then backwards; F-then-B is a warm-up of everything. Micro-step k
 * of the forwards, and of the backwards, is a chunk and a micro-batch by division.
 *
 * Messages are woven in by one rule. A stage keeps a window of receives posted, those its
 * next compute actions of each direction will take; an action frees the buffer of its
 * input, which is posted again at once, before the output is sent. So a stage that waits
 * in a send never holds back a receive that it could have posted.
 */
#include "parallel/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct step { // one compute action
    bool is_backward;
    int64_t micro, chunk;
};

/* -- checks -------------------------------------------------------------------------- */

static int check_range(const char *what, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "a pipeline schedule of %lld %s is not possible: the number must be "
                     "between 1 and %lld",
                     (long long)value, what, (long long)most);
}

static int check_interleaving(const struct schedule_shape *shape, struct error *err)
{
    long long pp = shape->pp, chunks = shape->chunks, m = shape->micro_batches;
    if (pp == 1)
        return error_set(err, ERROR_INPUT,
                         "%lld chunks per stage (virtual_pp_degree) need a pipeline, and "
                         "pp_degree is 1: use 1 chunk, or 2 stages or more",
                         chunks);
    if (m % pp == 0)
        return 0;
    long long below = m / pp * pp, above = below + pp;
    char fits[64];
    if (below > 0)
        snprintf(fits, sizeof fits, "%lld or %lld", below, above);
    else
        snprintf(fits, sizeof fits, "%lld", above);
    return error_set(err, ERROR_INPUT,
                     "%lld micro-batches cannot be interleaved over %lld stages of %lld "
                     "chunks: their number must be a multiple of pp_degree; use %s "
                     "micro-batches, or 1 chunk per stage (virtual_pp_degree 1)",
                     m, pp, chunks, fits);
}

int schedule_check(const struct schedule_shape *shape, struct error *err)
{
    if (check_range("stages (pp_degree)", shape->pp, SCHEDULE_MAX_STAGES, err) ||
        check_range("chunks per stage (virtual_pp_degree)", shape->chunks,
                    SCHEDULE_MAX_CHUNKS, err) ||
        check_range("micro-batches", shape->micro_batches,
                    SCHEDULE_MAX_STEPS / shape->chunks, err))
        return -1;
    return shape->chunks == 1 ? 0 : check_interleaving(shape, err);
}

/* -- the order of compute ------------------------------------------------------------ */

/* Forwards, and backwards, of a stage. */
static int64_t n_steps(const struct schedule_shape *shape)
{
    return shape->chunks * shape->micro_batches;
}

/* Forwards before the first forward-backward pair. */
static int64_t n_warm_up(const struct schedule_shape *shape, int stage)
{
    int64_t pp = shape->pp, all = n_steps(shape), after = pp - stage - 1;
    if (shape->kind == SCHEDULE_F_THEN_B)
        return all;
    if (shape->chunks == 1)
        return i64_min(after, all);
    if (shape->micro_batches == pp) // one group: no second one to overlap with
        return all;
    return i64_min(2 * after + (shape->chunks - 1) * pp, all);
}

/* The k-th forward or backward. pp micro-batches pass a chunk, then the next chunk; the
 * backward mirrors the chunks. With one chunk this is micro-batch k. */
static struct step step_of(const struct schedule_shape *shape, bool is_backward,
                           int64_t k)
{
    int64_t pp = shape->pp, round = pp * shape->chunks;
    int64_t chunk = k % round / pp;
    return (struct step){.is_backward = is_backward,
                         .micro = k / round * pp + k % pp,
                         .chunk = is_backward ? shape->chunks - 1 - chunk : chunk};
}

/* The i-th compute action, 0 <= i < 2 * n_steps. */
static struct step step_at(const struct schedule_shape *shape, int stage, int64_t i)
{
    int64_t all = n_steps(shape), warm_up = n_warm_up(shape, stage), pair = i - warm_up;
    if (pair < 0)
        return step_of(shape, false, i);
    if (pair < 2 * (all - warm_up))
        return step_of(shape, pair % 2 == 1,
                       pair % 2 == 1 ? pair / 2 : warm_up + pair / 2);
    return step_of(shape, true, i - all);
}

/* -- messages ------------------------------------------------------------------------ */

static bool is_first_piece(const struct schedule *s, int64_t chunk)
{
    return s->stage == 0 && chunk == 0;
}

static bool is_last_piece(const struct schedule *s, int64_t chunk)
{
    return s->stage == s->shape.pp - 1 && chunk == s->shape.chunks - 1;
}

/* Whether a step's input comes from another stage; whether its output goes to one. */
static bool has_input(const struct schedule *s, struct step step)
{
    return step.is_backward ? !is_last_piece(s, step.chunk)
                            : !is_first_piece(s, step.chunk);
}

static bool has_output(const struct schedule *s, struct step step)
{
    return step.is_backward ? !is_first_piece(s, step.chunk)
                            : !is_last_piece(s, step.chunk);
}

static int previous_stage(const struct schedule *s)
{
    return s->stage == 0 ? (int)s->shape.pp - 1 : s->stage - 1;
}

static int next_stage(const struct schedule *s)
{
    return s->stage == s->shape.pp - 1 ? 0 : s->stage + 1;
}

/* The chunk that receives the output of `step`: the same, but across the ring's seam. */
static int64_t receiving_chunk(const struct schedule *s, struct step step)
{
    if (step.is_backward)
        return s->stage == 0 ? step.chunk - 1 : step.chunk;
    return s->stage == s->shape.pp - 1 ? step.chunk + 1 : step.chunk;
}

int32_t schedule_tag(const struct schedule_shape *shape, enum schedule_payload payload,
                     int64_t micro, int64_t chunk)
{
    int64_t distinct = SCHEDULE_TAG_END / (N_PAYLOADS * shape->chunks);
    return (int32_t)((micro % distinct * shape->chunks + chunk) * N_PAYLOADS + payload);
}

/* -- building ------------------------------------------------------------------------ */

struct builder {
    struct schedule *s;
    int64_t next_recv[N_PAYLOADS]; // micro-step from which to look for one
    int64_t n_posted[N_PAYLOADS];
    int64_t n_taken[N_PAYLOADS]; // receives consumed
    int64_t n_sent[N_PAYLOADS];
    int32_t *in_flight;  // by chunk, then of all
    int32_t *stash_of;   // (chunks, micro_batches)
    int32_t *free_stash; // a stack
    int64_t n_free_stash;
};

static void emit(struct builder *b, struct schedule_action action)
{
    b->s->actions[b->s->n_actions++] = action;
}

/* Post the next receive of a payload, if there is one. */
static void post_recv(struct builder *b, enum schedule_payload payload)
{
    const struct schedule *s = b->s;
    bool is_backward = payload == PAYLOAD_GRADIENT;
    while (b->next_recv[payload] < n_steps(&s->shape)) {
        struct step step = step_of(&s->shape, is_backward, b->next_recv[payload]++);
        if (!has_input(s, step))
            continue;
        emit(b, (struct schedule_action){
                    .op = OP_POST_RECV,
                    .payload = payload,
                    .micro = (int32_t)step.micro,
                    .chunk = (int32_t)step.chunk,
                    .peer = is_backward ? next_stage(s) : previous_stage(s),
                    .tag = schedule_tag(&s->shape, payload, step.micro, step.chunk),
                    .slot = (int32_t)(b->n_posted[payload]++ % SCHEDULE_RECV_SLOTS),
                    .slot_in = -1,
                    .slot_out = -1,
                    .stash = -1});
        return;
    }
}

static void send_output(struct builder *b, struct step step,
                        enum schedule_payload payload)
{
    const struct schedule *s = b->s;
    int64_t chunk_there = receiving_chunk(s, step);
    emit(b, (struct schedule_action){
                .op = OP_SEND,
                .payload = payload,
                .micro = (int32_t)step.micro,
                .chunk = (int32_t)step.chunk,
                .peer = step.is_backward ? previous_stage(s) : next_stage(s),
                .tag = schedule_tag(&s->shape, payload, step.micro, chunk_there),
                .slot = (int32_t)(b->n_sent[payload]++ % SCHEDULE_SEND_SLOTS),
                .slot_in = -1,
                .slot_out = -1,
                .stash = -1});
}

/* Count one more in flight, of the chunk and of all; the numbers of both, kept at their
 * maximum, are what the executor allocates. */
static void count_in_flight(struct builder *b, int64_t chunk)
{
    int64_t counted[] = {chunk, b->s->shape.chunks};
    for (size_t i = 0; i < ARRAY_LEN(counted); i++) {
        int32_t now = ++b->in_flight[counted[i]];
        if (now > b->s->max_in_flight[counted[i]])
            b->s->max_in_flight[counted[i]] = now;
    }
}

/* A stash to fill, one used before if there is one, so that no more exist than are in
 * flight at once. */
static int32_t claim_stash(struct builder *b, struct step step)
{
    int32_t *stash = &b->stash_of[step.chunk * b->s->shape.micro_batches + step.micro];
    if (b->n_free_stash > 0)
        *stash = b->free_stash[--b->n_free_stash];
    else
        *stash = b->in_flight[b->s->shape.chunks];
    count_in_flight(b, step.chunk);
    return *stash;
}

static int32_t free_stash_of(struct builder *b, struct step step)
{
    int32_t stash = b->stash_of[step.chunk * b->s->shape.micro_batches + step.micro];
    b->free_stash[b->n_free_stash++] = stash;
    b->in_flight[step.chunk]--;
    b->in_flight[b->s->shape.chunks]--;
    return stash;
}

static void emit_compute(struct builder *b, struct step step)
{
    enum schedule_payload payload =
        step.is_backward ? PAYLOAD_GRADIENT : PAYLOAD_ACTIVATION;
    bool takes = has_input(b->s, step), makes = has_output(b->s, step);
    emit(b,
         (struct schedule_action){
             .op = step.is_backward ? OP_BACKWARD : OP_FORWARD,
             .payload = payload,
             .micro = (int32_t)step.micro,
             .chunk = (int32_t)step.chunk,
             .peer = -1,
             .tag = -1,
             .slot = -1,
             .slot_in =
                 takes ? (int32_t)(b->n_taken[payload]++ % SCHEDULE_RECV_SLOTS) : -1,
             .slot_out = makes ? (int32_t)(b->n_sent[payload] % SCHEDULE_SEND_SLOTS) : -1,
             .stash = step.is_backward ? free_stash_of(b, step) : claim_stash(b, step)});
    if (takes)
        post_recv(b, payload);
    if (makes)
        send_output(b, step, payload);
}

static void build_actions(struct builder *b)
{
    struct schedule *s = b->s;
    for (int i = 0; i < SCHEDULE_RECV_SLOTS; i++) {
        post_recv(b, PAYLOAD_ACTIVATION);
        post_recv(b, PAYLOAD_GRADIENT);
    }
    for (int64_t i = 0; i < 2 * n_steps(&s->shape); i++)
        emit_compute(b, step_at(&s->shape, s->stage, i));
}

/* Every step is an action, a message in and a message out, except that no message enters
 * or leaves the model at its two ends. */
static int64_t count_actions(const struct schedule_shape *shape, int stage)
{
    int64_t m = shape->micro_batches, all = 2 * n_steps(shape);
    int64_t n_ends = (stage == 0) + (stage == shape->pp - 1);
    return all + 2 * (all - n_ends * m);
}

int schedule_init(struct schedule *s, const struct schedule_shape *shape, int stage,
                  struct error *err)
{
    memset(s, 0, sizeof *s);
    if (schedule_check(shape, err))
        return -1;
    CHECK(stage >= 0 && stage < shape->pp, "stage %d of %lld", stage,
          (long long)shape->pp);
    s->shape = *shape;
    s->stage = stage;

    int rc = -1;
    size_t n_chunks = (size_t)shape->chunks, n = (size_t)n_steps(shape);
    int64_t n_actions = count_actions(shape, stage);
    struct builder b = {.s = s};
    s->actions = calloc((size_t)n_actions, sizeof *s->actions);
    s->max_in_flight = calloc(n_chunks + 1, sizeof *s->max_in_flight);
    b.in_flight = calloc(n_chunks + 1, sizeof *b.in_flight);
    b.stash_of = calloc(n, sizeof *b.stash_of);
    b.free_stash = calloc(n, sizeof *b.free_stash);
    if (!s->actions || !s->max_in_flight || !b.in_flight || !b.stash_of ||
        !b.free_stash) {
        error_set(err, ERROR_RUNTIME, "out of memory for a schedule of %lld actions",
                  (long long)n_actions);
        goto done;
    }
    build_actions(&b);
    CHECK(s->n_actions == n_actions, "%lld actions, counted %lld",
          (long long)s->n_actions, (long long)n_actions);
    rc = 0;
done:
    free(b.in_flight);
    free(b.stash_of);
    free(b.free_stash);
    if (rc)
        schedule_release(s);
    return rc;
}

void schedule_release(struct schedule *s)
{
    free(s->actions);
    free(s->max_in_flight);
    memset(s, 0, sizeof *s);
}

int schedule_max_in_flight(const struct schedule *s, int chunk)
{
    return s->max_in_flight[chunk == SCHEDULE_ALL_CHUNKS ? s->shape.chunks : chunk];
}
