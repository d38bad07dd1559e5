/*
 * comm - groups of ranks: messages, collectives, agreement.
 *
 * This folder alone includes <mpi.h>. A job of one process never calls MPI: its world is
 * a group of one, and in a group of one every call below is a no-op on the data, so
 * callers never write `if (size > 1)`.
 *
 * Sums are the same bits everywhere. Whatever the call, the count or the ranges, element
 * i of a sum is ((x_0[i] + x_1[i]) + x_2[i]) + ..., ranks in order: so an all-reduce and
 * a reduce-scatter followed by an all-gather agree bit for bit, however they are cut.
 * Elements of 16 bits are widened to float, added in that order and rounded once. Sums of
 * tensors are made by a kernel of their device.
 *
 * Rules for every function marked [collective]:
 *   - all ranks of `c` call it, in the same order on that group, with the same counts
 *     and bounds; different groups need no common order;
 *   - counts are elements unless named _bytes, and may exceed INT_MAX;
 *   - buffers of different arguments, and of operations in flight, do not overlap.
 * A rank that fails locally must not skip a collective: see comm_agree().
 *
 * Operations in flight (..._start) are described by a caller's struct comm_request, which
 * must stay where it is, with its buffers and bounds, until comm_wait(), called exactly
 * once. Starting cannot fail: what goes wrong is reported by comm_wait(). They advance
 * inside any comm_test(), comm_wait() or comm_progress() of the job, whatever its group,
 * so a wait for one never holds up the others. Any number may be in flight; waits may
 * come in any order. A blocking call is its start and its wait.
 *
 * Tensors of a device that the host cannot touch (comm_set_device()) may be passed to
 * reductions, gathers and messages. They are comm's from the start on for whatever is
 * enqueued on the computing stream later, and that stream's again after comm_wait(), which
 * makes it wait; what other streams do with them is ordered with the computing one. They
 * pass through the host's memory, or, where devices reach each other (grid_use_device()),
 * from one to the other, and then
 *   - collectives of tensors have one order over all groups that share ranks;
 *   - messages of tensors go to the next rank of the group with even tags and to the one
 *     before it with odd ones, in a ring; others take the way through the host. Of each
 *     such connection receives start in the order of the sends.
 * Through the host, at most 8 sends and 8 receives of tensors are under way at a time;
 * others follow in the order in which they were started.
 *
 * Memory: opening a group maps its staging memory (resident only where reductions used
 * it); nothing is allocated after that, but for what tensors of a device need, once.
 *
 * Threads: the one that opened the world makes all calls.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/base.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/trace.h"
#include "device/device.h"

struct comm; // a group of ranks

/* -- the job ------------------------------------------------------------------------- */

/* What the environment says about this process, read without touching MPI. */
struct comm_launch {
    const char *launcher;       // the variable that gave the size; NULL: none did
    const char *job;            // the name of the job, no other has it; NULL: not known
    int rank, size;             // 0 and 1 when no launcher started this process
    int local_rank, local_size; // among those of this host; -1: not known
    bool has_mpi; // false: several processes were started that cannot reach each other
    bool is_ours; // trefoil's own launcher did: `job` is its COMM_ENV_JOB
    int64_t n_restarts; // of the job by that launcher, so far
};
/* The directory of a job, on the host of its launcher, called LAUNCHER.RESTARTS. */
#define COMM_ENV_JOB "TREFOIL_JOB"
struct comm_launch comm_launch_info(void);

/* This process is one of several that a launcher started. */
bool comm_is_launched(void);

/* The MPI library, in a few words: "Open MPI v4.1.4", "MPICH Version: 4". */
#define COMM_LIBRARY_BYTES 64
void comm_library_words(char words[COMM_LIBRARY_BYTES]);

/* Join the job: MPI when this process is one of several, a group of one otherwise.
 * A launcher whose processes cannot reach each other through this MPI library (the
 * mpiexec of another one, srun without its plug-in) is an error. [collective] */
MUST_CHECK int comm_world_open(struct comm **world, struct error *err);
/* Leave the job. All other groups must be closed and nothing be in flight. NULL is fine.
 * After a failure of MPI itself, where the others cannot be waited for, this ends the job
 * with exit code 3. [collective] */
void comm_world_close(struct comm *world);

/* End all ranks of the job at once with this exit code: for a rank that cannot reach the
 * next agreement. `c` is any group, or NULL before there is one. Does not return. */
