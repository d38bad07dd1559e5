/*
 * Tensors of a device whose memory MPI cannot reach: they pass through pinned memory of
 * the host.
 *
 * Two events belong to an operation. `ready` is recorded on the computing stream when it
 * starts: STREAM_COMM waits for it before it copies anything from or to the tensor. `done`
 * is recorded on STREAM_COMM behind the last copy, and comm_wait() makes the computing
 * stream wait for it: the host itself waits for what has to leave the device and for MPI,
 * never for what comes back.
 *
 * A collective copies out what it sends, runs as on the host, over that copy, and copies
 * back what it received: sums are the host's, so the bits are. Ranges that are longer than
 * a part of the pinned memory of their slot take several such segments, one after the
 * other; every rank knows from the bounds how many. STREAM_COMM runs its copies in
 * order, so those of a segment never meet those of the one before it in the same memory;
 * all that the host has to see is that a segment has been copied out.
 *
 * A message likewise goes piece by piece through a chunk. There are COMM_CHUNKS for sends
 * and as many for receives, so that neither can take what the other needs; further
 * messages follow in the order in which they were started.
 */
#include "comm/comm_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_PINNED_BYTES ((int64_t)8 << 20)
#define PART_BYTES_LEAST ((int64_t)16 << 10)
#define CHUNK_BYTES ((int64_t)4 << 20)

static struct stream *comm_stream_of(const struct comm *c)
{
    return device_stream(c->job->dev, STREAM_COMM);
}

/* -- memory -------------------------------------------------------------------------- */

/* NULL, and the job has failed, when there is none. */
static char *pinned_alloc(struct comm_job *job, size_t bytes)
{
    char *memory = job->dev->ops->alloc_host(job->dev, bytes);
    if (memory)
        return memory;
    if (!job->has_failed)
        error_set(
            &job->failure, ERROR_RUNTIME,
            "cannot get %.1f MB of pinned memory for messages between ranks: %s; free "
            "some of the machine's memory, or raise the limit of locked memory "
            "(ulimit -l)",
            (double)bytes / 1e6, strerror(errno));
    job->has_failed = true;
    return NULL;
}

/* Bytes of a rank's range in one segment. */
static int64_t part_bytes(int size)
{
    return i64_max(PART_BYTES_LEAST, SLOT_PINNED_BYTES / size / 4096 * 4096);
}

static size_t slot_pinned_bytes(int size)
{
    return (size_t)part_bytes(size) * (size_t)size;
}

size_t comm_pinned_bytes(int size)
{
    return size < 2 ? 0 : COMM_SLOTS * slot_pinned_bytes(size);
}

size_t comm_message_pinned_bytes(int n_messages)
{
    return (size_t)(i64_min(n_messages, 2 * COMM_CHUNKS) * CHUNK_BYTES);
}

/* Every event that no operation has at the moment. */
static void each_event(struct comm_job *job, void (*fn)(struct event *e, void *context),
                       void *context)
{
    for (struct comm *c = job->groups; c; c = c->next)
        for (int i = 0; i < COMM_SLOTS; i++)
            fn(&c->slots[i].copied, context);
    for (int i = 0; i < 2 * COMM_CHUNKS; i++)
        fn(&job->chunks[i / COMM_CHUNKS][i % COMM_CHUNKS].copied, context);
    for (struct comm_flight *flight = job->flights; flight; flight = flight->next) {
        fn(&flight->ready, context);
        fn(&flight->done, context);
    }
}

static void close_event(struct event *e, void *context)
{
    (void)context;
    device_event_close(e);
}

static void move_event(struct event *e, void *context)
{
    if (e->stream)
        e->stream = device_stream(context, e->stream->name);
}

void comm_release_device(struct comm_job *job)
{
    struct device *dev = job->dev;
    CHECK(job->n_in_flight == 0, "%d operations in flight", job->n_in_flight);
    comm_peers_close(job);
    if (job->flights)
        device_synchronize(device_stream(dev, STREAM_COMM)); // it reads pinned memory
    each_event(job, close_event, NULL);
    for (struct comm *c = job->groups; c; c = c->next)
        for (int i = 0; i < COMM_SLOTS; i++) {
            if (c->slots[i].pinned)
                dev->ops->free_host(dev, c->slots[i].pinned, slot_pinned_bytes(c->size));
            c->slots[i].pinned = NULL;
        }
    for (int i = 0; i < 2 * COMM_CHUNKS; i++) {
        struct comm_chunk *chunk = &job->chunks[i / COMM_CHUNKS][i % COMM_CHUNKS];
        if (chunk->memory)
            dev->ops->free_host(dev, chunk->memory, CHUNK_BYTES);
        chunk->memory = NULL;
    }
    while (job->flights) {
        struct comm_flight *flight = job->flights;
        job->flights = flight->next;
        free(flight);
    }
    job->dev = device_cpu(DTYPE_F32);
    job->ops = job->dev->ops;
    job->stream = device_stream(job->dev, STREAM_COMM);
}

