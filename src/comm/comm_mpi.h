/*
 * comm_mpi - private to src/comm.
 *
 *   comm.c             the calls of comm.h that have no MPI in them, and who watches them
 *   comm_world.c       how the process was started, joining the job, making groups
 *   comm_collective.c  reductions and gathers, the state machine
 *   comm_message.c     what is one MPI request at a time: messages, broadcast
 *   comm_combine.c     how addends become one
 */
#ifndef COMM_COMM_MPI_H
#define COMM_COMM_MPI_H

#include "base/arena.h"
#include "comm/comm.h"
#include "comm/comm_combine.h"

#include <mpi.h>

#define COMM_SLOTS 4  // collectives of one group that run at once; others queue
#define COMM_STAGED 2 // blocks from one peer that have staging memory

/* -- groups -------------------------------------------------------------------------- */

/* One direction of traffic with one peer: a range sent or received block by block, in
 * order. Blocks [0, n_done) are over, [n_done, n_posted) under way. */
struct comm_stream {
    int64_t n_blocks, n_posted, n_done;
};

enum comm_flow {    // the streams a collective has with each peer
    FLOW_SEND_PART, // my addend of the peer's range, to the peer
    FLOW_RECV_PART, // the peer's addend of my range, into staging
    FLOW_SEND_SUM,  // my range, finished, to the peer
    FLOW_RECV_SUM,  // the peer's range, finished, into x
    N_FLOWS,
};

struct comm_range { // what a rank owns, in bytes from the start of x
    int64_t begin, end;
};

struct comm_slot {            // a collective that runs
    struct comm_request *req; // NULL: free
    int64_t block_bytes;
    int64_t n_combined;          // blocks of my range whose sum stands in x
    struct comm_range *ranges;   // (size) whom each belongs to
    struct comm_stream *streams; // (size, N_FLOWS)
    MPI_Request *mpi;            // (size, N_FLOWS, depth)
    char *staging;               // (COMM_STAGED, size - 1, block_bytes of the group)
};

struct comm_job {        // one per process
    struct comm *groups; // those of more than one rank, linked by next
    int n_in_flight;     // requests started and not done, of all groups
    bool uses_mpi;
    bool is_oversubscribed; // more processes on this machine than processors
    int world_rank, local_rank, local_size;
    char host[256];
    char library[COMM_LIBRARY_BYTES];
    struct stream *stream; // of the device that tensors belong to, for sums of them
    struct trace *trace;   // borrowed; NULL: none
    double waited;         // seconds in comm_wait()
    void (*report_abort)(const struct error *err); // NULL: to the log
};

struct comm {
    struct comm_job *job;
    struct comm *next; // in job->groups
    MPI_Comm mpi;      // MPI_COMM_NULL in a group of one
    int rank, size;
    int *world_ranks; // (size) of its members in the job
    const char *name; // for the trace: "model", ...
    int mpi_error; // not 0: communication failed once, and everything after it fails too

    struct comm_request *queue, **queue_end; // collectives without a slot, oldest first
    struct comm_request *messages;           // single MPI requests under way
    int64_t n_slotted; // collectives that got a slot: the k-th gets slot k % COMM_SLOTS
    struct comm_slot slots[COMM_SLOTS];
    int *completed;       // (size, N_FLOWS, depth), what MPI_Testsome
    MPI_Status *statuses; // fills besides
    const void **parts;   // (size) the addends of a block
    struct arena memory;
    int64_t block_bytes;
    int depth; // blocks that a stream may have under way, >= COMM_STAGED

    struct comm_volume volume;
};

/* A group around `mpi`, which it owns from then on, failed or not; size 1 becomes a group
 * without MPI. (local) */
MUST_CHECK int comm_group_open(struct comm **group, struct comm_job *job, MPI_Comm mpi,
                               struct error *err);
/* A group of this process alone. (local) */
MUST_CHECK int comm_alone_open(struct comm **group, struct comm_job *job,
                               struct error *err);
/* NULL is fine. [collective] */
void comm_group_close(struct comm *c);

/* Fills *err when code is not MPI_SUCCESS; returns 0 or -1. */
int comm_mpi_check(int code, const char *what, struct error *err);

/* -- operations ---------------------------------------------------------------------- */

/* Where range r begins when n elements are cut evenly. */
int64_t comm_even_begin(int64_t n, int size, int r);

/* Start what *req describes (comm, kind, x, n or bounds and pieces, op,
 * elem_bytes). */
void comm_collective_start(struct comm_request *req);
/* Advance the collectives of c; true when anything moved. */
bool comm_collective_progress(struct comm *c);

/* Advance the messages of c; true when anything moved. */
bool comm_message_progress(struct comm *c);

/* The buffer of a request is MPI's, until it is finished. */
void comm_request_open(const struct comm_request *req);
/* The end of a request: takes it out of the count. */
void comm_request_finish(struct comm_request *req, int mpi_error);

/* The rank of the group that this request, a collective, is held up by; -1: not known. */
int comm_collective_holder(const struct comm_request *req);

#endif
