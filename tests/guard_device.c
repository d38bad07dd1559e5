/*
 * A guarded processor: tensors lie in memory that nobody may touch except while a kernel
 * or a copy of the device runs. Host code that looks into a tensor dies with SIGSEGV and a
 * stack, as it would on a device with memory of its own.
 *
 * Linked in place of device_cpu() by --wrap. Threads: memory is open while any thread is
 * in a kernel or a copy.
 */
#include "device/operands.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct device *__real_device_cpu(enum dtype dtype);
struct device *__wrap_device_cpu(enum dtype dtype);

#define RANGES_MOST 4096

struct range {
    char *first;
    size_t bytes; // 0: free
};

static struct {
    pthread_mutex_t lock;
    int n_inside; // kernels and copies that run
    struct range tensors[RANGES_MOST];
    int n_tensors; // entries in use are below it
    const struct kernels *k;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void protect(const struct range *r, int prot)
{
    if (r->bytes > 0)
        CHECK(mprotect(r->first, r->bytes, prot) == 0, "mprotect of %zu bytes", r->bytes);
}

static struct range pages_of(const void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory;
    uintptr_t begin = first / page * page, end = (first + bytes + page - 1) / page * page;
    return (struct range){(char *)begin, end - begin};
}

static void enter(void)
{
    pthread_mutex_lock(&all.lock);
    if (all.n_inside++ == 0)
        for (int i = 0; i < all.n_tensors; i++)
            protect(&all.tensors[i], PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&all.lock);
}

static void close_all(void)
{
    for (int i = 0; i < all.n_tensors; i++)
        protect(&all.tensors[i], PROT_NONE);
}

/* What the guard is there to see, on demand: so that a test sees it. */
static void touch(void)
{
    if (getenv("TREFOIL_GUARD_TOUCH") && all.n_tensors > 0 && all.tensors[0].bytes > 0)
        *(volatile char *)all.tensors[0].first = 0;
}

static void leave(void)
{
    pthread_mutex_lock(&all.lock);
    if (--all.n_inside == 0)
        close_all();
    pthread_mutex_unlock(&all.lock);
    touch();
}

static void put(struct range *ranges, int *n, struct range r)
{
    int i = 0;
    while (i < *n && ranges[i].bytes > 0)
        i++;
    CHECK(i < RANGES_MOST, "%d ranges", i);
    ranges[i] = r;
    *n = i < *n ? *n : i + 1;
}

static struct range take(struct range *ranges, int n, const void *first, size_t bytes)
{
    for (int i = 0; i < n; i++)
        if (ranges[i].first == first && ranges[i].bytes == bytes) {
            struct range r = ranges[i];
            ranges[i] = (struct range){0};
            return r;
        }
    CHECK(false, "%zu bytes at %p are none of the device's", bytes, first);
}

/* -- memory -------------------------------------------------------------------------- */

static void *guard_alloc(struct device *dev, size_t bytes)
{
    struct range r = pages_of(NULL, bytes);
    (void)dev;
    r.first = mmap(NULL, r.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r.first == MAP_FAILED)
        return NULL;
    pthread_mutex_lock(&all.lock);
    put(all.tensors, &all.n_tensors, r);
    if (all.n_inside > 0)
        protect(&r, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&all.lock);
    return r.first;
}

static void guard_free(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    pthread_mutex_lock(&all.lock);
    struct range r =
        take(all.tensors, all.n_tensors, memory, pages_of(NULL, bytes).bytes);
    pthread_mutex_unlock(&all.lock);
    munmap(r.first, r.bytes);
}

static void device_copy_guarded(struct stream *s, void *to, const void *from,
                                size_t bytes, enum copy_kind kind)
{
    (void)s;
    (void)kind;
    enter();
    memcpy(to, from, bytes);
    leave();
}

static void device_fill_guarded(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    (void)s;
    enter();
    memset(to, byte, bytes);
    leave();
}

static bool guard_is_tensor(struct device *dev, const void *memory)
{
    const char *at = memory;
    bool is_found = false;
    (void)dev;
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < all.n_tensors && !is_found; i++)
        is_found = at >= all.tensors[i].first &&
                   at < all.tensors[i].first + all.tensors[i].bytes;
    pthread_mutex_unlock(&all.lock);
    return is_found;
}

static void *guard_alloc_host(struct device *dev, size_t bytes)
{
    (void)dev;
    return calloc(1, bytes);
}

static void guard_free_host(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    (void)bytes;
    free(memory);
}

static bool guard_happened(const struct event *e)
{
    (void)e; // a stream is program order
    return true;
}

/* -- kernels ------------------------------------------------------------------------- */

static void guard(struct stream *s, enum operation op, const void *args)
{
    enter();
    operation_run(all.k, op, s, args);
    leave();
}

#define GUARDED(name, args)                                                              \
    static void guard_##name(struct stream *s, const struct args *a)                     \
    {                                                                                    \
        guard(s, OP_##name, a);                                                          \
    }
OPERATIONS(GUARDED)

#define ENTRY(name, args) .name = guard_##name,
static const struct kernels guarded = {.name = "guarded", OPERATIONS(ENTRY)};

static void print_stack(int number)
{
    void *frames[64];
    static const char text[] = "a tensor was touched outside of its device:\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number);
}

struct device *__wrap_device_cpu(enum dtype dtype)
{
    static struct device devices[DTYPE_BF16 + 1];
    static struct device_ops ops;
    struct device *dev = &devices[dtype];
    if (dev->k)
        return dev;
    const struct device *plain = __real_device_cpu(dtype);
    all.k = plain->k;
    ops = *plain->ops;
    ops.alloc = guard_alloc;
    ops.free = guard_free;
    ops.copy = device_copy_guarded;
    ops.fill = device_fill_guarded;
    ops.is_tensor = guard_is_tensor;
    ops.alloc_host = guard_alloc_host;
    ops.free_host = guard_free_host;
    ops.happened = guard_happened;
    device_cpu_over(dev, &guarded, dtype);
    dev->name = "guarded";
    dev->ops = &ops;
    signal(SIGSEGV, print_stack);
    return dev;
}