/* A device of the same kind, opened for another type, shares streams, memory and events
 * with the one before, which may be closed by now. */
void comm_set_device(struct comm *c, struct device *dev)
{
    struct comm_job *job = c->job;
    if (job->ops != dev->ops)
        comm_release_device(job);
    else if (job->dev != dev)
        each_event(job, move_event, dev);
    job->dev = dev;
    job->ops = dev->ops;
    job->stream =
        device_stream(dev->ops->is_tensor ? device_cpu(DTYPE_F32) : dev, STREAM_COMM);
}

/* -- events -------------------------------------------------------------------------- */

void comm_flight_begin(struct comm_request *req)
{
    struct comm_job *job = req->comm->job;
    struct device *dev = job->dev;
    if (!dev->ops->is_tensor || req->kind == COMM_OTHER || !req->x ||
        !dev->ops->is_tensor(dev, req->x))
        return;
    struct comm_flight *flight = job->flights;
    if (flight)
        job->flights = flight->next;
    else
        flight = calloc(1, sizeof *flight);
    CHECK(flight, "no memory for %zu bytes", sizeof *flight);
    device_record(&flight->ready, device_stream(dev, STREAM_COMPUTE));
    req->flight = flight;
}

void comm_flight_end(struct comm_request *req)
{
    struct comm_job *job = req->comm->job;
    struct comm_flight *flight = req->flight;
    if (!flight)
        return;
    if (req->mpi_error == MPI_SUCCESS)
        device_wait(device_stream(job->dev, STREAM_COMPUTE), &flight->done);
    req->flight = NULL;
    flight->is_waited = true;
    if (!flight->is_airborne)
        comm_flight_free(job, flight);
}

void comm_flight_free(struct comm_job *job, struct comm_flight *flight)
{
    flight->is_waited = false;
    flight->next = job->flights;
    job->flights = flight;
}

/* -- collectives --------------------------------------------------------------------- */

/* The part of rank r's range that the slot's segment has, from the request's buffer on. */
static struct comm_range segment_part(const struct comm *c, const struct comm_slot *s,
                                      int r)
{
    struct comm_range range = comm_collective_range(s->req, r);
    int64_t most = part_bytes(c->size);
    int64_t begin = i64_min(range.end, range.begin + s->segment * most);
    return (struct comm_range){begin, i64_min(range.end, begin + most)};
}

/* Copy the parts of the segment that the host has to send or to add, or those that it
 * has received or added. */
static void copy_parts(const struct comm *c, const struct comm_slot *s, bool is_out)
{
    enum comm_kind kind = s->req->kind;
    bool has_mine = is_out || kind != COMM_ALLGATHER;
    bool has_theirs = is_out ? kind != COMM_ALLGATHER : kind != COMM_REDUCE_SCATTER;
    for (int r = 0; r < c->size; r++) {
        struct comm_range part = segment_part(c, s, r);
        char *tensor = s->req->x + part.begin, *host = s->x + s->ranges[r].begin;
        size_t bytes = (size_t)(part.end - part.begin);
        if (bytes == 0 || !(r == c->rank ? has_mine : has_theirs))
            continue;
        if (is_out)
            device_copy(comm_stream_of(c), host, tensor, bytes, COPY_TO_HOST);
        else
            device_copy(comm_stream_of(c), tensor, host, bytes, COPY_TO_DEVICE);
    }
}

void comm_segment_begin(const struct comm *c, struct comm_slot *s)
{
    for (int r = 0; r < c->size; r++) {
        struct comm_range part = segment_part(c, s, r);
        int64_t at = r * part_bytes(c->size);
        s->ranges[r] = (struct comm_range){at, at + part.end - part.begin};
    }
    copy_parts(c, s, true);
    device_record(&s->copied, comm_stream_of(c));
    s->is_copying = true;
}

int comm_segments_begin(struct comm *c, struct comm_slot *s)
{
    int64_t longest = 0, most = part_bytes(c->size);
    if (!s->pinned)
        s->pinned = pinned_alloc(c->job, slot_pinned_bytes(c->size));
    if (!s->pinned)
        return MPI_ERR_NO_MEM;
    for (int r = 0; r < c->size; r++) {
        struct comm_range range = comm_collective_range(s->req, r);
        longest = i64_max(longest, range.end - range.begin);
    }
    s->x = s->pinned;
    s->segment = 0;
    s->n_segments = i64_max(1, (longest + most - 1) / most);
    device_wait(comm_stream_of(c), &s->req->flight->ready);
    comm_segment_begin(c, s);
    return MPI_SUCCESS;
}

