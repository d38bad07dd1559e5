/*
 * comm_mpi - private to src/comm.
 *
 *   comm.c             the calls of comm.h that have no MPI in them, and who watches them
 *   comm_world.c       how the process was started, joining the job, making groups
 *   comm_collective.c  reductions and gathers, the state machine
 *   comm_message.c     what is one MPI request at a time: messages, broadcast
 *   comm_combine.c     how addends become one
 *   comm_staging.c     tensors of a device: their events, and copies in the host's memory
 *   comm_peers.c       tensors of devices that reach each other
 *   comm_link.c        what hosts do for such devices, where that is emulated
 */
#ifndef COMM_COMM_MPI_H
#define COMM_COMM_MPI_H

#include "base/arena.h"
#include "comm/comm.h"
#include "comm/comm_combine.h"
#include "device/device_peers.h"

#include <mpi.h>
#include <pthread.h>

#define COMM_SLOTS 4  // collectives of one group that run at once; others queue
#define COMM_STAGED 2 // blocks from one peer that have staging memory
#define COMM_LINK_TAG (COMM_TAG_LIMIT + 2 * COMM_SLOTS + 1) // first of 4: comm_link.c
#define COMM_EXIT_BY_WATCHER 3 // the exit code of what the machine did

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
    char *x;                  // the request's buffer, or what stands for it (staging.c)
    int64_t block_bytes;
    int64_t n_combined;          // blocks of my range whose sum stands in x
    struct comm_range *ranges;   // (size) whom each belongs to, from x on
    struct comm_stream *streams; // (size, N_FLOWS)
    MPI_Request *mpi;            // (size, N_FLOWS, depth)
    char *staging;               // (COMM_STAGED, size - 1, block_bytes of the group)

    /* Of a tensor of a device, which passes through `pinned` segment by segment. */
    char *pinned;        // (size, part_bytes()); NULL: none was needed yet
    bool is_copying;     // `copied` has to happen before MPI looks there
    struct event copied; // the tensor's addends are in `pinned`
    int64_t segment;     // that is under way,
    int64_t n_segments;  // of so many; 0: not of a device
};

/* The events of an operation on a tensor of a device. */
struct comm_flight {
    struct comm_flight *next;  // of those that are free, or airborne
    struct event ready;        // what the tensor's owner had enqueued at the start
    struct event done;         // the tensor is its owner's again
    bool is_airborne;          // peers have it: not known to be done
    bool is_waited;            // the request is gone
    struct comm_request shown; // what it was, for the trace and the watcher
};

/* A group of peers, see device_peers.h: the ranks of a group, or two neighbours of one,
 * of which the first sends. */
enum comm_link_place {
    COMM_LINK_GROUP,
    COMM_LINK_TO_NEXT,
    COMM_LINK_FROM_PREVIOUS,
    COMM_LINK_TO_PREVIOUS,
    COMM_LINK_FROM_NEXT,
    COMM_N_LINKS,
};
struct comm_link {
    struct gpu_peers *peers; // NULL: none
    enum stream_name stream;
    struct comm *comm;
    int tag;
    int ranks[2]; // of two neighbours, in the group; -1: all of it
    int pair[2];  // and in the job
    const int *world_ranks;
};

/* Pinned memory for a message of a tensor, or a piece of it. */
struct comm_chunk {
    char *memory; // NULL: not yet
    bool is_busy;
    struct event copied; // what was last copied from or to it
};
#define COMM_CHUNKS 8 // each way: messages of tensors that are under way at once

