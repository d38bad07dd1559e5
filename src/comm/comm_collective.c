/*
 * Reductions and gathers: a state machine over point-to-point messages.
 *
 * MPI's own reductions pick their order of adding by size and by call, so their bits
 * cannot be relied on. Here rank r owns a range of the buffer: every other rank sends it
 * its addends of that range, r adds them in rank order, and, for an all-reduce, sends the
 * sums back. A reduce-scatter is the first half of that and an all-gather the second.
 *
 * Ranges travel in blocks. A block that arrives in staging memory is added while it is
 * still in the cache, and its sum leaves while the next block arrives. With each peer a
 * collective has up to four streams (enum comm_flow); each stream has at most `depth`
 * blocks under way. Within that, what may be posted when:
 *
 *   SEND_PART  any time
 *   RECV_PART  block j when block j - COMM_STAGED has been added (its staging is free)
 *   SEND_SUM   block j when it has been added
 *   RECV_SUM   block j when SEND_PART of block j is over: they use the same memory of x
 *
 * Streams of one collective need no tags but their flow: MPI keeps the order of messages
 * of equal tag, and both ends go through blocks in order. The k-th collective of a group
 * runs in slot k % COMM_SLOTS, everywhere, and its tags say the slot; so collectives
 * that run side by side cannot mix, and those that share a slot follow each other.
 *
 * Cost per rank of an all-reduce of n elements on p ranks: 2 n (p-1)/p sent and as many
 * received, n (p-1)/p additions, the minimum. All-to-all: p - 1 messages per block.
 */
#include "comm/comm_mpi.h"

#include <string.h>

#define GATHER_BLOCK_BYTES ((int64_t)8 << 20) // gathers need no staging: larger blocks
#define COMBINE_BYTES 16384                   // added at a time: stays in the first cache
#define ROUNDS_MOST 64                        // of one visit to a slot
#define COLLECTIVE_TAG COMM_TAG_LIMIT         // first of COMM_SLOTS * 2

static struct comm_stream *stream_of(const struct comm_slot *s, int peer, int flow)
{
    return &s->streams[peer * N_FLOWS + flow];
}

static MPI_Request *request_of(const struct comm *c, const struct comm_slot *s, int peer,
                               int flow, int64_t block)
{
    return &s->mpi[(peer * N_FLOWS + flow) * c->depth + block % c->depth];
}

static int64_t n_blocks_of(const struct comm_slot *s, int rank)
{
    int64_t n_bytes = s->ranges[rank].end - s->ranges[rank].begin;
    return (n_bytes + s->block_bytes - 1) / s->block_bytes;
}

/* Where block j of rank's range begins in x, and how long it is. */
static char *block_of(const struct comm_slot *s, int rank, int64_t j, int64_t *n_bytes)
{
    int64_t begin = s->ranges[rank].begin + j * s->block_bytes;
    *n_bytes = i64_min(s->block_bytes, s->ranges[rank].end - begin);
    return s->x + begin;
}

/* Staging has no place for oneself: peers above my rank move down by one. */
static char *staging_of(const struct comm *c, const struct comm_slot *s, int peer,
                        int64_t j)
{
    int64_t row = j % COMM_STAGED * (c->size - 1) + (peer > c->rank ? peer - 1 : peer);
    return s->staging + row * c->block_bytes;
}

/* -- the order of adding ------------------------------------------------------------- */

/* The addends of rank r: mine are x, the others' are in staging. */
static char *part_of(const struct comm *c, const struct comm_slot *s, int r, int64_t j,
                     int64_t offset, char *x)
{
    return r == c->rank ? x : staging_of(c, s, r, j) + offset;
}

/* x[0, n) := ((p_0 + p_1) + p_2) + ..., where what is in staging serves as the
 * accumulator until x has had its turn. */
