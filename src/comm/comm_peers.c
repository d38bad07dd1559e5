/*
 * Tensors of devices that reach each other (device_peers.h): no host takes part, and what
 * is started is enqueued at once.
 *
 * A reduction is an exchange of addends, into device memory set aside for them, a kernel
 * that adds them in rank order, and for an all-reduce an exchange of sums: the sums and
 * the bits of comm_collective.c. Ranges longer than there is room for their addends go in
 * segments. All groups share that memory, because all their collectives run on one stream,
 * one after the other.
 *
 * Why nothing waits for ever, though an operation holds up its stream until its peers have
 * come to it:
 *   - Collectives run on STREAM_COMM, and the ranks of one stage of a pipeline start
 *     exactly the same ones in the same order, whatever their groups: they run the same
 *     program over the same layers. The one group that reaches over stages, `tied`, has
 *     one place in that order, behind all that backward started.
 *   - Messages run between neighbours of a pipeline, in the ring's direction those of even
 *     tags and against it those of odd ones (comm.h); each such connection is a group of
 *     two with a stream of its own at both ends, on which it carries one direction. So a
 *     message waits for the ones before it on its connection and for the computing stream
 *     at its start, and for nothing else: as MPI's do. That no schedule of a pipeline
 *     deadlocks then is shown in parallel/schedule.h.
 *   - Give each operation the time at which a job of one process per stage would do it.
 *     Replicas of a stage give theirs the same times. Whatever an operation waits for,
 *     here or at a peer, has an earlier time: so the earliest that has not run can run.
 *   - Hosts wait for nobody in all of this but where groups are opened and closed and
 *     where NCCL connects two ranks, at their first message: which is sent when the groups
 *     are opened. All ranks do all of that in one order.
 */
#include "base/beat.h"
#include "comm/comm_mpi.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PEERS_BYTES ((int64_t)32 << 20) // of device memory, for addends
#define ADDENDS_LEAST ((int64_t)16 << 10)
#define ROUNDS_SHOWN 50 // of waiting for the device; then a watcher is shown for whom

/* -- what is under way --------------------------------------------------------------- */

/* From here on a flight is the device's; the request may be gone before it ends. */
static void take_off(struct comm_request *req)
{
    struct comm_job *job = req->comm->job;
    struct comm_flight *flight = req->flight;
    flight->shown = *req;
    if (req->bounds) { // which need not stay
        flight->shown.n = req->bounds[req->comm->size] - req->bounds[0];
        flight->shown.bounds = NULL;
    }
    flight->is_airborne = true;
    flight->next = NULL;
    *job->airborne_end = flight;
    job->airborne_end = &flight->next;
    req->is_done = true;
    job->n_in_flight--;
}

bool comm_peers_progress(struct comm_job *job)
{
    bool moved = false;
    while (job->airborne && device_happened(&job->airborne->done)) {
        struct comm_flight *flight = job->airborne;
        job->airborne = flight->next;
        if (!job->airborne)
            job->airborne_end = &job->airborne;
        flight->is_airborne = false;
        comm_trace_flight(&flight->shown);
        if (flight->is_waited)
            comm_flight_free(job, flight);
        moved = true;
    }
    if (moved || job->n_waits >= ROUNDS_SHOWN) {
        job->n_waits = 0;
        beat_go_on();
    }
    return moved;
}

static void give_up(struct comm_job *job)
{
    for (struct comm *c = job->groups; c; c = c->next)
        for (int i = 0; i < COMM_N_LINKS; i++)
            if (c->links[i].peers)
                job->dev->peers->abort(c->links[i].peers);
}

static void check_peers(struct comm_job *job)
{
    struct error err;
    for (struct comm *c = job->groups; c; c = c->next)
        for (int i = 0; i < COMM_N_LINKS; i++)
            if (c->links[i].peers && job->dev->peers->check(c->links[i].peers, &err)) {
                give_up(job);
                comm_abort_with(c, &err);
            }
}

/* The host waits for the device, which may be waiting for a peer. */
static void on_wait(void *context)
{
    struct comm_job *job = context;
    if (!pthread_equal(pthread_self(), job->thread))
        return; // the one that saves: MPI and the beat are not its
    if (++job->n_waits < ROUNDS_SHOWN)
        return;
    check_peers(job);
    while (job->airborne && comm_peers_progress(job))
        ;
    if (!job->airborne)
        return;
    comm_show_wait(&job->airborne->shown);
    job->n_waits = ROUNDS_SHOWN;
    if (beat_must_end()) {
        give_up(job);
        comm_abort(job->groups, COMM_EXIT_BY_WATCHER); // a watcher has said why
    }
}

