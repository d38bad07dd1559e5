#include "device/device.h"

#include <errno.h>
#include <string.h>

/* `what` names the memory in the error. */
static int device_alloc(struct device *dev, void **memory, size_t bytes, const char *what,
                        struct error *err)
{
    *memory = dev->ops->alloc(dev, bytes);
    if (*memory)
        return 0;
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