static void combine_piece(const struct comm *c, const struct comm_slot *s, int64_t j,
                          int64_t offset, char *x, int64_t n_bytes)
{
    const struct comm_op *op = s->req->op;
    int64_t n = n_bytes / (int64_t)op->elem_bytes;
    char *sum = part_of(c, s, 0, j, offset, x);
    for (int r = 1; r < c->size; r++) {
        const char *part = part_of(c, s, r, j, offset, x);
        char *out = r == c->rank ? x : sum;
        op->combine(out, sum, part, n);
        sum = out;
    }
}

/* The same of a tensor's elements. */
static void combine_tensor(const struct comm *c, const struct comm_slot *s, int64_t j,
                           char *x, int64_t n_bytes)
{
    const struct comm_op *op = s->req->op;
    for (int r = 0; r < c->size; r++)
        c->parts[r] = part_of(c, s, r, j, 0, x);
    c->job->stream->dev->k->reduce(
        c->job->stream, &(struct reduction){.op = op->reduce,
                                            .dtype = op->dtype,
                                            .x = x,
                                            .parts = c->parts,
                                            .n_parts = c->size,
                                            .n = n_bytes / (int64_t)op->elem_bytes});
}

static void combine_block(const struct comm *c, const struct comm_slot *s, int64_t j)
{
    const struct comm_op *op = s->req->op;
    int64_t n_bytes;
    char *x = block_of(s, c->rank, j, &n_bytes);
    if (!op->combine) {
        combine_tensor(c, s, j, x, n_bytes);
        return;
    }
    for (int64_t at = 0; at < n_bytes; at += COMBINE_BYTES)
        combine_piece(c, s, j, at, x + at, i64_min(COMBINE_BYTES, n_bytes - at));
}

/* True when every peer's addends of block j are here. */
static bool parts_are_here(const struct comm *c, const struct comm_slot *s, int64_t j)
{
    for (int peer = 0; peer < c->size; peer++)
        if (peer != c->rank && stream_of(s, peer, FLOW_RECV_PART)->n_done <= j)
            return false;
    return true;
}

static bool combine_blocks(const struct comm *c, struct comm_slot *s)
{
    bool moved = false;
    if (s->req->kind == COMM_ALLGATHER)
        return false;
    while (s->n_combined < n_blocks_of(s, c->rank) &&
           parts_are_here(c, s, s->n_combined)) {
        combine_block(c, s, s->n_combined);
        s->n_combined++;
        moved = true;
    }
    return moved;
}

/* -- streams ------------------------------------------------------------------------- */

/* The number of blocks of a stream that may be posted by now. */
static int64_t n_postable(const struct comm *c, const struct comm_slot *s, int peer,
                          int flow)
{
    const struct comm_stream *stream = stream_of(s, peer, flow);
    int64_t window = stream->n_done + c->depth;
    bool is_gather = s->req->kind == COMM_ALLGATHER;
    switch (flow) {
    case FLOW_RECV_PART:
        window = s->n_combined + COMM_STAGED;
        break;
    case FLOW_SEND_SUM:
        if (!is_gather)
            window = i64_min(window, s->n_combined);
        break;
    case FLOW_RECV_SUM:
        if (!is_gather)
            window = i64_min(window, stream_of(s, peer, FLOW_SEND_PART)->n_done);
        break;
    default:
        break;
    }
    return i64_min(window, stream->n_blocks);
}

static int post_block(const struct comm *c, const struct comm_slot *s, int peer, int flow,
                      int64_t j)
{
    bool is_send = flow == FLOW_SEND_PART || flow == FLOW_SEND_SUM;
    bool is_mine = flow == FLOW_RECV_PART || flow == FLOW_SEND_SUM;
    bool is_part = flow == FLOW_SEND_PART || flow == FLOW_RECV_PART;
    int tag = COLLECTIVE_TAG + (int)(s - c->slots) * 2 + (is_part ? 0 : 1);
    int64_t n_bytes;
    char *x = block_of(s, is_mine ? c->rank : peer, j, &n_bytes);
    MPI_Request *mpi = request_of(c, s, peer, flow, j);
    if (is_send)
        return MPI_Isend(x, (int)n_bytes, MPI_BYTE, peer, tag, c->mpi, mpi);
    if (is_part)
        x = staging_of(c, s, peer, j);
    return MPI_Irecv(x, (int)n_bytes, MPI_BYTE, peer, tag, c->mpi, mpi);
}

