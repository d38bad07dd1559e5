/*
 * Messages between emulated GPUs, over the hosts' link.
 *
 * An operation waits on its stream as NCCL's does: a send is over when its receive has
 * begun, so an order of operations that would never end on GPUs does not end here either.
 * That is told before it is waited for: with each operation a rank notes to each peer
 * what it is going to do with it, and both compare. Operations that two ranks have with
 * each other on STREAM_COMM have one order over all groups; a group on a stream of its
 * own has its own.
 */
#include "device/device_peers.h"
#include "device/emulated/emulated_options.h"
#include "device/emulated/emulated_streams.h"
#include "device/gpu/gpu_runtime.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct gpu_peers {
    struct gpu_peers *next;
    uint64_t key; // of its id: the same at all ranks
    int rank, size;
    enum stream_name stream;
    struct device_link link;
    pthread_t thread;             // that opened it: the link is for it alone
    struct peer_operation *begun; // between begin and end
};

/* -- the order of operations --------------------------------------------------------- */

struct note {       // what a rank does with a peer in one operation
    uint64_t order; // which order it belongs to: 0, or the key of a group
    uint64_t group;
    int64_t n; // of that order, from 0
    int64_t sent_bytes, received_bytes;
    char name[16]; // of the group
};

struct note_queue {
    struct note *notes;
    int64_t n, first, capacity;
};

struct pair { // this rank and a peer, in one order
    struct pair *next;
    uint64_t order;
    int peer; // in the job
    int64_t n_mine;
    struct note_queue mine, theirs; // not compared yet
};

static struct {
    struct gpu_peers *groups;
    struct pair *pairs;
    uint64_t n_ids;
} all; // one GPU a process

static void push(struct note_queue *q, const struct note *note)
{
    if (q->n == q->capacity) {
        int64_t n = q->n - q->first;
        if (n > 0)
            memmove(q->notes, q->notes + q->first, (size_t)n * sizeof *q->notes);
        q->n = n;
        q->first = 0;
        if (n * 2 > q->capacity || q->capacity == 0) {
            q->capacity = q->capacity ? q->capacity * 2 : 64;
            q->notes = realloc(q->notes, (size_t)q->capacity * sizeof *q->notes);
            CHECK(q->notes, "no memory for %lld notes", (long long)q->capacity);
        }
    }
    q->notes[q->n++] = *note;
}

static struct pair *pair_of(int peer, uint64_t order)
{
    for (struct pair *p = all.pairs; p; p = p->next)
        if (p->peer == peer && p->order == order)
            return p;
    struct pair *p = calloc(1, sizeof *p);
    CHECK(p, "no memory for %zu bytes", sizeof *p);
    *p = (struct pair){.next = all.pairs, .order = order, .peer = peer};
    all.pairs = p;
    return p;
}

/* Compare what both have said by now. */
static void compare(const struct device_link *link, int me, struct pair *p)
{
    while (p->mine.first < p->mine.n && p->theirs.first < p->theirs.n) {
        const struct note *a = &p->mine.notes[p->mine.first++];
        const struct note *b = &p->theirs.notes[p->theirs.first++];
        struct error err;
        if (a->group == b->group && a->sent_bytes == b->received_bytes &&
            a->received_bytes == b->sent_bytes)
            continue;
        error_set(&err, ERROR_RUNTIME,
                  "the GPUs of ranks %d and %d would wait for each other for ever: "
                  "message %" PRId64 " between them is, for rank %d, one of group '%s' "
                  "that sends %" PRId64 " bytes and receives %" PRId64
                  ", and for rank %d one of group '%s' that sends %" PRId64
                  " bytes and receives %" PRId64,
                  me, p->peer, a->n, me, a->name, a->sent_bytes, a->received_bytes,
                  p->peer, b->name, b->sent_bytes, b->received_bytes);
        link->fail(link->context, &err);
    }
}

static void hear_notes(const struct gpu_peers *g)
{
    struct note note;
    int from;
    while (g->link.hear(g->link.context, &note, sizeof note, &from)) {
        struct pair *p = pair_of(from, note.order);
        push(&p->theirs, &note);
        compare(&g->link, g->link.world_ranks[g->rank], p);
    }
}

/* -- operations ---------------------------------------------------------------------- */

struct message {
    bool is_send;
    char *x; // on the device
    size_t bytes;
    int peer;
    char *copy;   // MPI may look at this while other operations run
    void *moving; // in the link; NULL: over
};

struct peer_operation {
    struct gpu_peers *group;
    bool has_begun;
    int n, capacity;
    struct message *messages;
};

struct enqueued { // what the stream keeps
    struct peer_operation *op;
};

static void begin_messages(struct peer_operation *op)
{
    const struct device_link *link = &op->group->link;
    for (int i = 0; i < op->n; i++) {
        struct message *m = &op->messages[i];
        m->copy = malloc(m->bytes);
        CHECK(m->copy, "no memory for a message of %zu bytes", m->bytes);
        if (m->is_send)
            memcpy(m->copy, m->x, m->bytes);
        m->moving = m->is_send ? link->send(link->context, m->copy, m->bytes, m->peer)
                               : link->recv(link->context, m->copy, m->bytes, m->peer);
    }
    op->has_begun = true;
}

/* True when the operation is over. */
static bool run_operation(void *args)
{
    struct peer_operation *op = ((struct enqueued *)args)->op;
    const struct device_link *link = &op->group->link;
    bool is_over = true;
    if (!pthread_equal(pthread_self(), op->group->thread))
        return false; // the link is that thread's
    hear_notes(op->group);
    if (!op->has_begun)
        begin_messages(op);
    for (int i = 0; i < op->n; i++) {
        struct message *m = &op->messages[i];
        if (m->moving && link->is_over(link->context, m->moving)) {
            m->moving = NULL;
            if (!m->is_send)
                memcpy(m->x, m->copy, m->bytes);
            emulated_count_message(m->bytes);
            free(m->copy);
        }
        is_over = is_over && !m->moving;
    }
    if (is_over) {
        free(op->messages);
        free(op);
    }
    return is_over;
}