bool comm_segment_end(const struct comm *c, struct comm_slot *s)
{
    copy_parts(c, s, false);
    if (++s->segment < s->n_segments)
        return false;
    device_record(&s->req->flight->done, comm_stream_of(c));
    return true;
}

/* -- messages ------------------------------------------------------------------------ */

/* A chunk for the request's direction that is free; NULL: all are taken. */
static struct comm_chunk *take_chunk(struct comm_request *req)
{
    struct comm_job *job = req->comm->job;
    struct comm_chunk *chunks = job->chunks[req->call == COMM_SEND ? 0 : 1];
    for (int i = 0; i < COMM_CHUNKS; i++) {
        if (chunks[i].is_busy)
            continue;
        if (!chunks[i].memory)
            chunks[i].memory = pinned_alloc(job, CHUNK_BYTES);
        chunks[i].is_busy = chunks[i].memory != NULL;
        return chunks[i].memory ? &chunks[i] : NULL;
    }
    return NULL;
}

/* Pieces of messages between two ranks with one tag must not mix: those that began before
 * *req go first. */
static bool is_behind_another(const struct comm_request *req)
{
    for (const struct comm_request *r = req->comm->staged; r != req; r = r->next)
        if (r->call == req->call &&
            (!r->chunk || (r->peer == req->peer && r->tag == req->tag &&
                           (r->stage != COMM_POSTED || r->n_moved < r->n))))
            return true;
    return false;
}

/* The next piece of a message: on its way to the chunk, or into it. */
static void begin_piece(struct comm_request *req)
{
    struct stream *s = comm_stream_of(req->comm);
    size_t bytes = (size_t)i64_min(CHUNK_BYTES, req->n - req->n_moved);
    if (req->call == COMM_SEND) {
        device_copy(s, req->chunk->memory, req->x + req->n_moved, bytes, COPY_TO_HOST);
        device_record(&req->chunk->copied, s);
    }
    req->stage = COMM_COPYING;
}

/* What was received goes to the tensor; the chunk is free again when that has happened. */
static void keep_piece(struct comm_request *req)
{
    struct stream *s = comm_stream_of(req->comm);
    int64_t n = (req->n_moved - 1) % CHUNK_BYTES + 1; // of the last piece
    if (req->call != COMM_RECV || req->n_moved == 0)
        return;
    device_copy(s, req->x + req->n_moved - n, req->chunk->memory, (size_t)n,
                COPY_TO_DEVICE);
    device_record(&req->chunk->copied, s);
}

/* True when the message is over, well or badly. */
static bool staged_advance(struct comm_request *req, bool *moved, int *code)
{
    struct comm_job *job = req->comm->job;
    if (!req->chunk) {
        req->chunk = is_behind_another(req) ? NULL : take_chunk(req);
        if (!req->chunk && job->has_failed)
            *code = MPI_ERR_NO_MEM;
        if (!req->chunk)
            return *code != MPI_SUCCESS;
        device_wait(comm_stream_of(req->comm), &req->flight->ready);
        begin_piece(req);
        *moved = true;
    }
    while (*code == MPI_SUCCESS) {
        if (req->stage == COMM_COPYING) {
            // what MPI sends is there, and nobody reads any more what it overwrites
            if (req->chunk->copied.stream && !device_happened(&req->chunk->copied))
                return false;
            *code = comm_message_post(req, req->chunk->memory, CHUNK_BYTES);
            req->stage = COMM_POSTED;
        } else {
            if (!comm_message_is_over(req, code))
                return false;
            if (*code == MPI_SUCCESS)
                keep_piece(req);
            if (req->n_moved == req->n)
                break;
            begin_piece(req);
        }
        *moved = true;
    }
    *moved = true;
    return true;
}

bool comm_staged_progress(struct comm *c)
{
    bool moved = false;
    struct comm_request **link = &c->staged;
    while (*link) {
        struct comm_request *req = *link;
        int code = c->mpi_error;
        if (!staged_advance(req, &moved, &code) && code == MPI_SUCCESS) {
            link = &req->next;
            continue;
        }
        *link = req->next;
        if (!*link)
            c->staged_end = link;
        if (code == MPI_SUCCESS)
            device_record(&req->flight->done, comm_stream_of(c));
        else
            c->mpi_error = code;
        if (req->chunk)
            req->chunk->is_busy = false;
        comm_request_finish(req, code);
    }
    return moved;
}

void comm_staged_start(struct comm_request *req)
{
    struct comm *c = req->comm;
    req->next = NULL;
    *c->staged_end = req;
    c->staged_end = &req->next;
    comm_staged_progress(c);
}