static int post_stream(const struct comm *c, struct comm_slot *s, int peer, int flow,
                       bool *moved)
{
    struct comm_stream *stream = stream_of(s, peer, flow);
    int64_t n = n_postable(c, s, peer, flow);
    int code = MPI_SUCCESS;
    for (; stream->n_posted < n && code == MPI_SUCCESS; *moved = true) {
        code = post_block(c, s, peer, flow, stream->n_posted);
        stream->n_posted++;
    }
    return code;
}

/* Receives first, so that messages find a buffer. Peers in turn from the one after
 * me, so that not all ranks turn to rank 0 first. */
static int post_streams(const struct comm *c, struct comm_slot *s, bool *moved)
{
    static const int order[N_FLOWS] = {FLOW_RECV_PART, FLOW_RECV_SUM, FLOW_SEND_PART,
                                       FLOW_SEND_SUM};
    int code = MPI_SUCCESS;
    for (int f = 0; f < N_FLOWS; f++)
        for (int i = 1; i < c->size && code == MPI_SUCCESS; i++)
            code = post_stream(c, s, (c->rank + i) % c->size, order[f], moved);
    return code;
}

/* Count the blocks that MPI has finished, in order. */
static void count_finished_blocks(const struct comm *c, struct comm_slot *s)
{
    for (int peer = 0; peer < c->size; peer++)
        for (int flow = 0; flow < N_FLOWS; flow++) {
            struct comm_stream *stream = stream_of(s, peer, flow);
            while (stream->n_done < stream->n_posted &&
                   *request_of(c, s, peer, flow, stream->n_done) == MPI_REQUEST_NULL)
                stream->n_done++;
        }
}

static bool slot_is_done(const struct comm *c, const struct comm_slot *s)
{
    for (int peer = 0; peer < c->size; peer++)
        for (int flow = 0; flow < N_FLOWS; flow++) {
            const struct comm_stream *stream = stream_of(s, peer, flow);
            if (stream->n_done < stream->n_blocks)
                return false;
        }
    return s->req->kind == COMM_ALLGATHER || s->n_combined == n_blocks_of(s, c->rank);
}

/* -- slots --------------------------------------------------------------------------- */

/* Reductions of so few elements have one owner: a second one would touch its staging for
 * them alone. */
#define TINY_ELEMENTS 16

/* What rank r owns, in elements. */
static struct comm_range range_of(const struct comm_request *req, int size, int r)
{
    int piece = req->piece_of_rank ? req->piece_of_rank[r] : r;
    if (req->bounds)
        return (struct comm_range){req->bounds[piece], req->bounds[piece + 1]};
    if (req->n <= TINY_ELEMENTS)
        return (struct comm_range){piece == 0 ? 0 : req->n, req->n};
    return (struct comm_range){comm_even_begin(req->n, size, piece),
                               comm_even_begin(req->n, size, piece + 1)};
}

struct comm_range comm_collective_range(const struct comm_request *req, int r)
{
    struct comm_range range = range_of(req, req->comm->size, r);
    int64_t elem_bytes = (int64_t)req->elem_bytes;
    return (struct comm_range){range.begin * elem_bytes, range.end * elem_bytes};
}