/* -- collectives --------------------------------------------------------------------- */

/* The part of rank r's range that segment k has, from x on. */
static struct comm_range part_of(const struct comm_request *req, int r, int64_t k,
                                 int64_t most)
{
    struct comm_range range = comm_collective_range(req, r);
    int64_t begin = i64_min(range.end, range.begin + k * most);
    return (struct comm_range){begin, i64_min(range.end, begin + most)};
}

static void send_part(const struct comm *c, char *x, struct comm_range part, int to)
{
    if (part.end > part.begin)
        c->job->dev->peers->send(c->links[COMM_LINK_GROUP].peers, x + part.begin,
                                 (size_t)(part.end - part.begin), to);
}

static void recv_part(const struct comm *c, char *x, struct comm_range part, int from)
{
    if (part.end > part.begin)
        c->job->dev->peers->recv(c->links[COMM_LINK_GROUP].peers, x,
                                 (size_t)(part.end - part.begin), from);
}

static char *addends_of(const struct comm *c, int peer, int64_t most)
{
    return c->job->addends + (peer > c->rank ? peer - 1 : peer) * most;
}

/* Addends to their owners; then mine are added up. */
static void exchange_addends(struct comm *c, const struct comm_request *req, int64_t k,
                             int64_t most)
{
    struct device *dev = c->job->dev;
    struct gpu_peers *peers = c->links[COMM_LINK_GROUP].peers;
    const struct comm_op *op = req->op;
    struct comm_range mine = part_of(req, c->rank, k, most);
    dev->peers->begin(peers);
    for (int i = 1; i < c->size; i++) {
        int peer = (c->rank + i) % c->size;
        send_part(c, req->x, part_of(req, peer, k, most), peer);
        recv_part(c, addends_of(c, peer, most), mine, peer);
    }
    dev->peers->end(peers);
    if (mine.end == mine.begin)
        return;
    for (int r = 0; r < c->size; r++)
        c->parts[r] = r == c->rank ? req->x + mine.begin : addends_of(c, r, most);
    struct stream *s = device_stream(dev, STREAM_COMM);
    dev->k->reduce(
        s, &(struct reduction){.op = op->reduce,
                               .dtype = op->dtype,
                               .x = req->x + mine.begin,
                               .parts = c->parts,
                               .n_parts = c->size,
                               .n = (mine.end - mine.begin) / (int64_t)op->elem_bytes});
}

/* What each rank owns to all others. */
static void exchange_sums(struct comm *c, const struct comm_request *req, int64_t k,
                          int64_t most)
{
    struct device *dev = c->job->dev;
    struct gpu_peers *peers = c->links[COMM_LINK_GROUP].peers;
    struct comm_range mine = part_of(req, c->rank, k, most);
    dev->peers->begin(peers);
    for (int i = 1; i < c->size; i++) {
        int peer = (c->rank + i) % c->size;
        struct comm_range part = part_of(req, peer, k, most);
        send_part(c, req->x, mine, peer);
        recv_part(c, req->x + part.begin, part, peer);
    }
    dev->peers->end(peers);
}

/* Bytes of a rank's range in one segment. */
static int64_t addends_bytes(const struct comm *c)
{
    return c->job->addends_bytes / (c->size - 1) / 4096 * 4096;
}

static void enqueue_collective(struct comm *c, const struct comm_request *req)
{
    int64_t longest = 0, most = INT64_MAX / 2; // what is only moved needs no room
    if (req->kind != COMM_ALLGATHER)
        most = addends_bytes(c);
    for (int r = 0; r < c->size; r++) {
        struct comm_range range = comm_collective_range(req, r);
        longest = i64_max(longest, range.end - range.begin);
    }
    for (int64_t k = 0; k == 0 || k * most < longest; k++) {
        if (req->kind != COMM_ALLGATHER)
            exchange_addends(c, req, k, most);
        if (req->kind != COMM_REDUCE_SCATTER)
            exchange_sums(c, req, k, most);
    }
}

/* -- messages ------------------------------------------------------------------------ */

static void enqueue_message(const struct comm_link *l, const struct comm_request *req)
{
    const struct device_peers *peers = l->comm->job->dev->peers;
    bool is_send = req->call == COMM_SEND;
    peers->begin(l->peers);
    if (is_send && req->n > 0)
        peers->send(l->peers, req->x, (size_t)req->n, 1); // the first rank sends
    else if (req->n > 0)
        peers->recv(l->peers, req->x, (size_t)req->n, 0);
    peers->end(l->peers);
}

