#include "device/device.h"

#include "device/gpu/gpu_device.h"
#include "device/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -- opening ------------------------------------------------------------------------- */

/* Mutable, but set by device_open() before there is a model. */
static struct device gpus[N_DEVICE_KINDS][DTYPE_BF16 + 1];

struct device *device_of(enum device_kind kind, enum dtype dtype)
{
    if (kind == DEVICE_CPU)
        return device_cpu(dtype);
    struct device *dev = &gpus[kind][dtype];
    if (!dev->name) {
        *dev =
            (struct device){.name = device_kind_name(kind), .kind = kind, .dtype = dtype};
        for (int i = 0; i < N_STREAMS; i++)
            dev->streams[i] = (struct stream){.dev = dev, .name = (enum stream_name)i};
    }
    return dev;
}

int device_available(enum device_kind kind, enum dtype dtype, int n_local,
                     struct error *err)
{
    return kind == DEVICE_GPU ? plugin_check_gpu(n_local, dtype, err) : 0;
}

int device_open(struct device *dev, const struct device_request *r, struct error *err)
{
    if (device_is_host(dev))
        return 0;
    if (dev->n_opened == 0 && (dev->kind == DEVICE_GPU ? plugin_open_gpu(dev, r, err)
                                                       : gpu_device_open(dev, r, err)))
        return -1;
    dev->n_opened++;
    return 0;
}

void device_close(struct device *dev)
{
    if (device_is_host(dev) || dev->n_opened == 0 || --dev->n_opened > 0)
        return;
    dev->ops->close(dev);
    dev->ops = NULL;
    dev->k = NULL;
    dev->facts = NULL;
    dev->peers = NULL;
}

void device_words(const struct device *dev, char words[DEVICE_WORDS_BYTES])
{
    const struct gpu_facts *f = dev->facts;
    if (!f)
        snprintf(words, DEVICE_WORDS_BYTES, "%s", dev->name);
    else
        snprintf(words, DEVICE_WORDS_BYTES,
                 "%s, capability %d.%d, %d multiprocessors, %.1f GB; %s", f->name,
                 f->major, f->minor, f->n_processors, (double)f->memory_bytes / 1e9,
                 f->libraries);
}

size_t device_own_bytes(enum device_kind kind)
{
    return kind == DEVICE_CPU ? 0 : GPU_WORKSPACE_BYTES + gpu_rings_bytes();
}

size_t device_host_bytes(enum device_kind kind)
{
    return kind == DEVICE_CPU ? 0 : gpu_rings_host_bytes();
}

/* -- memory -------------------------------------------------------------------------- */

/* `what` names the memory in the error. */
static int device_alloc(struct device *dev, void **memory, size_t bytes, const char *what,
                        struct error *err)
{
    *memory = dev->ops->alloc(dev, bytes);
    if (*memory)
        return 0;
    if (!device_is_host(dev))
        return error_set(
            err, ERROR_RUNTIME,
            "cannot get %.1f MB of the GPU's memory for %s: %.1f MB are left "
            "there; lower batch_size.micro_batch_size, or set use_recompute "
            "to True",
            (double)bytes / 1e6, what, (double)device_memory_left(dev) / 1e6);
    return error_set(err, ERROR_RUNTIME, "cannot get %.1f MB of memory for %s: %s",
                     (double)bytes / 1e6, what, strerror(errno));
}

int device_arena_open(struct device *dev, struct arena *ar, size_t bytes,
                      struct arena *tables, const char *what, struct error *err)
{
    void *base = NULL;
    *ar = arena_over(NULL, 0);
    if (bytes > 0 && device_alloc(dev, &base, bytes, what, err))
        return -1;
    *ar = arena_over(base, bytes);
    ar->tables = tables;
    return 0;
}

void device_arena_close(struct device *dev, struct arena *ar)
{
    if (ar->base)
        device_free(dev, ar->base, ar->capacity_bytes);
    *ar = arena_over(NULL, 0);
}

int device_host_arena_open(struct device *dev, struct arena *ar, size_t bytes,
                           const char *what, struct error *err)
{
    if (!dev->ops->alloc_host)
        return arena_open(ar, bytes, what, err);
    void *base = bytes > 0 ? dev->ops->alloc_host(dev, bytes) : NULL;
    *ar = arena_over(base, bytes);
    if (base || bytes == 0)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "cannot get %.1f MB of pinned memory for %s: free some of the "
                     "machine's memory, or raise the limit of locked memory (ulimit -l)",
                     (double)bytes / 1e6, what);
}

void device_host_arena_close(struct device *dev, struct arena *ar)
{
    if (!dev || !dev->ops || !dev->ops->free_host) {
        arena_close(ar);
        return;
    }
    if (ar->base)
        dev->ops->free_host(dev, ar->base, ar->capacity_bytes);
    *ar = arena_over(NULL, 0);
}

/* -- streams ------------------------------------------------------------------------- */

void device_event_close(struct event *e)
{
    if (e->impl && e->stream->dev->ops)
        e->stream->dev->ops->event_free(e->stream->dev, e->impl);
    *e = (struct event){0};
}

void device_order(struct stream *later, struct stream *earlier, struct event *e)
{
    device_record(e, earlier);
    device_wait(later, e);
}

size_t device_memory_taken(struct device *dev)
{
    return dev->ops && dev->ops->memory_taken ? dev->ops->memory_taken(dev) : 0;
}

int device_check(struct device *dev, struct error *err)
{
    return dev->ops->check ? dev->ops->check(dev, err) : 0;
}

struct gpu_counters device_counters(struct device *dev)
{
    struct gpu_counters c = {0};
    if (dev->ops && dev->ops->counters)
        dev->ops->counters(dev, &c);
    return c;
}
