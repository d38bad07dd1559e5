/*
 * What is one MPI request at a time: messages between two ranks, broadcast.
 *
 * MPI counts are int: a message beyond MESSAGE_BYTES goes as several, one after the
 * other, which keep their order because they have one tag.
 */
#include "comm/comm_mpi.h"

#include <string.h>

#define MESSAGE_BYTES ((int64_t)1 << 26)             // each that arrives is progress
#define GATHER_TAG (COMM_TAG_LIMIT + 2 * COMM_SLOTS) // after those of the collectives

/* comm.h knows no MPI, so a request keeps its MPI_Request, a pointer or an int, in 64
 * bits. */
_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "MPI_Request fits its place");

static MPI_Request *mpi_request_of(struct comm_request *req)
{
    return (MPI_Request *)(void *)&req->mpi; // only MPI itself reads or writes through it
}

int comm_message_post(struct comm_request *req, char *x, int64_t n_most)
{
    const struct comm *c = req->comm;
    int n = (int)i64_min(n_most, req->n - req->n_moved);
    MPI_Request *mpi = mpi_request_of(req);
    int code = MPI_SUCCESS;
    switch (req->call) {
    case COMM_SEND:
        code = MPI_Isend(x, n, MPI_BYTE, req->peer, req->tag, c->mpi, mpi);
        break;
    case COMM_RECV:
        code = MPI_Irecv(x, n, MPI_BYTE, req->peer, req->tag, c->mpi, mpi);
        break;
    case COMM_BCAST:
        code = MPI_Ibcast(x, n, MPI_BYTE, req->peer, c->mpi, mpi);
        break;
    }
    req->n_moved += n;
    return code;
}

/* Post the next piece of a message from or to where it lies. */
static int post_piece(struct comm_request *req)
{
    return comm_message_post(req, req->x ? req->x + req->n_moved : NULL, MESSAGE_BYTES);
}

bool comm_message_is_over(struct comm_request *req, int *code)
{
    int is_over = 0;
    *code = MPI_Test(mpi_request_of(req), &is_over, MPI_STATUS_IGNORE);
    return *code != MPI_SUCCESS || is_over;
}

/* True when the message is over, well or badly. */
static bool message_advance(struct comm_request *req, bool *moved)
{
    for (;;) {
        int code = MPI_SUCCESS;
        if (!comm_message_is_over(req, &code))
            return false;
        *moved = true;
        if (code == MPI_SUCCESS && req->n_moved < req->n)
            code = post_piece(req);
        else if (code == MPI_SUCCESS)
            break;
        if (code != MPI_SUCCESS) {
            req->comm->mpi_error = code;
            break;
        }
    }
    return true;
}

bool comm_message_progress(struct comm *c)
{
    bool moved = comm_staged_progress(c);
    struct comm_request **link = &c->messages;
    while (*link) {
        struct comm_request *req = *link;
        if (message_advance(req, &moved)) {
            *link = req->next;
            comm_request_finish(req, c->mpi_error);
        } else {
            link = &req->next;
        }
    }
    return moved;
}

/* Start what *req describes (comm, kind, call, x, n in bytes, peer, tag). */
static void start_message(struct comm_request *req)
{
    struct comm *c = req->comm;
    req->is_done = c->size == 1;
    c->volume.n_operations[req->kind]++;
    if (req->is_done)
        return;
    CHECK(req->peer >= 0 && req->peer < c->size, "rank %d of %d", req->peer, c->size);
    c->job->n_in_flight++;
    comm_flight_begin(req);
    req->start = trace_begin(c->job->trace);
    int code = c->mpi_error;
    if (code == MPI_SUCCESS && !req->flight)
        code = c->mpi_error = post_piece(req);
    if (code != MPI_SUCCESS) {
        comm_request_finish(req, code);
        return;
    }
    if (req->call == COMM_SEND || (req->call == COMM_BCAST && req->peer == c->rank))
        c->volume.sent_bytes[req->kind] += req->n;
    if (req->flight) {
        if (!comm_peers_start(req))
            comm_staged_start(req);
        return;
    }
    req->next = c->messages;
    c->messages = req;
}

/* One request as a blocking call: start, wait. */
static int run_message(struct comm_request *req, struct error *err)
{
    start_message(req);
    return comm_wait(req, err);
}

/* -- messages of comm.h -------------------------------------------------------------- */

static void message_start(struct comm *c, void *x, int64_t n_bytes, enum comm_call call,
                          int peer, int tag, struct comm_request *req)
{
    CHECK(peer != c->rank && tag >= 0 && tag < COMM_TAG_LIMIT, "rank %d, tag %d", peer,
          tag);
    *req = (struct comm_request){.comm = c,
                                 .kind = COMM_P2P,
                                 .call = call,
                                 .x = x,
                                 .n = n_bytes,
                                 .peer = peer,
                                 .tag = tag};
    start_message(req);
}

void comm_send_bytes_start(struct comm *c, const void *x, int64_t n_bytes, int to,
                           int tag, struct comm_request *req)
{
    // The engine has one pointer for both directions; a send only reads it.
    message_start(c, (void *)(uintptr_t)x, n_bytes, COMM_SEND, to, tag, req);
}

void comm_recv_bytes_start(struct comm *c, void *x, int64_t n_bytes, int from, int tag,
                           struct comm_request *req)
{
    message_start(c, x, n_bytes, COMM_RECV, from, tag, req);
}

int comm_bcast_bytes(struct comm *c, void *x, int64_t n_bytes, int root,
                     struct error *err)
{
    struct comm_request req = {.comm = c,
                               .kind = COMM_OTHER,
                               .call = COMM_BCAST,
                               .x = x,
                               .n = n_bytes,
                               .peer = root};
    return run_message(&req, err);
}

/* One rank after the other: gathers are for reports and for what rank 0 writes, and are
 * bound by the root. */
int comm_gather_bytes(struct comm *c, const void *mine, void *all, const int64_t *bounds,
                      int root, struct error *err)
{
    struct comm_request req = {.comm = c, .kind = COMM_OTHER, .tag = GATHER_TAG};
    if (c->rank != root) {
        req.call = COMM_SEND;
        req.peer = root;
        req.x = (void *)(uintptr_t)mine;
        req.n = bounds[c->rank + 1] - bounds[c->rank];
        return run_message(&req, err);
    }
    for (int r = 0; r < c->size; r++) {
        char *place = (char *)all + bounds[r];
        int64_t n = bounds[r + 1] - bounds[r];
        if (r == root) {
            memmove(place, mine, (size_t)n);
            continue;
        }
        struct comm_request recv = req;
        recv.call = COMM_RECV;
        recv.peer = r;
        recv.x = place;
        recv.n = n;
        if (run_message(&recv, err))
            return -1;
    }
    return 0;
}
