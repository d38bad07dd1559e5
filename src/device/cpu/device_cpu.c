/* The processor as a device: memory is the host's, a stream is program order. */
#include "device/device.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *cpu_alloc(struct device *dev, size_t bytes)
{
    (void)dev;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish: without them only speed differs
    return memory;
}

static void cpu_free(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    munmap(memory, bytes);
}

static void cpu_copy(struct stream *s, void *to, const void *from, size_t bytes,
                     enum copy_kind kind)
{
    (void)s;
    (void)kind;
    memcpy(to, from, bytes);
}

static void cpu_fill(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    (void)s;
    memset(to, byte, bytes);
}

static void cpu_record(struct event *e, struct stream *s)
{
    e->stream = s;
}

static void cpu_wait(struct stream *s, const struct event *e)
{
    (void)s; // what was recorded is done
    (void)e;
}

static void cpu_synchronize(struct stream *s)
{
    (void)s;
}

static size_t cpu_memory_left(struct device *dev)
{
    (void)dev;
    long pages = sysconf(_SC_AVPHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : 0;
}

static const struct device_ops cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .record = cpu_record,
    .wait = cpu_wait,
    .synchronize = cpu_synchronize,
    .memory_left = cpu_memory_left,
};

void device_cpu_over(struct device *dev, const struct kernels *k, enum dtype dtype)
{
    *dev = (struct device){.name = "cpu", .ops = &cpu_ops, .k = k, .dtype = dtype};
    for (int i = 0; i < N_STREAMS; i++)
        dev->streams[i] = (struct stream){.dev = dev, .name = (enum stream_name)i};
}

struct device *device_cpu(enum dtype dtype)
{
    static struct device devices[DTYPE_BF16 + 1];
    struct device *dev = &devices[dtype];
    if (!dev->k)
        device_cpu_over(dev, kernels_best(), dtype);
    return dev;
}
