/*
 * device - memory, streams and kernels.
 *
 * A device has memory, copies, streams, events and a table of kernels, and is opened for
 * the type that a model stores its matrices and activations in. Tensors come from a
 * device: host code passes their addresses on and never looks into them. What runs on a
 * stream is enqueued and may return before it is done; operations of one stream run in
 * order, those of different streams as events say. There is no current device: every
 * kernel and copy names the stream it runs on.
 *
 * `cpu` has the host's memory: a copy is a copy, a stream is program order, an event has
 * happened. `gpu` (in a plug-in, see plugin.h) and `emulated` are gpu/gpu_device.c over
 * two runtimes. Every device has a name before it is opened, so that a run can be planned
 * where there is no GPU.
 *
 * Threads: streams of different names may be used at the same time, and STREAM_COPY by
 * several threads.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/arena.h"
#include "base/device_kind.h"
#include "device/kernels.h"

enum stream_name {
    STREAM_COMPUTE,
    STREAM_COMM, // copies for messages, and collectives
    STREAM_COPY,
    /* Messages between the stages of a pipeline, by direction and neighbour: one that has
     * to wait for its peer holds up its stream (device_peers.h). */
    STREAM_TO_NEXT,
    STREAM_FROM_PREVIOUS,
    STREAM_TO_PREVIOUS,
    STREAM_FROM_NEXT,
    N_STREAMS,
};

struct stream {
    struct device *dev;
    enum stream_name name;
};

struct event { // a point in what was enqueued on a stream; of zeros: nothing to wait for
    struct stream *stream;
    void *impl; // the device's own, made when it is first recorded
};

/* Memory is pinned that device_alloc_host() gave. The source of a copy may change, and
 * its destination be read, once the stream got there; but from host memory that is not
 * pinned a copy to the device has read when it returns, and in such memory a copy to the
 * host is there when the stream was synchronised, not before. */
enum copy_kind { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE };

struct gpu_facts {
    char name[128];      // "NVIDIA A100-SXM4-80GB"
    int major, minor;    // compute capability
    int n_processors;    // multiprocessors
    size_t memory_bytes; // of the GPU
    size_t shared_bytes; // that a block may have at most
    char libraries[256]; // versions: runtime, driver, cuBLASLt, NCCL
};

struct gpu_counters { // since the device was opened
    int64_t launches;
    int64_t synchronisations; // the host waited
    int64_t gemms, messages;
    int64_t bytes_to_device, bytes_to_host, bytes_on_device, bytes_messages;
};

struct device_ops {
    /* Fresh zeroed memory, 64-byte aligned; NULL and errno when there is none. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*free)(struct device *dev, void *memory, size_t bytes);
    void (*copy)(struct stream *s, void *to, const void *from, size_t bytes,
                 enum copy_kind kind);
    void (*fill)(struct stream *s, void *to, uint8_t byte, size_t bytes);
    void (*record)(struct event *e, struct stream *s);
    void (*wait)(struct stream *s, const struct event *e);
    void (*synchronize)(struct stream *s); // the host waits
    size_t (*memory_left)(struct device *dev);

    /* What the processor need not have: NULL there. */
    void *(*alloc_host)(struct device *dev, size_t bytes); // as alloc
    void (*free_host)(struct device *dev, void *memory, size_t bytes);
    void (*event_free)(struct device *dev, void *impl);
    bool (*happened)(const struct event *e);
    /* Whether it is the device's memory; NULL: the host may touch whatever there is. */
    bool (*is_tensor)(struct device *dev, const void *memory);
    /* While the host waits for a stream it calls fn(context) again and again. */
    void (*on_wait)(struct device *dev, void (*fn)(void *context), void *context);
    size_t (*memory_taken)(struct device *dev);
    int (*check)(struct device *dev, struct error *err);
    void (*counters)(struct device *dev, struct gpu_counters *c);
    void (*close)(struct device *dev);
};

struct device_peers;

struct device {
    const char *name;
    enum device_kind kind;
    const struct device_ops *ops; // NULL: it is not open
    const struct kernels *k;
    enum dtype dtype; // of a model's matrices and activations
    struct stream streams[N_STREAMS];
    const struct gpu_facts *facts;    // NULL: it is the processor
    const struct device_peers *peers; // messages between devices; NULL: by the host
    int n_opened;
};

/* The processor, opened for a type; it needs no closing. */
struct device *device_cpu(enum dtype dtype);
/* A CPU device over one table of kernels_list(). */
void device_cpu_over(struct device *dev, const struct kernels *k, enum dtype dtype);

