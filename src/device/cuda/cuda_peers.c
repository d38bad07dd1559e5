/*
 * Messages between GPUs by NCCL: an operation is a group of its sends and receives.
 *
 * The library is opened when it is first asked for, so that the plug-in works without it:
 * messages go through the host then.
 *
 * Three of NCCL's calls wait for other ranks inside the library, where a peer that is gone
 * would not be noticed: opening a communicator, closing it, and the first operation, for
 * which it connects the ranks. They run on a thread of their own, and link.wait() is called
 * until they are through. All ranks make them when all of them are there (comm_peers.c);
 * later operations are enqueued and wait on the GPU alone.
 *
 * An operation that waits for its peers occupies multiprocessors until they come. Those
 * of all groups have room beside each other: one runs on STREAM_COMM at a time, with up
 * to BLOCKS_MANY blocks, and one on each stream of messages, with up to BLOCKS_FEW: those
 * of a pipeline are posted long before they come, and what they occupy computes nothing.
 */
#include "device/cuda/cuda_internal.h"
#include "device/device_peers.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_REMEDY                                                                     \
    "NCCL_DEBUG=WARN tells more, a container needs some shared memory (--shm-size=1g), " \
    "and TREFOIL_PEERS=off sends messages by way of the host"

#define BLOCKS_MANY 16
#define BLOCKS_FEW 2

_Static_assert(sizeof(ncclUniqueId) == DEVICE_PEERS_ID_BYTES, "an id fits its place");

struct message {
    bool is_send;
    void *x;
    size_t bytes;
    int peer;
};

struct gpu_peers {
    ncclComm_t comm; // NULL: none yet, or given up
    int rank, size;
    ncclUniqueId id;
    enum stream_name stream;
    struct device_link link;
    struct message *messages; // of the operation that has begun
    int n_messages, capacity;
    bool is_connected;      // one operation was enqueued
    ncclResult_t result;    // of a call on a thread of its own
    atomic_bool is_through; // that call
    ncclResult_t failure;   // the first one
};

/* -- the library --------------------------------------------------------------------- */

static struct {
    bool is_tried;
    void *library;
    ncclResult_t (*get_version)(int *version);
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    ncclResult_t (*comm_init)(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                              ncclConfig_t *config);
    ncclResult_t (*comm_destroy)(ncclComm_t comm);
    ncclResult_t (*comm_abort)(ncclComm_t comm);
    ncclResult_t (*comm_state)(ncclComm_t comm, ncclResult_t *state);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*send)(const void *x, size_t n, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*recv)(void *x, size_t n, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    const char *(*error_string)(ncclResult_t rc);
} nccl;

/* A function of the library at `*place`. */
static bool find(const char *name, void *place)
{
    void *symbol = dlsym(nccl.library, name);
    memcpy(place, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool has_library(void)
{
    if (nccl.is_tried)
        return nccl.library != NULL;
    nccl.is_tried = true;
    nccl.library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nccl.library)
        return false;
    bool has_all = find("ncclGetVersion", &nccl.get_version) &&
                   find("ncclGetUniqueId", &nccl.get_unique_id) &&
                   find("ncclCommInitRankConfig", &nccl.comm_init) &&
                   find("ncclCommDestroy", &nccl.comm_destroy) &&
                   find("ncclCommAbort", &nccl.comm_abort) &&
                   find("ncclCommGetAsyncError", &nccl.comm_state) &&
                   find("ncclGroupStart", &nccl.group_start) &&
                   find("ncclGroupEnd", &nccl.group_end) &&
                   find("ncclSend", &nccl.send) && find("ncclRecv", &nccl.recv) &&
                   find("ncclGetErrorString", &nccl.error_string);
    if (!has_all) { // too old a one
        dlclose(nccl.library);
        nccl.library = NULL;
    }
    return has_all;
}

bool gpu_has_peers(void)
{
    return has_library();
}

int cuda_peers_version(void)
{
    int version = 0;
    return has_library() && nccl.get_version(&version) == ncclSuccess ? version : 0;
}

/* -- groups -------------------------------------------------------------------------- */

/* A failure is the GPU's, too: what waits for its stream asks that for errors. */
static bool went(struct gpu_peers *g, ncclResult_t rc)
{
    if (rc != ncclSuccess)
        cuda_failed("NCCL (NCCL_DEBUG=WARN tells more)", nccl.error_string(rc));
    if (g->failure == ncclSuccess)
        g->failure = rc;
    return g->failure == ncclSuccess;
}

/* Run `call`, which sets g->result and then g->is_through, on a thread of its own. */
static ncclResult_t run_beside(struct gpu_peers *g, void *(*call)(void *peers))
{
    pthread_t thread;
    atomic_store(&g->is_through, false);
    if (pthread_create(&thread, NULL, call, g))
        return ncclSystemError;
    while (!atomic_load(&g->is_through))
        g->link.wait(g->link.context);
    pthread_join(thread, NULL);
    return g->result;
}

/* Launches that wait until they have run wait for peers, one of which then waits for what
 * this rank would have launched next. */
static int check_launches(struct error *err)
{
    const char *value = getenv("CUDA_LAUNCH_BLOCKING");
    if (!value || strcmp(value, "") == 0 || strcmp(value, "0") == 0)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "CUDA_LAUNCH_BLOCKING is '%s', with which GPUs that send each other "
                     "messages would wait for ever: unset it, or set TREFOIL_PEERS=off, "
                     "which sends them by way of the host",
                     value);
}

