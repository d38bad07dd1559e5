/*
 * The calls of comm.h that have no MPI in them: who am I, starting, waiting, agreeing.
 */
#include "comm/comm.h"

#include "base/beat.h"
#include "base/clock.h"
#include "comm/comm_mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define IDLE_ROUNDS_SHOWN 50 // in a row; then a watcher is shown for whom this rank waits

/* -- identity ------------------------------------------------------------------------ */

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

int comm_local_rank(const struct comm *c)
{
    return c->job->local_rank;
}

int comm_local_size(const struct comm *c)
{
    return c->job->local_size;
}

const char *comm_host(const struct comm *c)
{
    return c->job->host;
}

struct comm_volume comm_volume(const struct comm *c)
{
    return c->volume;
}

double comm_waited(const struct comm *c)
{
    return c->job->waited;
}

/* -- what a trace shows -------------------------------------------------------------- */

void comm_set_trace(struct comm *c, struct trace *trace)
{
    c->job->trace = trace;
}

static const char *name_of(const struct comm_request *req)
{
    static const char *const kinds[COMM_N_KINDS] = {
        [COMM_ALLREDUCE] = "all-reduce",
        [COMM_REDUCE_SCATTER] = "reduce-scatter",
        [COMM_ALLGATHER] = "all-gather",
    };
    static const char *const calls[] = {
        [COMM_SEND] = "send",
        [COMM_RECV] = "receive",
        [COMM_BCAST] = "broadcast",
    };
    return kinds[req->kind] ? kinds[req->kind] : calls[req->call];
}

static struct trace_span span_of(const struct comm_request *req)
{
    const struct comm *c = req->comm;
    struct trace_span span = {.name = name_of(req), .group = c->name};
    bool is_collective = req->kind != COMM_P2P && req->kind != COMM_OTHER;
    if (is_collective) {
        int64_t n = req->bounds ? req->bounds[c->size] - req->bounds[0] : req->n;
        span.args[0] = (struct trace_arg){"bytes", n * (int64_t)req->elem_bytes};
        span.args[1] = (struct trace_arg){"ranks", c->size};
    } else {
        span.args[0] = (struct trace_arg){"bytes", req->n};
        span.args[1] = (struct trace_arg){"peer", req->peer};
    }
    return span;
}

/* Record an operation that ends now; and a wait for it, which began at `start`. */
void comm_trace_flight(const struct comm_request *req)
{
    if (!req->comm->job->trace)
        return;
    struct trace_span span = span_of(req);
    span.track = TRACE_COMM;
    trace_end(req->comm->job->trace, req->start, &span);
}

static void trace_wait(const struct comm_request *req, double start)
{
    if (!req->comm->job->trace)
        return;
    struct trace_span span = span_of(req);
    span.name = "wait";
    trace_end(req->comm->job->trace, start, &span);
}

/* -- what a watcher sees ------------------------------------------------------------- */

static enum beat_action action_of(const struct comm_request *req)
{
    static const enum beat_action kinds[COMM_N_KINDS] = {
        [COMM_ALLREDUCE] = BEAT_REDUCE,
        [COMM_REDUCE_SCATTER] = BEAT_REDUCE,
        [COMM_ALLGATHER] = BEAT_GATHER,
    };
    static const enum beat_action calls[] = {
        [COMM_SEND] = BEAT_SEND,
        [COMM_RECV] = BEAT_RECEIVE,
        [COMM_BCAST] = BEAT_BROADCAST,
    };
    bool is_message = req->kind == COMM_P2P || req->kind == COMM_OTHER;
    return is_message ? calls[req->call] : kinds[req->kind];
}

/* The rank of the group; -1: any of them. MPI's own trees carry broadcasts, and
 * do not say who is late. */
static int holder_of(const struct comm_request *req)
{
    if (req->kind != COMM_P2P && req->kind != COMM_OTHER)
        return comm_collective_holder(req);
    return req->call == COMM_SEND || req->call == COMM_RECV ? req->peer : -1;
}

void comm_show_wait(const struct comm_request *req)
{
    int holder = holder_of(req);
    beat_wait(action_of(req),
              holder >= 0 ? req->comm->world_ranks[holder] : BEAT_EVERYBODY);
}

/* -- progress and waiting ------------------------------------------------------------ */