struct comm_job {        // one per process
    struct comm *groups; // those of more than one rank, linked by next
    int n_in_flight;     // requests started and not done, of all groups
    bool uses_mpi;
    bool is_oversubscribed; // more processes on this machine than processors
    int world_rank, local_rank, local_size;
    char host[256];
    char library[COMM_LIBRARY_BYTES];
    struct device *dev;           // that tensors belong to
    const struct device_ops *ops; // its, also when it is closed
    struct stream *stream; // for sums on the host: that device's where it is the host's
    struct comm_flight *flights;                  // free ones
    struct comm_chunk chunks[2][COMM_CHUNKS];     // of sends, of receives
    struct comm_flight *airborne, **airborne_end; // of peers, oldest first
    char *addends; // of the device, for comm_peers.c; NULL: there are no peers
    int64_t addends_bytes;
    int n_waits;             // rounds in which the host waited for the device
    pthread_t thread;        // that makes all calls
    struct comm_note *notes; // of comm_link.c, not sent yet
    bool has_failed;         // without MPI's fault:
    struct error failure;    // so
    struct trace *trace;     // borrowed; NULL: none
    double waited;           // seconds in comm_wait()
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

    struct comm_request *queue, **queue_end;   // collectives without a slot, oldest first
    struct comm_request *messages;             // single MPI requests under way
    struct comm_request *staged, **staged_end; // messages of tensors, oldest first
    int64_t n_slotted; // collectives that got a slot: the k-th gets slot k % COMM_SLOTS
    struct comm_slot slots[COMM_SLOTS];
    int *completed;       // (size, N_FLOWS, depth), what MPI_Testsome
    MPI_Status *statuses; // fills besides
    const void **parts;   // (size) the addends of a block
    struct arena memory;
    bool fills_staging; // a reduction had blocks for all of it: it has huge pages
    int64_t block_bytes;
    int depth; // blocks that a stream may have under way, >= COMM_STAGED

    struct comm_link links[COMM_N_LINKS];
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
/* Post the next piece of a message, at most n_most bytes, from or to `x`. */
int comm_message_post(struct comm_request *req, char *x, int64_t n_most);
/* True when the piece that was posted is over, or *code is an error. */
bool comm_message_is_over(struct comm_request *req, int *code);

/* The end of a request: takes it out of the count. */
void comm_request_finish(struct comm_request *req, int mpi_error);

/* The rank of the group that this request, a collective, is held up by; -1: not known. */
int comm_collective_holder(const struct comm_request *req);
/* What rank r owns of the buffer, in bytes. */
struct comm_range comm_collective_range(const struct comm_request *req, int r);

/* -- tensors of a device: comm_staging.c --------------------------------------------- */

/* Give *req its events, where its buffer is a tensor of a device that the host cannot
 * touch; the tensor is comm's from here on. */
void comm_flight_begin(struct comm_request *req);
/* comm_wait()'s part: the computing stream waits. */
void comm_flight_end(struct comm_request *req);

/* Begin the collective of a slot, req of a device: its first segment; and the next one.
 * Segments end by comm_segment_end(), true when that was the last. */
int comm_segments_begin(struct comm *c, struct comm_slot *s);
void comm_segment_begin(const struct comm *c, struct comm_slot *s);
bool comm_segment_end(const struct comm *c, struct comm_slot *s);

/* A message of a device joins those of its group; and their progress. */
void comm_staged_start(struct comm_request *req);
bool comm_staged_progress(struct comm *c);

/* Give back what the device has given; tensors are the processor's again. [collective]
 * where there are peers. */
void comm_release_device(struct comm_job *job);
void comm_flight_free(struct comm_job *job, struct comm_flight *flight);

/* -- devices that reach each other: comm_peers.c ------------------------------------- */

/* Open groups of peers for these groups, and for the neighbours of `pipe`, where all
 * ranks of the job have such devices. [collective] */
MUST_CHECK int comm_peers_open(struct comm *world, struct comm *const *groups,
                               int n_groups, struct comm *pipe, struct error *err);
void comm_peers_close(struct comm_job *job);
/* Enqueue an operation; false: the host has to do it. */
bool comm_peers_start(struct comm_request *req);
/* Take note of what is done; true when anything is. */
bool comm_peers_progress(struct comm_job *job);

struct device_link comm_link_for_device(struct comm_link *l);
void comm_forget_notes(struct comm_job *job);

/* -- who watches: comm.c ------------------------------------------------------------- */

/* Record an operation that ends now. */
void comm_trace_flight(const struct comm_request *req);
/* Show the watcher that this rank waits for *req, and for whom. */
void comm_show_wait(const struct comm_request *req);

#endif