/* x and ranges are set: nothing of them has been sent or received. */
static void slot_begin_streams(struct comm *c, struct comm_slot *s)
{
    bool has_parts = s->req->kind != COMM_ALLGATHER;
    bool has_sums = s->req->kind != COMM_REDUCE_SCATTER;
    s->n_combined = 0;
    s->block_bytes = has_parts ? c->block_bytes : GATHER_BLOCK_BYTES;
    int64_t n_mine = n_blocks_of(s, c->rank);
    if (has_parts && n_mine >= COMM_STAGED && !c->fills_staging) {
        c->fills_staging = true;
        arena_use_huge_pages(&c->memory);
    }
    for (int peer = 0; peer < c->size; peer++) {
        int64_t n_theirs = n_blocks_of(s, peer);
        const int64_t n_blocks[N_FLOWS] = {
            [FLOW_SEND_PART] = has_parts ? n_theirs : 0,
            [FLOW_RECV_PART] = has_parts ? n_mine : 0,
            [FLOW_SEND_SUM] = has_sums ? n_mine : 0,
            [FLOW_RECV_SUM] = has_sums ? n_theirs : 0,
        };
        for (int flow = 0; flow < N_FLOWS; flow++)
            *stream_of(s, peer, flow) =
                (struct comm_stream){.n_blocks = peer == c->rank ? 0 : n_blocks[flow]};
    }
}

static int slot_begin(struct comm *c, struct comm_slot *s, struct comm_request *req)
{
    s->req = req;
    s->n_segments = 0;
    s->is_copying = false;
    if (req->flight)
        return comm_segments_begin(c, s);
    s->x = req->x;
    for (int r = 0; r < c->size; r++)
        s->ranges[r] = comm_collective_range(req, r);
    slot_begin_streams(c, s);
    return MPI_SUCCESS;
}

/* False: a tensor's addends are still on their way to where MPI reads them. */
static bool slot_is_filled(struct comm *c, struct comm_slot *s, bool *moved)
{
    if (!s->is_copying)
        return true;
    if (!device_happened(&s->copied))
        return false;
    s->is_copying = false;
    *moved = true;
    slot_begin_streams(c, s);
    return true;
}

/* True when a slot that has done its streams has done all: what is left of a tensor
 * begins. */
static bool slot_ends(const struct comm *c, struct comm_slot *s)
{
    if (s->n_segments == 0 || comm_segment_end(c, s))
        return true;
    comm_segment_begin(c, s);
    return false;
}

/* One round: what MPI has finished, what can be added, what can be posted. */
static int slot_advance(struct comm *c, struct comm_slot *s, bool *moved)
{
    int n_completed = 0;
    if (!slot_is_filled(c, s, moved))
        return MPI_SUCCESS;
    int code = MPI_Testsome(c->size * N_FLOWS * c->depth, s->mpi, &n_completed,
                            c->completed, c->statuses);
    if (code != MPI_SUCCESS)
        return code;
    if (n_completed != MPI_UNDEFINED && n_completed > 0) {
        count_finished_blocks(c, s);
        *moved = true;
    }
    if (combine_blocks(c, s))
        *moved = true;
    return post_streams(c, s, moved);
}

/* Give free slots to those who wait, strictly in order. */
static int fill_slots(struct comm *c, bool *moved)
{
    int code = MPI_SUCCESS;
    while (c->queue && code == MPI_SUCCESS) {
        struct comm_slot *s = &c->slots[c->n_slotted % COMM_SLOTS];
        if (s->req)
            break;
        struct comm_request *req = c->queue;
        c->queue = req->next;
        if (!c->queue)
            c->queue_end = &c->queue;
        c->n_slotted++;
        code = slot_begin(c, s, req);
        *moved = true;
    }
    return code;
}

/* After an error the group is of no use: all that is in flight ends with that error. */
static void break_group(struct comm *c, int code)
{
    c->mpi_error = code;
    for (int i = 0; i < COMM_SLOTS; i++) {
        if (c->slots[i].req)
            comm_request_finish(c->slots[i].req, code);
        c->slots[i].req = NULL;
    }
    for (; c->queue; c->queue = c->queue->next)
        comm_request_finish(c->queue, code);
    c->queue_end = &c->queue;
}