void comm_request_finish(struct comm_request *req, int mpi_error)
{
    req->mpi_error = mpi_error;
    req->is_done = true;
    req->comm->job->n_in_flight--;
    comm_trace_flight(req);
}

/* True when anything moved. */
static bool job_progress(struct comm_job *job)
{
    bool moved = job->airborne && comm_peers_progress(job);
    if (job->n_in_flight == 0)
        return moved;
    for (struct comm *c = job->groups; c; c = c->next) {
        if (comm_collective_progress(c))
            moved = true;
        if (comm_message_progress(c))
            moved = true;
    }
    if (moved)
        beat_count();
    return moved;
}

void comm_progress(struct comm *c)
{
    job_progress(c->job);
}

bool comm_test(struct comm_request *req)
{
    if (!req->is_done)
        job_progress(req->comm->job);
    return req->is_done;
}

/* Called after each round in which nothing moved, `n_idle` of them in a row. A processor
 * of one's own is polled hard for the first microseconds and then given to whoever wants
 * it; a shared one is given up at once, and slept away from when that does not help. */
static void wait_politely(const struct comm_job *job, int64_t n_idle)
{
    static const struct timespec nap = {.tv_nsec = 20000};
    if (job->is_oversubscribed && n_idle > 100)
        nanosleep(&nap, NULL);
    else if (job->is_oversubscribed || n_idle > 1000)
        sched_yield();
}

int comm_wait(struct comm_request *req, struct error *err)
{
    struct comm *c = req->comm;
    if (!req->is_done) {
        double start = clock_seconds();
        for (int64_t n_idle = 0; !req->is_done;) {
            n_idle = job_progress(c->job) ? 0 : n_idle + 1;
            if (n_idle > 0)
                wait_politely(c->job, n_idle);
            if (n_idle == IDLE_ROUNDS_SHOWN)
                comm_show_wait(req);
            if (n_idle > IDLE_ROUNDS_SHOWN && beat_must_end())
                comm_abort(c, COMM_EXIT_BY_WATCHER); // a watcher has said why
        }
        beat_go_on();
        c->job->waited += clock_seconds() - start;
        trace_wait(req, start);
    }
    comm_flight_end(req);
    if (req->mpi_error && c->job->has_failed) {
        *err = c->job->failure;
        return -1;
    }
    return comm_mpi_check(req->mpi_error, "communication with the other ranks failed",
                          err);
}

/* -- reductions and gathers ---------------------------------------------------------- */

int64_t comm_even_begin(int64_t n, int size, int r)
{
    return n / size * r + i64_min(r, n % size);
}

void comm_even_bounds(int64_t n, int size, int64_t *bounds)
{
    for (int r = 0; r <= size; r++)
        bounds[r] = comm_even_begin(n, size, r);
}

static void reduce_start(struct comm *c, void *x, int64_t n, const struct comm_op *op,
                         struct comm_request *req)
{
    *req = (struct comm_request){.comm = c,
                                 .kind = COMM_ALLREDUCE,
                                 .op = op,
                                 .x = x,
                                 .n = n,
                                 .elem_bytes = op->elem_bytes};
    comm_collective_start(req);
}

static int reduce_run(struct comm *c, void *x, int64_t n, const struct comm_op *op,
                      struct error *err)
{
    struct comm_request req;
    reduce_start(c, x, n, op, &req);
    return comm_wait(&req, err);
}

void comm_allreduce_start(struct comm *c, void *x, enum dtype dtype, int64_t n,
                          struct comm_request *req)
{
    reduce_start(c, x, n, comm_op_sum(dtype), req);
}

int comm_allreduce(struct comm *c, void *x, enum dtype dtype, int64_t n,
                   struct error *err)
{
    return reduce_run(c, x, n, comm_op_sum(dtype), err);
}

int comm_allreduce_f32(struct comm *c, float *x, int64_t n, struct error *err)
{
    return comm_allreduce(c, x, DTYPE_F32, n, err);
}

void comm_max_f32_start(struct comm *c, float *x, int64_t n, struct comm_request *req)
{
    reduce_start(c, x, n, &comm_op_max_f32, req);
}

int comm_max_f32(struct comm *c, float *x, int64_t n, struct error *err)
{
    return reduce_run(c, x, n, &comm_op_max_f32, err);
}