int gpu_peers_id(char id[DEVICE_PEERS_ID_BYTES], struct error *err)
{
    ncclUniqueId unique;
    if (check_launches(err))
        return -1;
    ncclResult_t rc = has_library() ? nccl.get_unique_id(&unique) : ncclSystemError;
    if (rc != ncclSuccess)
        return error_set(err, ERROR_RUNTIME, "NCCL cannot start: %s; " PEERS_REMEDY,
                         nccl.library ? nccl.error_string(rc) : "there is no library");
    memcpy(id, &unique, sizeof unique);
    return 0;
}

static void *open_comm(void *peers)
{
    struct gpu_peers *g = peers;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = g->stream == STREAM_COMM ? BLOCKS_MANY : BLOCKS_FEW;
    cuda_use();
    g->result = nccl.comm_init(&g->comm, g->size, g->id, g->rank, &config);
    atomic_store(&g->is_through, true);
    return NULL;
}

int gpu_peers_open(struct gpu_peers **peers, const char id[DEVICE_PEERS_ID_BYTES],
                   int rank, int size, enum stream_name s, const struct device_link *link,
                   struct error *err)
{
    struct gpu_peers *g = calloc(1, sizeof *g);
    *peers = NULL;
    if (!g)
        return error_set(err, ERROR_RUNTIME, "no memory for a group of GPUs");
    g->rank = rank;
    g->size = size;
    g->stream = s;
    g->link = *link;
    memcpy(&g->id, id, sizeof g->id);
    if (!went(g, run_beside(g, open_comm))) {
        error_set(err, ERROR_RUNTIME,
                  "NCCL cannot connect the GPUs of %d ranks: %s; " PEERS_REMEDY, size,
                  nccl.error_string(g->failure));
        gpu_peers_close(g);
        return -1;
    }
    *peers = g;
    return 0;
}

static void *close_comm(void *peers)
{
    struct gpu_peers *g = peers;
    cuda_use();
    g->result = nccl.comm_destroy(g->comm);
    atomic_store(&g->is_through, true);
    return NULL;
}

void gpu_peers_close(struct gpu_peers *g)
{
    if (!g)
        return;
    cuda_use();
    if (g->comm && g->failure == ncclSuccess)
        (void)run_beside(g, close_comm);
    else if (g->comm)
        (void)nccl.comm_abort(g->comm);
    free(g->messages);
    free(g);
}

void gpu_peers_abort(struct gpu_peers *g)
{
    cuda_use();
    if (g->comm)
        (void)nccl.comm_abort(g->comm);
    g->comm = NULL;
    went(g, ncclRemoteError);
}

int gpu_peers_check(struct gpu_peers *g, struct error *err)
{
    ncclResult_t state = ncclSuccess;
    if (g->comm && nccl.comm_state(g->comm, &state) == ncclSuccess &&
        state != ncclInProgress)
        went(g, state);
    if (g->failure == ncclSuccess)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "communication with the other ranks failed: %s; " PEERS_REMEDY,
                     nccl.error_string(g->failure));
}

/* -- messages ------------------------------------------------------------------------ */

void gpu_peers_begin(struct gpu_peers *g)
{
    g->n_messages = 0;
}

/* Collected first: NCCL's groups belong to the thread that begins them. */
static void add_message(struct gpu_peers *g, struct message message)
{
    if (g->n_messages == g->capacity) {
        int capacity = g->capacity ? 2 * g->capacity : 8;
        struct message *more =
            realloc(g->messages, (size_t)capacity * sizeof *g->messages);
        if (!more) {
            went(g, ncclSystemError);
            return;
        }
        g->messages = more;
        g->capacity = capacity;
    }
    g->messages[g->n_messages++] = message;
}

void gpu_peers_send(struct gpu_peers *g, const void *x, size_t bytes, int to)
{
    add_message(g, (struct message){true, (void *)(uintptr_t)x, bytes, to}); // only read
}

void gpu_peers_recv(struct gpu_peers *g, void *x, size_t bytes, int from)
{
    add_message(g, (struct message){false, x, bytes, from});
}

static ncclResult_t enqueue(struct gpu_peers *g)
{
    cudaStream_t s = cuda_stream(g->stream);
    ncclResult_t rc = nccl.group_start();
    if (rc != ncclSuccess)
        return rc;
    for (int i = 0; i < g->n_messages && rc == ncclSuccess; i++) {
        const struct message *m = &g->messages[i];
        rc = m->is_send ? nccl.send(m->x, m->bytes, ncclInt8, m->peer, g->comm, s)
                        : nccl.recv(m->x, m->bytes, ncclInt8, m->peer, g->comm, s);
    }
    ncclResult_t end = nccl.group_end();
    return rc != ncclSuccess ? rc : end;
}

static void *enqueue_first(void *peers)
{
    struct gpu_peers *g = peers;
    cuda_use();
    g->result = enqueue(g);
    atomic_store(&g->is_through, true);
    return NULL;
}

void gpu_peers_end(struct gpu_peers *g)
{
    if (g->failure != ncclSuccess || g->n_messages == 0)
        return;
    cuda_use();
    if (g->is_connected)
        went(g, enqueue(g));
    else
        g->is_connected = went(g, run_beside(g, enqueue_first));
}