/* The connection that a message takes; NULL: there is none, or the host's. */
static struct comm_link *link_of(const struct comm_request *req)
{
    struct comm *c = req->comm;
    int next = (c->rank + 1) % c->size, previous = (c->rank + c->size - 1) % c->size;
    bool is_send = req->call == COMM_SEND, is_forward = req->tag % 2 == 0;
    const struct comm_op *op = req->op;
    if (req->kind != COMM_P2P)
        return op && op->combine ? NULL : &c->links[COMM_LINK_GROUP];
    if (req->peer != (is_send == is_forward ? next : previous))
        return NULL;
    if (is_forward)
        return &c->links[is_send ? COMM_LINK_TO_NEXT : COMM_LINK_FROM_PREVIOUS];
    return &c->links[is_send ? COMM_LINK_TO_PREVIOUS : COMM_LINK_FROM_NEXT];
}

bool comm_peers_start(struct comm_request *req)
{
    struct comm *c = req->comm;
    struct comm_link *l = req->flight && c->job->addends ? link_of(req) : NULL;
    if (!l || !l->peers)
        return false;
    struct stream *s = device_stream(c->job->dev, l->stream);
    device_wait(s, &req->flight->ready);
    if (req->kind == COMM_P2P)
        enqueue_message(l, req);
    else
        enqueue_collective(c, req);
    device_record(&req->flight->done, s);
    take_off(req);
    return true;
}

/* -- opening ------------------------------------------------------------------------- */

/* One rank of `c`, the root, names a group of peers; then those open it that are in it. */
static int open_peers(struct comm *c, struct comm_link *l, int rank, int size,
                      enum stream_name s, int root, struct error *err)
{
    const struct device_peers *peers = c->job->dev->peers;
    char id[DEVICE_PEERS_ID_BYTES] = {0};
    int rc = c->rank == root ? peers->id(id, err) : 0;
    if (comm_agree(c, rc, err) || comm_bcast_bytes(c, id, sizeof id, root, err))
        return -1;
    if (rank < 0)
        return 0;
    struct device_link link = comm_link_for_device(l);
    return peers->open(&l->peers, id, rank, size, s, &link, err);
}

/* The first message of a group, which connects its ranks: each sends every other one, or
 * the first one the second, CONNECT_BYTES of `scratch`. */
#define CONNECT_BYTES 64
static void connect_ranks(struct comm *c, struct comm_link *l, int rank, int size,
                          bool is_one_way)
{
    const struct device_peers *peers = c->job->dev->peers;
    peers->begin(l->peers);
    for (int i = 1; i < size; i++) {
        int peer = (rank + i) % size;
        char *to = c->job->addends + (1 + peer) * CONNECT_BYTES;
        if (!is_one_way || rank == 0)
            peers->send(l->peers, c->job->addends, CONNECT_BYTES, peer);
        if (!is_one_way || rank == 1)
            peers->recv(l->peers, to, CONNECT_BYTES, peer);
    }
    peers->end(l->peers);
    device_synchronize(device_stream(c->job->dev, l->stream));
}

static int open_group(struct comm *c, struct error *err)
{
    struct comm_link *l = &c->links[COMM_LINK_GROUP];
    if (c->size == 1 || l->peers)
        return 0;
    *l = (struct comm_link){.comm = c,
                            .tag = COMM_LINK_TAG,
                            .ranks = {-1, -1},
                            .world_ranks = c->world_ranks,
                            .stream = STREAM_COMM};
    if (open_peers(c, l, c->rank, c->size, STREAM_COMM, 0, err))
        return -1;
    connect_ranks(c, l, c->rank, c->size, false);
    return 0;
}

/* A connection of two neighbours of a pipe, `to` being the next rank or the previous one.
 * All ranks open and close them in one order, 0 to 2 * size - 1: with another at each, the
 * first one would wait for ever. */
struct edge {
    int from, to;
    bool is_forward;
    bool is_mine;
    enum comm_link_place place; // at this rank, if it is one of the two
};

static struct edge edge_of(const struct comm *c, int i)
{
    int r = i / 2, next = (r + 1) % c->size;
    struct edge e = {.from = r, .to = next, .is_forward = true};
    if (i % 2 == 1)
        e = (struct edge){.from = next, .to = r};
    bool is_sender = c->rank == e.from;
    e.is_mine = is_sender || c->rank == e.to;
    if (e.is_forward)
        e.place = is_sender ? COMM_LINK_TO_NEXT : COMM_LINK_FROM_PREVIOUS;
    else
        e.place = is_sender ? COMM_LINK_TO_PREVIOUS : COMM_LINK_FROM_NEXT;
    return e;
}