/* Advance one slot until it is done or has to wait for others, or for long enough: blocks
 * that are there already are all taken in one visit, but a visit ends. */
static int slot_visit(struct comm *c, struct comm_slot *s, bool *moved)
{
    for (int round = 0; round < ROUNDS_MOST; round++) {
        bool moved_now = false;
        int code = slot_advance(c, s, &moved_now);
        if (code != MPI_SUCCESS)
            return code;
        if (!s->is_copying && slot_is_done(c, s) && slot_ends(c, s)) {
            comm_request_finish(s->req, MPI_SUCCESS);
            s->req = NULL;
            *moved = true;
            break;
        }
        if (!moved_now)
            break;
        *moved = true;
    }
    return MPI_SUCCESS;
}

bool comm_collective_progress(struct comm *c)
{
    bool moved = false;
    int code = fill_slots(c, &moved);
    for (int i = 0; i < COMM_SLOTS && code == MPI_SUCCESS; i++) {
        // The oldest first: it is the one waited for, and it frees the next slot.
        struct comm_slot *s = &c->slots[(c->n_slotted + i) % COMM_SLOTS];
        code = s->req ? slot_visit(c, s, &moved) : MPI_SUCCESS;
    }
    if (code != MPI_SUCCESS) {
        break_group(c, code);
        return true;
    }
    return moved;
}

/* -- waiting ------------------------------------------------------------------------- */

/* A rank whose addends are missing holds up the sum; one that has not received what was
 * sent holds up the rest. A missing sum may be held up by a third rank. */
static int slot_holder(const struct comm *c, const struct comm_slot *s)
{
    static const int order[N_FLOWS] = {FLOW_RECV_PART, FLOW_SEND_PART, FLOW_SEND_SUM,
                                       FLOW_RECV_SUM};
    for (int f = 0; f < N_FLOWS; f++)
        for (int peer = 0; peer < c->size; peer++) {
            const struct comm_stream *stream = stream_of(s, peer, order[f]);
            if (stream->n_done < stream->n_blocks && stream->n_done < stream->n_posted)
                return peer;
        }
    return -1;
}

int comm_collective_holder(const struct comm_request *req)
{
    const struct comm *c = req->comm;
    for (int i = 0; i < COMM_SLOTS; i++)
        if (c->slots[i].req == req)
            return slot_holder(c, &c->slots[i]);
    if (req->is_done) // by peers: which is not known
        return -1;
    // it waits for a slot, which the oldest one holds
    const struct comm_slot *oldest = &c->slots[c->n_slotted % COMM_SLOTS];
    return oldest->req ? slot_holder(c, oldest) : -1;
}

/* -- starting ------------------------------------------------------------------------ */

static int64_t bytes_to_send(const struct comm *c, const struct comm_request *req)
{
    struct comm_range range = range_of(req, c->size, c->rank);
    int64_t total = req->n, mine = range.end - range.begin, n = 0;
    if (req->bounds)
        total = req->bounds[c->size] - req->bounds[0];
    if (req->kind != COMM_ALLGATHER)
        n += total - mine;
    if (req->kind != COMM_REDUCE_SCATTER)
        n += mine * (c->size - 1);
    return n * (int64_t)req->elem_bytes;
}

void comm_collective_start(struct comm_request *req)
{
    struct comm *c = req->comm;
    req->is_done = c->size == 1;
    c->volume.n_operations[req->kind]++;
    if (req->is_done)
        return;
    c->job->n_in_flight++;
    comm_flight_begin(req);
    req->start = trace_begin(c->job->trace);
    if (c->mpi_error) {
        comm_request_finish(req, c->mpi_error);
        return;
    }
    c->volume.sent_bytes[req->kind] += bytes_to_send(c, req);
    if (comm_peers_start(req))
        return;
    req->next = NULL;
    *c->queue_end = req;
    c->queue_end = &req->next;
    comm_collective_progress(c);
}
