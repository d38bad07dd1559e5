/*
 * Allocations are few (arenas, staging buffers; in tests every tensor): a table that is
 * searched from its end. Opening and closing change the rights of all of them, which is
 * why streams (emulated_streams.c) open once for all that they run.
 */
#include "device/emulated/emulated_memory.h"

#include "device/emulated/emulated_block.h"
#include "device/emulated/emulated_streams.h"
#include "device/gpu/gpu_runtime.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_ALIGNMENT 256

struct mapping {
    struct emulated_range r;
    char *map; // r and the closed pages before and behind it
    size_t map_bytes;
};

struct mappings {
    struct mapping *at;
    int n, room;
};

static struct {
    pthread_mutex_t lock;
    struct mappings device, pinned;
    int n_open; // that opened device memory
    size_t used, limit;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void emulated_memory_limit(size_t bytes)
{
    all.limit = bytes;
}

/* -- the tables ---------------------------------------------------------------------- */

/* Fresh memory between two closed pages, its end where the second begins, but for what
 * alignment takes. */
static bool map_new(struct mapping *m, size_t bytes, int prot)
{
    size_t page = page_bytes();
    size_t room = (bytes + DEVICE_ALIGNMENT - 1) / DEVICE_ALIGNMENT * DEVICE_ALIGNMENT;
    size_t inside = (room + page - 1) / page * page;
    char *map = mmap(NULL, inside + 2 * page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    if (prot != PROT_NONE && mprotect(map + page, inside, prot)) {
        munmap(map, inside + 2 * page);
        return false;
    }
    m->map = map;
    m->map_bytes = inside + 2 * page;
    m->r = (struct emulated_range){map + page + inside - room, bytes};
    return true;
}

static void put(struct mappings *t, const struct mapping *m)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->at = realloc(t->at, (size_t)t->room * sizeof *t->at);
        CHECK(t->at, "no memory for a table of %d allocations", t->room);
    }
    t->at[t->n++] = *m;
}

static struct mapping take(struct mappings *t, const void *memory, size_t bytes)
{
    for (int i = t->n - 1; i >= 0; i--)
        if (t->at[i].r.first == memory) {
            struct mapping m = t->at[i];
            CHECK(m.r.bytes == bytes, "%zu bytes are freed of an allocation of %zu",
                  bytes, m.r.bytes);
            t->at[i] = t->at[--t->n];
            return m;
        }
    CHECK(false, "%zu bytes at %p are freed, which were not allocated", bytes, memory);
}

static struct emulated_range find(const struct mappings *t, const void *memory)
{
    const char *at = memory;
    for (int i = t->n - 1; i >= 0; i--)
        if (at >= t->at[i].r.first && at < t->at[i].r.first + t->at[i].r.bytes)
            return t->at[i].r;
    return (struct emulated_range){0};
}

static struct emulated_range find_locked(const struct mappings *t, const void *memory)
{
    pthread_mutex_lock(&all.lock);
    struct emulated_range r = find(t, memory);
    pthread_mutex_unlock(&all.lock);
    return r;
}

struct emulated_range emulated_memory_device_at(const void *memory)
{
    return find_locked(&all.device, memory);
}

struct emulated_range emulated_memory_pinned_at(const void *memory)
{
    return find_locked(&all.pinned, memory);
}

/* -- opening and closing ------------------------------------------------------------- */

static void protect(const struct mapping *m, int prot)
{
    size_t page = page_bytes(), inside = m->map_bytes - 2 * page;
    CHECK(mprotect(m->map + page, inside, prot) == 0, "mprotect of %zu bytes", inside);
}

void emulated_memory_open(void)
{
    pthread_mutex_lock(&all.lock);
    if (all.n_open++ == 0)
        for (int i = 0; i < all.device.n; i++)
            protect(&all.device.at[i], PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&all.lock);
}

void emulated_memory_close(void)
{
    pthread_mutex_lock(&all.lock);
    if (--all.n_open == 0)
        for (int i = 0; i < all.device.n; i++)
            protect(&all.device.at[i], PROT_NONE);
    pthread_mutex_unlock(&all.lock);
}

/* -- what gpu_runtime.h has of it ---------------------------------------------------- */