void gpu_peers_begin(struct gpu_peers *g)
{
    struct peer_operation *op = calloc(1, sizeof *op);
    CHECK(op && !g->begun, "an operation of group '%s' begins twice", g->link.name);
    op->group = g;
    g->begun = op;
}

static void add_message(struct gpu_peers *g, struct message message)
{
    struct peer_operation *op = g->begun;
    if (op->n == op->capacity) {
        op->capacity = op->capacity ? 2 * op->capacity : 8;
        op->messages = realloc(op->messages, (size_t)op->capacity * sizeof *op->messages);
        CHECK(op->messages, "no memory for %d messages", op->capacity);
    }
    op->messages[op->n++] = message;
}

void gpu_peers_send(struct gpu_peers *g, const void *x, size_t bytes, int to)
{
    add_message(g, (struct message){.is_send = true,
                                    .x = (char *)(uintptr_t)x, // only read
                                    .bytes = bytes,
                                    .peer = to});
}

void gpu_peers_recv(struct gpu_peers *g, void *x, size_t bytes, int from)
{
    add_message(g, (struct message){.x = x, .bytes = bytes, .peer = from});
}

/* What this rank does with `peer` in an operation, told to it and kept. */
static void note_operation(struct gpu_peers *g, const struct peer_operation *op, int peer)
{
    struct note note = {.order = g->stream == STREAM_COMM ? 0 : g->key, .group = g->key};
    bool has_any = false;
    for (int i = 0; i < op->n; i++) {
        const struct message *m = &op->messages[i];
        if (m->peer != peer)
            continue;
        has_any = true;
        if (m->is_send)
            note.sent_bytes += (int64_t)m->bytes;
        else
            note.received_bytes += (int64_t)m->bytes;
    }
    if (!has_any)
        return;
    struct pair *p = pair_of(g->link.world_ranks[peer], note.order);
    note.n = p->n_mine++;
    snprintf(note.name, sizeof note.name, "%s", g->link.name);
    push(&p->mine, &note);
    g->link.tell(g->link.context, &note, sizeof note, p->peer);
    compare(&g->link, g->link.world_ranks[g->rank], p);
}

void gpu_peers_end(struct gpu_peers *g)
{
    struct peer_operation *op = g->begun;
    g->begun = NULL;
    for (int peer = 0; peer < g->size; peer++)
        note_operation(g, op, peer);
    hear_notes(g);
    if (op->n == 0) {
        free(op);
        return;
    }
    emulated_enqueue(g->stream, run_operation, &(struct enqueued){op},
                     sizeof(struct enqueued));
}

/* -- groups -------------------------------------------------------------------------- */

bool gpu_has_peers(void)
{
    return true;
}

/* A number that no other group of the job gets: of this process and of the time. */
int gpu_peers_id(char id[DEVICE_PEERS_ID_BYTES], struct error *err)
{
    struct timespec now;
    (void)err;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t words[] = {(uint64_t)getpid(), (uint64_t)now.tv_sec, (uint64_t)now.tv_nsec,
                        ++all.n_ids};
    memset(id, 0, DEVICE_PEERS_ID_BYTES);
    memcpy(id, words, sizeof words);
    return 0;
}

static uint64_t key_of(const char id[DEVICE_PEERS_ID_BYTES])
{
    uint64_t key = 0xCBF29CE484222325u; // FNV-1a
    for (int i = 0; i < DEVICE_PEERS_ID_BYTES; i++)
        key = (key ^ (uint8_t)id[i]) * 0x100000001B3u;
    return key | 1; // 0 is the order of STREAM_COMM
}

int gpu_peers_open(struct gpu_peers **peers, const char id[DEVICE_PEERS_ID_BYTES],
                   int rank, int size, enum stream_name s, const struct device_link *link,
                   struct error *err)
{
    struct gpu_peers *g = calloc(1, sizeof *g);
    *peers = g;
    if (!g)
        return error_set(err, ERROR_RUNTIME, "no memory for a group of GPUs");
    *g = (struct gpu_peers){.next = all.groups,
                            .key = key_of(id),
                            .rank = rank,
                            .size = size,
                            .stream = s,
                            .link = *link,
                            .thread = pthread_self()};
    all.groups = g;
    return 0;
}

static void forget_pairs(void)
{
    while (all.pairs) {
        struct pair *p = all.pairs;
        all.pairs = p->next;
        free(p->mine.notes);
        free(p->theirs.notes);
        free(p);
    }
}

/* Notes come a little later than what they announce; the last ones are waited for. */
static void hear_the_rest(const struct gpu_peers *g)
{
    for (struct pair *p = all.pairs; p; p = p->next)
        while (p->mine.first < p->mine.n) {
            hear_notes(g);
            g->link.wait(g->link.context);
        }
}

void gpu_peers_close(struct gpu_peers *g)
{
    if (!g)
        return;
    hear_the_rest(g);
    struct gpu_peers **link = &all.groups;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    if (!all.groups)
        forget_pairs();
    free(g);
}

int gpu_peers_check(struct gpu_peers *g, struct error *err)
{
    (void)g;
    (void)err;
    return 0;
}

/* The process ends: there is nothing to give up. */
void gpu_peers_abort(struct gpu_peers *g)
{
    (void)g;
}