static int open_edge(struct comm *c, const struct edge *e, struct error *err)
{
    static const enum stream_name streams[COMM_N_LINKS] = {
        [COMM_LINK_TO_NEXT] = STREAM_TO_NEXT,
        [COMM_LINK_FROM_PREVIOUS] = STREAM_FROM_PREVIOUS,
        [COMM_LINK_TO_PREVIOUS] = STREAM_TO_PREVIOUS,
        [COMM_LINK_FROM_NEXT] = STREAM_FROM_NEXT,
    };
    struct comm_link *l = &c->links[e->place];
    int rank = c->rank == e->from ? 0 : 1; // of the two
    if (e->is_mine) {
        *l = (struct comm_link){.comm = c,
                                .tag = COMM_LINK_TAG + (e->is_forward ? 1 : 2),
                                .ranks = {e->from, e->to},
                                .stream = streams[e->place]};
        l->pair[0] = c->world_ranks[e->from];
        l->pair[1] = c->world_ranks[e->to];
        l->world_ranks = l->pair;
    }
    if (open_peers(c, l, e->is_mine ? rank : -1, 2, streams[e->place], e->from, err))
        return -1;
    if (e->is_mine)
        connect_ranks(c, l, rank, 2, true);
    return 0;
}

static int open_edges(struct comm *c, struct error *err)
{
    for (int i = 0; i < 2 * c->size && c->size > 1; i++) {
        struct edge e = edge_of(c, i);
        if (open_edge(c, &e, err))
            return -1;
    }
    return 0;
}

size_t comm_peers_bytes(int size)
{
    return size < 2 ? 0 : (size_t)i64_max(PEERS_BYTES, (size - 1) * ADDENDS_LEAST);
}

static int open_memory(struct comm_job *job, int size, struct error *err)
{
    size_t bytes = comm_peers_bytes(size);
    job->addends = job->dev->ops->alloc(job->dev, bytes);
    if (!job->addends)
        return error_set(
            err, ERROR_RUNTIME,
            "cannot get %.1f MB of the device's memory for sums over ranks: %s; other "
            "processes may have taken it, and TREFOIL_PEERS=off does without",
            (double)bytes / 1e6, strerror(errno));
    job->addends_bytes = (int64_t)bytes;
    return 0;
}

/* Steps that all ranks go through together: whatever fails on one fails on all. */
int comm_peers_open(struct comm *world, struct comm *const *groups, int n_groups,
                    struct comm *pipe, struct error *err)
{
    struct comm_job *job = world->job;
    int64_t lacks = !job->dev->peers;
    int largest = pipe->size;
    if (!job->dev->ops->is_tensor)
        return 0; // the same everywhere, while a library may be missing somewhere
    if (comm_max_i64(world, &lacks, 1, err))
        return -1;
    if (lacks || job->addends)
        return 0;
    for (int i = 0; i < n_groups; i++)
        largest = largest > groups[i]->size ? largest : groups[i]->size;
    if (comm_agree(world, open_memory(job, largest, err), err))
        return -1;
    job->thread = pthread_self();
    job->dev->ops->on_wait(job->dev, on_wait, job);
    for (int i = 0; i < n_groups; i++)
        if (comm_agree(world, open_group(groups[i], err), err))
            return -1;
    return comm_agree(world, open_edges(pipe, err), err);
}

static void close_link(struct comm_link *l)
{
    if (l->peers)
        l->comm->job->dev->peers->close(l->peers);
    l->peers = NULL;
}

/* In one order at all ranks: that of job->groups, since all make their groups in one. */
static void close_links(struct comm_job *job)
{
    for (struct comm *c = job->groups; c; c = c->next) {
        close_link(&c->links[COMM_LINK_GROUP]);
        for (int i = 0; i < 2 * c->size; i++) {
            struct edge e = edge_of(c, i);
            if (e.is_mine)
                close_link(&c->links[e.place]);
        }
    }
}

static void forget_links(struct comm_job *job)
{
    for (struct comm *c = job->groups; c; c = c->next)
        for (int i = 0; i < COMM_N_LINKS; i++)
            c->links[i].peers = NULL;
}

void comm_peers_close(struct comm_job *job)
{
    static const struct timespec nap = {.tv_nsec = 20000};
    struct device *dev = job->dev;
    if (!job->addends)
        return;
    bool is_broken = job->groups && comm_is_broken(job->groups);
    comm_peers_progress(job);
    while (job->airborne && !is_broken) {
        on_wait(job);
        nanosleep(&nap, NULL);
    }
    if (is_broken) {
        give_up(job); // the others may not come
        forget_links(job);
    } else {
        close_links(job);
    }
    dev->ops->on_wait(dev, NULL, NULL);
    device_free(dev, job->addends, (size_t)job->addends_bytes);
    job->addends = NULL;
    comm_forget_notes(job);
}
