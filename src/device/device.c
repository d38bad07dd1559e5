#include "device/device.h"

#include <errno.h>
#include <string.h>

int device_alloc(struct device *dev, void **memory, size_t bytes, const char *what,
                 struct error *err)
{
    *memory = dev->ops->alloc(dev, bytes);
    if (*memory)
        return 0;
    return error_set(err, ERROR_RUNTIME, "cannot get %.1f MB of memory for %s: %s",
                     (double)bytes / 1e6, what, strerror(errno));
}

void device_free(struct device *dev, void *memory, size_t bytes)
{
    dev->ops->free(dev, memory, bytes);
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

void device_copy(struct stream *s, void *to, const void *from, size_t bytes,
                 enum copy_kind kind)
{
    s->dev->ops->copy(s, to, from, bytes, kind);
}

void device_fill(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    s->dev->ops->fill(s, to, byte, bytes);
}

void device_record(struct event *e, struct stream *s)
{
    s->dev->ops->record(e, s);
}

void device_wait(struct stream *s, const struct event *e)
{
    s->dev->ops->wait(s, e);
}

void device_synchronize(struct stream *s)
{
    s->dev->ops->synchronize(s);
}

size_t device_memory_left(struct device *dev)
{
    return dev->ops->memory_left(dev);
}

void device_open_to_mpi(struct device *dev, const void *memory, size_t bytes)
{
    if (dev->ops->open_to_mpi)
        dev->ops->open_to_mpi(dev, memory, bytes);
}

void device_close_to_mpi(struct device *dev, const void *memory, size_t bytes)
{
    if (dev->ops->close_to_mpi)
        dev->ops->close_to_mpi(dev, memory, bytes);
}