/* -- opening ------------------------------------------------------------------------- */

/* The device of a kind for a type, open or not; one for all callers. */
struct device *device_of(enum device_kind kind, enum dtype dtype);

struct device_request {
    int local_rank, n_local; // of this process among those of its machine
    bool allow_tf32;
};

/* Refuse a device that n_local processes of this machine cannot have (0: their number is
 * not known), before any of them is started. Takes none. (local) */
MUST_CHECK int device_available(enum device_kind kind, enum dtype dtype, int n_local,
                                struct error *err);

/* Take the device for this process; closed as often as it was opened. Devices of one kind
 * for several types may be open at the same time, and share its streams. */
MUST_CHECK int device_open(struct device *dev, const struct device_request *r,
                           struct error *err);
void device_close(struct device *dev);

/* What it is, in a few words: "NVIDIA A100-SXM4-80GB, 85.0 GB, ...". */
#define DEVICE_WORDS_BYTES 512
void device_words(const struct device *dev, char words[DEVICE_WORDS_BYTES]);

/* Memory of an open device that is no tensor: workspace of GEMMs, rings. And what it
 * takes of the host's. Known without opening it. */
#define GPU_WORKSPACE_BYTES ((size_t)64 << 20)
size_t device_own_bytes(enum device_kind kind);
size_t device_host_bytes(enum device_kind kind);

/* Bytes of an array of the host that a kernel can be given. */
#define DEVICE_ARRAY_MOST ((size_t)8 << 20)

/* Whether tensors lie in memory that the host has. */
static inline bool device_is_host(const struct device *dev)
{
    return dev->kind == DEVICE_CPU;
}

/* -- memory -------------------------------------------------------------------------- */

static inline struct stream *device_stream(struct device *dev, enum stream_name name)
{
    return &dev->streams[name];
}

static inline void device_free(struct device *dev, void *memory, size_t bytes)
{
    dev->ops->free(dev, memory, bytes);
}

/* The same for an arena; arena_open() for the host's memory. Tables go to `tables`. */
MUST_CHECK int device_arena_open(struct device *dev, struct arena *ar, size_t bytes,
                                 struct arena *tables, const char *what,
                                 struct error *err);
void device_arena_close(struct device *dev, struct arena *ar);

/* Host memory that the device copies from and to without waiting. */
MUST_CHECK int device_host_arena_open(struct device *dev, struct arena *ar, size_t bytes,
                                      const char *what, struct error *err);
void device_host_arena_close(struct device *dev, struct arena *ar);

/* Elements of scratch that attention's backward needs; see kernels.h. */
static inline int64_t device_attention_scratch(const struct device *dev, int64_t S,
                                               int64_t A, int64_t A_kv, int64_t D)
{
    return device_is_host(dev) ? attention_scratch(dev->dtype, S, A, A_kv, D) : 0;
}

/* -- streams ------------------------------------------------------------------------- */

static inline void device_copy(struct stream *s, void *to, const void *from, size_t bytes,
                               enum copy_kind kind)
{
    s->dev->ops->copy(s, to, from, bytes, kind);
}

static inline void device_fill(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    s->dev->ops->fill(s, to, byte, bytes);
}

static inline void device_record(struct event *e, struct stream *s)
{
    s->dev->ops->record(e, s);
}

static inline void device_wait(struct stream *s, const struct event *e)
{
    s->dev->ops->wait(s, e);
}

/* Whether the stream has got there; it does, where this is asked again and again. */
static inline bool device_happened(const struct event *e)
{
    return e->stream->dev->ops->happened(e);
}

/* An event of zeros again. */
void device_event_close(struct event *e);

static inline void device_synchronize(struct stream *s)
{
    s->dev->ops->synchronize(s);
}

/* What `later` is given from now on runs after all that `earlier` has been given. */
void device_order(struct stream *later, struct stream *earlier, struct event *e);

static inline size_t device_memory_left(struct device *dev)
{
    return dev->ops->memory_left(dev);
}

/* Of a device with memory of its own, for this process; 0: it has none. */
size_t device_memory_taken(struct device *dev);

/* The first error of what ran on the device since it was opened, as a sentence; asked
 * after a synchronisation. */
MUST_CHECK int device_check(struct device *dev, struct error *err);

/* Zeros for the processor. */
struct gpu_counters device_counters(struct device *dev);

#endif
