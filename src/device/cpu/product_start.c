/*
 * The buffers of products, and what else a process needs before its first kernel: a stack
 * that has grown, and one heap where addresses are limited.
 */
#include "base/process.h"
#include "base/thread.h"
#include "device/cpu/product.h"

#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define KERNEL_STACK_BYTES                                                               \
    ((size_t)2 << 20)                  // a quarter more than the deepest kernel needs
#define SMALL_THINGS ((size_t)1 << 20) // what OpenMP notes about itself

/* Mutable, but only by the thread that calls kernels, between them. */
static struct product_room room;
static int room_threads; // that it is for; 0: there is none

/* -- the buffers --------------------------------------------------------------------- */

#define SHARED_BYTES (2 * (size_t)PRODUCT_SLAB_BYTES)
#define OWN_BYTES ((size_t)PRODUCT_OWN_BYTES)

static void *pages_new(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish: without them only speed differs
    return memory;
}

/* Room for n_threads threads, unless there is; or -1. */
static int room_reserve(int n_threads)
{
    if (room_threads >= n_threads)
        return 0;
    char *own = pages_new((size_t)n_threads * OWN_BYTES);
    char *shared = room.slabs[0] ? room.slabs[0] : pages_new(SHARED_BYTES);
    if (!own || !shared) {
        if (own)
            munmap(own, (size_t)n_threads * OWN_BYTES);
        if (shared && !room.slabs[0])
            munmap(shared, SHARED_BYTES);
        return -1;
    }
    if (room.own)
        munmap(room.own, (size_t)room_threads * OWN_BYTES);
    room = (struct product_room){{shared, shared + PRODUCT_SLAB_BYTES}, own};
    room_threads = n_threads;
    return 0;
}

size_t product_bytes(int n_threads)
{
    return SHARED_BYTES + (size_t)n_threads * OWN_BYTES;
}

const struct product_room *product_room(int n_threads)
{
    CHECK(!omp_in_parallel(), "a product inside a parallel region");
    CHECK(room_reserve(n_threads) == 0, "no memory for the buffers of matrix products");
    return &room;
}

/* -- the start ----------------------------------------------------------------------- */

/* That the next thread gets, unless OMP_STACKSIZE is set. */
static size_t stack_bytes(void)
{
    enum { USUAL = 8 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return USUAL;
    return limit.rlim_cur;
}

/* Of the calling thread; the usual size where it is not known. */
static size_t own_stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return stack_bytes();
    if (pthread_attr_getstacksize(&attributes, &bytes))
        bytes = stack_bytes();
    pthread_attr_destroy(&attributes);
    return bytes;
}

static int check_stack(size_t bytes, size_t needed, const char *remedy, struct error *err)
{
    if (bytes >= needed)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "a thread's stack may have %.1f MB here, and kernels need %.1f; %s",
                     (double)bytes / 1e6, (double)needed / 1e6, remedy);
}

/* The stack of the first thread grows as it is used, and a process without memory for
 * that dies; those of other threads are mapped from their start. */
static void __attribute__((noinline)) grow_stack(void)
{
    enum { PAGE = 4096 };
    volatile char stack[KERNEL_STACK_BYTES];
    for (size_t i = sizeof stack; i > 0; i -= i < PAGE ? i : PAGE)
        stack[i - 1] = 0;
}

/* A thread that allocates gets 64 MiB of addresses for a heap of its own: where they are
 * limited, that would be what buffers and stacks need. */
static void share_one_heap(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

/* Whether so many bytes can be had now. */
static bool can_have(size_t n_bytes)
{
    void *memory = pages_new(n_bytes);
    if (memory)
        munmap(memory, n_bytes);
    return memory != NULL;
}

static void touch(char *memory, size_t bytes)
{
    enum { PAGE = 4096 };
    for (size_t at = 0; at < bytes; at += PAGE)
        ((volatile char *)memory)[at] = 0;
}

/* Every thread touches what it will use, and a share of what all use: from now on the
 * process has what product_bytes() says. */
static void touch_part(int thread, int n_threads)
{
    size_t first = SHARED_BYTES / (size_t)n_threads * (size_t)thread;
    size_t end = SHARED_BYTES / (size_t)n_threads * (size_t)(thread + 1);
    touch(room.slabs[0] + first, (thread + 1 < n_threads ? end : SHARED_BYTES) - first);
    touch(room.own + (size_t)thread * OWN_BYTES, OWN_BYTES);
}

/* Threads of OpenMP are started here, too, while a lack of memory still has a sentence. */
int product_start(struct error *err)
{
    size_t least = SIZE_MAX;
    int n = omp_get_max_threads();
    share_one_heap();
    if (check_stack(stack_bytes(), KERNEL_STACK_BYTES + SMALL_THINGS,
                    "raise the limit (ulimit -s 8192)", err))
        return -1;
    size_t needed = product_bytes(n) + (size_t)(n - 1) * stack_bytes();
    if (!can_have(needed + KERNEL_STACK_BYTES + SMALL_THINGS) || room_reserve(n))
        return error_set(err, ERROR_RUNTIME,
                         "not enough memory: %d threads need %.1f MB for the buffers of "
                         "matrix products before anything else; lower num_threads, or "
                         "raise the limit on memory (ulimit -v)",
                         n, (double)needed / 1e6);
    int why = thread_check(n - 1); // OpenMP would end the process
    if (why)
        return process_fork_failed(err, "the threads of kernels", why);
    grow_stack();
#pragma omp parallel num_threads(n) reduction(min : least)
    {
        touch_part(omp_get_thread_num(), omp_get_num_threads());
        least = own_stack_bytes();
    }
    return check_stack(least, KERNEL_STACK_BYTES, "unset OMP_STACKSIZE, or set it to 8M",
                       err);
}
