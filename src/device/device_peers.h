/*
 * device_peers - messages between the devices of several processes, that no host takes
 * part in (NCCL; the emulated device does the same over MPI).
 *
 * A group of peers is opened by all its ranks and belongs to one stream at each of them:
 * what it is given is enqueued there. An operation, all that is given between begin and
 * end, waits on its stream until every rank that it sends to or receives from has come to
 * the operation that matches it, and all that was enqueued on the stream behind it waits,
 * too. So of any two ranks:
 *   - the operations that they have with each other in one group come in the same order at
 *     both, and what one sends the other receives: as many bytes;
 *   - groups that share a stream at both have one order between them.
 * Within an operation no message waits for another.
 */
#ifndef DEVICE_DEVICE_PEERS_H
#define DEVICE_DEVICE_PEERS_H

#include "device/device.h"

#define DEVICE_PEERS_ID_BYTES 128 // the name of a group, made by one of its ranks

struct gpu_peers; // a group

/* How the hosts of a group's ranks reach each other. Ranks are the group's, but where
 * those of the job are named. */
struct device_link {
    void *context;
    const char *name;       // of the group, for sentences
    const int *world_ranks; // (size) of its ranks in the job

    /* A message that is over when is_over() says so, once: a send not before its
     * receive began. */
    void *(*send)(void *context, const void *x, size_t bytes, int to);
    void *(*recv)(void *context, void *x, size_t bytes, int from);
    bool (*is_over)(void *context, void *message);

    /* Notes between any two ranks of the job, which wait for nobody. hear() is false when
     * there is none. */
    void (*tell)(void *context, const void *note, size_t bytes, int to_world_rank);
    bool (*hear)(void *context, void *note, size_t bytes, int *from_world_rank);

    void (*wait)(void *context); // called again and again while this host waits
    void (*fail)(void *context, const struct error *err) __attribute__((noreturn));
};

struct device_peers {
    int (*id)(char id[DEVICE_PEERS_ID_BYTES], struct error *err);
    /* [collective]; `link` is copied. */
    int (*open)(struct gpu_peers **peers, const char id[DEVICE_PEERS_ID_BYTES], int rank,
                int size, enum stream_name s, const struct device_link *link,
                struct error *err);
    void (*close)(struct gpu_peers *peers); // NULL is fine
    void (*begin)(struct gpu_peers *peers);
    void (*send)(struct gpu_peers *peers, const void *x, size_t bytes, int to);
    void (*recv)(struct gpu_peers *peers, void *x, size_t bytes, int from);
    void (*end)(struct gpu_peers *peers);
    int (*check)(struct gpu_peers *peers, struct error *err); // whether it still works
    void (*abort)(struct gpu_peers *peers); // give up what is under way: a peer is gone
};

#endif