int comm_sum_f64(struct comm *c, double *x, int64_t n, struct error *err)
{
    return reduce_run(c, x, n, &comm_op_sum_f64, err);
}

int comm_sum_i64(struct comm *c, int64_t *x, int64_t n, struct error *err)
{
    return reduce_run(c, x, n, &comm_op_sum_i64, err);
}

int comm_max_i64(struct comm *c, int64_t *x, int64_t n, struct error *err)
{
    return reduce_run(c, x, n, &comm_op_max_i64, err);
}

void comm_reduce_scatter_start(struct comm *c, void *x, enum dtype dtype,
                               const int64_t *bounds, const int *piece_of_rank,
                               struct comm_request *req)
{
    *req = (struct comm_request){.comm = c,
                                 .kind = COMM_REDUCE_SCATTER,
                                 .op = comm_op_sum(dtype),
                                 .x = x,
                                 .bounds = bounds,
                                 .piece_of_rank = piece_of_rank,
                                 .elem_bytes = dtype_bytes(dtype)};
    comm_collective_start(req);
}

int comm_reduce_scatter(struct comm *c, void *x, enum dtype dtype, const int64_t *bounds,
                        const int *piece_of_rank, struct error *err)
{
    struct comm_request req;
    comm_reduce_scatter_start(c, x, dtype, bounds, piece_of_rank, &req);
    return comm_wait(&req, err);
}

int comm_reduce_scatter_f32(struct comm *c, float *x, const int64_t *bounds,
                            struct error *err)
{
    return comm_reduce_scatter(c, x, DTYPE_F32, bounds, NULL, err);
}

void comm_allgather_pieces_start(struct comm *c, void *x, size_t elem_bytes,
                                 const int64_t *bounds, const int *piece_of_rank,
                                 struct comm_request *req)
{
    *req = (struct comm_request){.comm = c,
                                 .kind = COMM_ALLGATHER,
                                 .x = x,
                                 .bounds = bounds,
                                 .piece_of_rank = piece_of_rank,
                                 .elem_bytes = elem_bytes};
    comm_collective_start(req);
}

int comm_allgather_pieces(struct comm *c, void *x, size_t elem_bytes,
                          const int64_t *bounds, const int *piece_of_rank,
                          struct error *err)
{
    struct comm_request req;
    comm_allgather_pieces_start(c, x, elem_bytes, bounds, piece_of_rank, &req);
    return comm_wait(&req, err);
}

void comm_allgather_start(struct comm *c, void *x, size_t elem_bytes,
                          const int64_t *bounds, struct comm_request *req)
{
    comm_allgather_pieces_start(c, x, elem_bytes, bounds, NULL, req);
}

int comm_allgather(struct comm *c, void *x, size_t elem_bytes, const int64_t *bounds,
                   struct error *err)
{
    return comm_allgather_pieces(c, x, elem_bytes, bounds, NULL, err);
}

int comm_allgather_f32(struct comm *c, float *x, const int64_t *bounds, struct error *err)
{
    return comm_allgather(c, x, sizeof *x, bounds, err);
}

/* -- agreement ----------------------------------------------------------------------- */

/* What a failing rank sends the others; all of them run the same program, so it travels
 * as it lies in memory. */
struct verdict {
    int world_rank;
    char host[256];
    struct error err;
};

int comm_agree(struct comm *c, int rc, struct error *err)
{
    if (c->size == 1)
        return rc;

    int64_t n_failed = rc != 0;
    int64_t lowest = rc != 0 ? c->size - c->rank : 0; // as a maximum; 0: nobody
    if (comm_max_i64(c, &lowest, 1, err) || comm_sum_i64(c, &n_failed, 1, err))
        return -1;
    if (n_failed == 0)
        return 0;

    struct verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    int speaker = c->size - (int)lowest;
    if (c->rank == speaker) {
        verdict.world_rank = c->job->world_rank;
        memcpy(verdict.host, c->job->host, sizeof verdict.host);
        verdict.err = *err;
    }
    if (comm_bcast_bytes(c, &verdict, sizeof verdict, speaker, err))
        return -1;
    *err = verdict.err;
    if (n_failed > 1)
        return error_prefix(err, "rank %d on %s, the first of %lld that failed",
                            verdict.world_rank, verdict.host, (long long)n_failed);
    return error_prefix(err, "rank %d on %s", verdict.world_rank, verdict.host);
}