void comm_abort(struct comm *c, int exit_code) __attribute__((noreturn));
/* The same, after reporting why. */
void comm_abort_with(struct comm *c, const struct error *err) __attribute__((noreturn));
/* Where comm_abort_with(), and a comm_world_close() that ends the job, report why; by
 * default the log. `c` is any group. (local) */
void comm_on_abort(struct comm *c, void (*report)(const struct error *err));

/* Whether communication has failed in a group that is open: the ranks can no longer agree
 * on anything. `c` is any group. (local) */
bool comm_is_broken(const struct comm *c);

/* -- identity (local, cannot fail) --------------------------------------------------- */

int comm_rank(const struct comm *c); // 0 <= rank < size
int comm_size(const struct comm *c);
int comm_local_rank(const struct comm *c); // among the job's processes on this machine
int comm_local_size(const struct comm *c);
const char *comm_host(const struct comm *c); // this machine's name

/* Memory that a group of this many ranks takes when its longest reduction has n_bytes;
 * known without opening one. */
size_t comm_group_bytes(int size, int64_t n_bytes);
/* Pinned memory of the host that it takes when tensors of a device are reduced or
 * gathered in it; and what a process takes for messages of such tensors, of which at most
 * n_messages are under way. */
size_t comm_pinned_bytes(int size);
size_t comm_message_pinned_bytes(int n_messages);
/* Device memory that a process takes where devices reach each other, and its largest
 * group has this many ranks. */
size_t comm_peers_bytes(int size);

/* -- operations in flight ------------------------------------------------------------ */

enum comm_kind { // what a request is; the counters are per kind
    COMM_ALLREDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALLGATHER,
    COMM_P2P,
    COMM_OTHER, // broadcast, gather, agreement
    COMM_N_KINDS,
};

/* Caller's storage; the members are comm's own. */
struct comm_request {
    struct comm *comm;
    struct comm_request *next; // in the queue of its group
    enum comm_kind kind;
    enum comm_call { COMM_SEND, COMM_RECV, COMM_BCAST } call; // of messages
    bool is_done;
    int peer, tag;
    const void *op;           // how elements are added; NULL: they are only moved
    char *x;                  // the whole buffer
    const int64_t *bounds;    // NULL: n elements, cut evenly
    const int *piece_of_rank; // NULL: rank r owns range r
    int64_t n, n_moved;       // messages: n_moved of n bytes are in the past
    size_t elem_bytes;
    struct comm_flight *flight; // of a tensor of a device; NULL: the host's memory
    struct comm_chunk *chunk;   // of such a message: where its piece is
    enum comm_stage { COMM_UNPOSTED, COMM_COPYING, COMM_POSTED } stage; // of that piece
    uint64_t mpi;                                                       // an MPI_Request
    int mpi_error; // 0, or the error code MPI gave
    double start;  // for the trace
};

/* Let operations in flight advance, of all groups of the job; cheap when there are none.
 * Called between kernels. `c` is any group. (local) */
void comm_progress(struct comm *c);
/* True when comm_wait() would return at once. Also makes progress. (local) */
bool comm_test(struct comm_request *req);
/* Finish an operation. Gives up the processor while it waits for long. */
MUST_CHECK int comm_wait(struct comm_request *req, struct error *err);

/* -- messages: n bytes to or from one rank of the group ------------------------------ */

/* Between two ranks, messages of one tag arrive in the order they were sent; sender and
 * receiver give the same count. A message to oneself is our bug. */
#define COMM_TAG_LIMIT 32000 // 0 <= tag < limit

void comm_send_bytes_start(struct comm *c, const void *x, int64_t n_bytes, int to,
                           int tag, struct comm_request *req);
void comm_recv_bytes_start(struct comm *c, void *x, int64_t n_bytes, int from, int tag,
                           struct comm_request *req);

/* -- reductions and gathers, in place ------------------------------------------------ */

/* x[i] := sum over ranks of x[i], the same bits on every rank. [collective] */
MUST_CHECK int comm_allreduce_f32(struct comm *c, float *x, int64_t n, struct error *err);

/* The same for elements of any dtype. */
MUST_CHECK int comm_allreduce(struct comm *c, void *x, enum dtype dtype, int64_t n,
                              struct error *err);
void comm_allreduce_start(struct comm *c, void *x, enum dtype dtype, int64_t n,
                          struct comm_request *req);