void *gpu_alloc(size_t bytes)
{
    struct mapping m;
    void *memory = NULL;
    pthread_mutex_lock(&all.lock);
    int prot = all.n_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (bytes > 0 && bytes <= all.limit - all.used && map_new(&m, bytes, prot)) {
        put(&all.device, &m);
        all.used += bytes;
        memory = m.r.first;
    }
    pthread_mutex_unlock(&all.lock);
    return memory;
}

/* As CUDA does, it waits until nothing can use the memory any more. */
void gpu_free(void *memory, size_t bytes)
{
    if (!memory)
        return;
    streams_drain();
    pthread_mutex_lock(&all.lock);
    struct mapping m = take(&all.device, memory, bytes);
    all.used -= bytes;
    pthread_mutex_unlock(&all.lock);
    munmap(m.map, m.map_bytes);
}

void *gpu_alloc_host(size_t bytes)
{
    struct mapping m;
    void *memory = NULL;
    pthread_mutex_lock(&all.lock);
    if (bytes > 0 && map_new(&m, bytes, PROT_READ | PROT_WRITE)) {
        put(&all.pinned, &m);
        memory = m.r.first;
    }
    pthread_mutex_unlock(&all.lock);
    return memory;
}

void gpu_free_host(void *memory, size_t bytes)
{
    if (!memory)
        return;
    streams_drain();
    pthread_mutex_lock(&all.lock);
    struct mapping m = take(&all.pinned, memory, bytes);
    pthread_mutex_unlock(&all.lock);
    munmap(m.map, m.map_bytes);
}

size_t gpu_memory_left(void)
{
    pthread_mutex_lock(&all.lock);
    size_t left = all.limit - all.used;
    pthread_mutex_unlock(&all.lock);
    return left;
}

/* -- faults -------------------------------------------------------------------------- */

static const int fault_signals[] = {SIGSEGV, SIGBUS};
static struct sigaction fault_before[2];

/* What a signal handler may say, without the lock: whoever holds it may be dead. */
static void tell_fault(const void *memory)
{
    char text[512];
    int n = 0;
    const char *at = memory;
    for (int i = 0; i < all.device.n; i++) {
        const struct mapping *m = &all.device.at[i];
        if (at < m->map || at >= m->map + m->map_bytes)
            continue;
        n = snprintf(text, sizeof text,
                     "%s: byte %td of %zu bytes of device memory was touched%s\n",
                     emulated_here.kernel ? block_words() : "the host", at - m->r.first,
                     m->r.bytes, emulated_here.kernel ? "" : " outside of an operation");
    }
    if (n == 0 && emulated_here.kernel)
        n = snprintf(text, sizeof text, "%s: %p was touched, shared memory is %p, %zu\n",
                     block_words(), memory, (const void *)emulated_here.shared,
                     emulated_here.shared_bytes);
    if (n == 0)
        return;
    void *frames[64];
    ssize_t written = write(STDERR_FILENO, text, (size_t)n);
    (void)written;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

/* Then what it was before has it: the instruction is tried again. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    tell_fault(info->si_addr);
    for (size_t i = 0; i < ARRAY_LEN(fault_signals); i++)
        if (fault_signals[i] == number)
            sigaction(number, &fault_before[i], NULL);
}

void emulated_memory_watch(void)
{
    void *frames[1];
    struct sigaction now,
        action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    backtrace(frames, 1); // what it loads, it loads now
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(fault_signals); i++) {
        sigaction(fault_signals[i], NULL, &now);
        if (now.sa_sigaction == on_fault)
            continue;
        fault_before[i] = now;
        sigaction(fault_signals[i], &action, NULL);
    }
}

#define SIGNAL_STACK_BYTES ((size_t)64 << 10)

void *emulated_memory_watch_thread(void)
{
    stack_t now = {0}, stack = {.ss_size = SIGNAL_STACK_BYTES};
    if (sigaltstack(NULL, &now) == 0 && !(now.ss_flags & SS_DISABLE))
        return NULL; // a sanitizer's
    stack.ss_sp = mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack.ss_sp == MAP_FAILED)
        return NULL;
    sigaltstack(&stack, NULL);
    return stack.ss_sp;
}

void emulated_memory_leave_thread(void *watch)
{
    if (!watch)
        return;
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    munmap(watch, SIGNAL_STACK_BYTES);
}
