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
 * `cpu`, the one implementation so far, has the host's memory: a copy is a copy, a stream
 * is program order, an event has happened.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/arena.h"
#include "device/kernels.h"

enum stream_name { STREAM_COMPUTE, STREAM_COMM, STREAM_COPY, N_STREAMS };

struct stream {
    struct device *dev;
    enum stream_name name;
};

struct event { // a point in what was enqueued on a stream
    struct stream *stream;
};

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
    /* The source may change, and the destination be read, once the stream got there. */
    void (*copy)(struct stream *s, void *to, const void *from, size_t bytes,
                 enum copy_kind kind);
    void (*fill)(struct stream *s, void *to, uint8_t byte, size_t bytes);
    void (*record)(struct event *e, struct stream *s);
    void (*wait)(struct stream *s, const struct event *e);
    void (*synchronize)(struct stream *s); // the host waits
    size_t (*memory_left)(struct device *dev);
    /* See device_open_to_mpi(); NULL: the host may read and write at any time. */
    void (*open_to_mpi)(struct device *dev, const void *memory, size_t bytes);
    void (*close_to_mpi)(struct device *dev, const void *memory, size_t bytes);
};

struct device {
    const char *name;
    const struct device_ops *ops;
    const struct kernels *k;
    enum dtype dtype; // of a model's matrices and activations
    struct stream streams[N_STREAMS];
};

/* The processor, opened for a type; it needs no closing. */
struct device *device_cpu(enum dtype dtype);
/* A CPU device over one table of kernels_list(). */
void device_cpu_over(struct device *dev, const struct kernels *k, enum dtype dtype);

/* Memory of an open GPU that is no tensor: workspace of GEMMs. */
#define GPU_WORKSPACE_BYTES ((size_t)64 << 20)

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

static inline void device_synchronize(struct stream *s)
{
    s->dev->ops->synchronize(s);
}

static inline size_t device_memory_left(struct device *dev)
{
    return dev->ops->memory_left(dev);
}

/* MPI reads or writes this memory until it is closed again; the memory may be another's
 * than the device's. Ranges may overlap; each is closed as it was opened. */
void device_open_to_mpi(struct device *dev, const void *memory, size_t bytes);
void device_close_to_mpi(struct device *dev, const void *memory, size_t bytes);

#endif