/* Ranges: rank r owns the elements [bounds[r], bounds[r+1]) of x; bounds has size + 1
 * values that never decrease; ranges may be empty and of any lengths. Where there is a
 * piece_of_rank, of size values, rank r owns the range piece_of_rank[r] instead: a
 * permutation, the same on all ranks; NULL: range r. */

/* The elements this rank owns become their sums over ranks; all others keep what they
 * held. [collective] */
MUST_CHECK int comm_reduce_scatter_f32(struct comm *c, float *x, const int64_t *bounds,
                                       struct error *err);

MUST_CHECK int comm_reduce_scatter(struct comm *c, void *x, enum dtype dtype,
                                   const int64_t *bounds, const int *piece_of_rank,
                                   struct error *err);
void comm_reduce_scatter_start(struct comm *c, void *x, enum dtype dtype,
                               const int64_t *bounds, const int *piece_of_rank,
                               struct comm_request *req);

/* Every rank's elements become what their owner holds. The second and third forms take
 * elements of any size. [collective] */
MUST_CHECK int comm_allgather_f32(struct comm *c, float *x, const int64_t *bounds,
                                  struct error *err);
MUST_CHECK int comm_allgather(struct comm *c, void *x, size_t elem_bytes,
                              const int64_t *bounds, struct error *err);
void comm_allgather_start(struct comm *c, void *x, size_t elem_bytes,
                          const int64_t *bounds, struct comm_request *req);
MUST_CHECK int comm_allgather_pieces(struct comm *c, void *x, size_t elem_bytes,
                                     const int64_t *bounds, const int *piece_of_rank,
                                     struct error *err);
void comm_allgather_pieces_start(struct comm *c, void *x, size_t elem_bytes,
                                 const int64_t *bounds, const int *piece_of_rank,
                                 struct comm_request *req);

/* The same for other types, for small counts and large; sums in rank order as above. The
 * maximum of anything with a NaN is a NaN. [collective] */
MUST_CHECK int comm_max_f32(struct comm *c, float *x, int64_t n, struct error *err);
MUST_CHECK int comm_sum_f64(struct comm *c, double *x, int64_t n, struct error *err);
MUST_CHECK int comm_sum_i64(struct comm *c, int64_t *x, int64_t n, struct error *err);
MUST_CHECK int comm_max_i64(struct comm *c, int64_t *x, int64_t n, struct error *err);
void comm_max_f32_start(struct comm *c, float *x, int64_t n, struct comm_request *req);

/* x of rank `root` to all. [collective] */
MUST_CHECK int comm_bcast_bytes(struct comm *c, void *x, int64_t n_bytes, int root,
                                struct error *err);
/* Rank r's bounds[r+1] - bounds[r] bytes at `mine` go to all + bounds[r] on `root`. `all`
 * is read nowhere else and may be NULL there. [collective] */
MUST_CHECK int comm_gather_bytes(struct comm *c, const void *mine, void *all,
                                 const int64_t *bounds, int root, struct error *err);

/* Cut n elements into `size` ranges that differ by one at most, the longer ones first:
 * what an all-reduce uses itself. Fills size + 1 values. (local) */
void comm_even_bounds(int64_t n, int size, int64_t *bounds);

/* -- agreement ----------------------------------------------------------------------- */

/* Turn any rank's failure into everyone's. `rc` is this rank's own status: 0, or -1 with
 * *err filled. Returns 0 only if every rank passed 0; otherwise every rank returns -1 and
 * *err has the kind and the reason of the lowest failing rank, headed by its rank in the
 * job and its machine. In a group of one, rc and *err come back as they are.
 * [collective] */
MUST_CHECK int comm_agree(struct comm *c, int rc, struct error *err);

/* -- reports ------------------------------------------------------------------------- */

struct comm_volume { // of this rank in one group, since it was opened
    int64_t sent_bytes[COMM_N_KINDS];
    int64_t n_operations[COMM_N_KINDS];
};
struct comm_volume comm_volume(const struct comm *c);

/* Seconds that this process has spent in comm_wait() so far, of all groups. `c` is any
 * group. (local) */
double comm_waited(const struct comm *c);

/* Tensors in the buffers of all groups are `dev`'s from now on; at first they are the
 * processor's. Buffers in the host's own memory may be passed all the same. `c` is any
 * group. (local) */
void comm_set_device(struct comm *c, struct device *dev);

/* From now on record the operations of all groups of this process in `trace`, which is
 * borrowed; NULL: no longer. `c` is any group. (local) */
void comm_set_trace(struct comm *c, struct trace *trace);

#endif
