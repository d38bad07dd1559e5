/*
 * Every thread of the system that runs blocks has a struct runner: room for one block at
 * a time, its shared memory and a pool of fibers.
 *
 * A thread of a block begins on a free fiber. If it ends without ever waiting, the next
 * begins on the same fiber at once, so that a kernel without barriers is a loop. One that
 * waits keeps its fiber, and another goes on in its place: a waiting thread is never
 * returned from, it changes to whom is next itself. The last one changes back to the
 * runner's own stack.
 */
#include "device/emulated/emulated_block.h"

#include "device/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/emulated/emulated_fiber.h"
#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_watch.h"

_Thread_local struct emulated_here emulated_here;
const struct emulated_watch *emulated_watch;

#define MOST_WARPS (BLOCK_MOST_THREADS / BLOCK_WARP)

enum thread_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_IN_WARP, THREAD_ENDED };

struct thread {
    enum thread_state state;
    struct fiber *fiber; // NULL: it has not begun
    const char *what;    // it waits for
    int line;
    struct async_copies copies;
};

struct warp {
    uint32_t lanes, ready, arrived; // sets of lanes
    void *met[BLOCK_WARP];
};

struct runner {
    const struct gpu_launch *l;
    struct thread threads[BLOCK_MOST_THREADS];
    struct warp warps[MOST_WARPS];
    uint32_t ready_warps; // those with a ready lane
    uint32_t now;         // the thread that runs
    uint32_t n_living, n_at_barrier;
    uint64_t random;
    bool is_loyal; // a warp goes on as long as it can
    struct fiber own, *free;
    char *shared_end; // of its shared memory; a page that nobody may touch follows
    size_t shared_room;
    void *watch; // of faults
};
static _Thread_local struct runner *runner;

/* How threads are chosen; set while nothing runs. */
static struct {
    enum thread_order order;
    uint64_t seed, n_launches;
} orders = {.order = ORDER_RANDOM, .seed = 1};

void block_order(enum thread_order order, uint64_t seed)
{
    orders.order = order;
    orders.seed = seed;
    orders.n_launches = 0;
}

static uint64_t mix(uint64_t x) // a bijection in which every bit depends on every bit
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint32_t draw(struct runner *r)
{
    r->random += 0x9E3779B97F4A7C15u;
    return (uint32_t)(mix(r->random) >> 32);
}

/* -- what is told -------------------------------------------------------------------- */

const char *block_words(void)
{
    static _Thread_local char words[256];
    const struct emulated_here *h = &emulated_here;
    snprintf(words, sizeof words, "kernel %s, block (%u, %u, %u), thread %u", h->kernel,
             h->block.x, h->block.y, h->block.z, h->thread.x);
    return words;
}

static const char *state_words(const struct thread *t, char *words, size_t size)
{
    if (t->state == THREAD_ENDED)
        snprintf(words, size, "has ended");
    else
        snprintf(words, size, "waits in %s of line %d", t->what, t->line);
    return words;
}

/* Nobody can go on: name one that waits, and one that it waits for. Since a barrier opens
 * when all that live are there, one waits in a warp. */
static void tell_divergence(const struct runner *r)
{
    char waits[64], other[64];
    uint32_t waiting = 0;
    while (r->threads[waiting].state != THREAD_IN_WARP)
        waiting++;
    uint32_t missing = waiting / BLOCK_WARP * BLOCK_WARP;
    while (r->threads[missing].state == THREAD_IN_WARP)
        missing++;
    emulated_here.thread.x = waiting;
    CHECK(false, "%s, %s; thread %u, which it waits for, %s", block_words(),
          state_words(&r->threads[waiting], waits, sizeof waits), missing,
          state_words(&r->threads[missing], other, sizeof other));
}

static void check_lines(const struct runner *r, uint32_t i, uint32_t j)
{
    const struct thread *t = &r->threads[i], *other = &r->threads[j];
    if (t->what == other->what && t->line == other->line)
        return;
    emulated_here.thread.x = i;
    CHECK(false, "%s, waits in %s of line %d; thread %u waits in %s of line %d",
          block_words(), t->what, t->line, j, other->what, other->line);
}

/* -- who is next --------------------------------------------------------------------- */

static uint32_t any_bit(uint32_t set, uint32_t from)
{
    uint32_t turn = from % 32;
    uint32_t turned = turn ? set >> turn | set << (32 - turn) : set;
    return ((uint32_t)__builtin_ctz(turned) + turn) % 32;
}

static void make_ready(struct runner *r, uint32_t warp, uint32_t lanes)
{
    r->warps[warp].ready |= lanes;
    r->ready_warps |= 1u << warp;
}

/* Take a thread that can go on and make it the one that runs; false: there is none. */
static bool choose(struct runner *r)
{
    uint32_t w, lane;
    if (!r->ready_warps)
        return false;
    if (orders.order == ORDER_FORWARD) {
        w = (uint32_t)__builtin_ctz(r->ready_warps);
        lane = (uint32_t)__builtin_ctz(r->warps[w].ready);
    } else if (orders.order == ORDER_REVERSE) {
        w = 31 - (uint32_t)__builtin_clz(r->ready_warps);
        lane = 31 - (uint32_t)__builtin_clz(r->warps[w].ready);
    } else {
        uint32_t random = draw(r);
        w = r->now / BLOCK_WARP;
        if (!r->is_loyal || !(r->ready_warps >> w & 1))
            w = any_bit(r->ready_warps, random);
        lane = any_bit(r->warps[w].ready, random >> 5);
    }
    r->warps[w].ready &= ~(1u << lane);
    if (!r->warps[w].ready)
        r->ready_warps &= ~(1u << w);
    r->now = w * BLOCK_WARP + lane;
    return true;
}

static void put_here(const struct runner *r, const struct fiber *f)
{
    emulated_here.thread.x = r->now;
    emulated_here.stack = f->stack;
    emulated_here.stack_bytes = f->stack_bytes;
}

static void fiber_main(void);

static struct fiber *free_fiber(struct runner *r)
{
    struct fiber *f = r->free;
    if (f)
        r->free = f->next;
    return f ? f : fiber_make(fiber_main);
}

/* This thread has to wait for others. Returns when it can go on. */
static void wait_turn(struct runner *r)
{
    uint32_t self = r->now;
    struct fiber *own = r->threads[self].fiber;
    if (!choose(r))
        tell_divergence(r);
    if (r->now == self)
        return;
    struct thread *next = &r->threads[r->now];
    if (!next->fiber)
        next->fiber = free_fiber(r);
    fiber_change(own, next->fiber);
    put_here(r, own);
}

static void release_barrier(struct runner *r)
{
    uint32_t first = BLOCK_MOST_THREADS;
    for (uint32_t i = 0; i < r->l->threads; i++) {
        struct thread *t = &r->threads[i];
        if (t->state != THREAD_AT_BARRIER)
            continue;
        first = i < first ? i : first;
        check_lines(r, i, first);
        t->state = THREAD_READY;
        make_ready(r, i / BLOCK_WARP, 1u << i % BLOCK_WARP);
    }
    r->n_at_barrier = 0;
    if (emulated_watch)
        emulated_watch->barrier();
}

/* On a fiber of its own: threads from their beginning to their end, one after another. */
static void fiber_main(void)
{
    fiber_begun();
    for (;;) {
        struct runner *r = runner;
        struct thread *t = &r->threads[r->now];
        struct fiber *self = t->fiber;
        put_here(r, self);
        r->l->kernel();
        t->state = THREAD_ENDED;
        r->n_living--;
        if (r->n_at_barrier > 0 && r->n_at_barrier == r->n_living)
            release_barrier(r);
        if (r->n_living > 0 && !choose(r))
            tell_divergence(r);
        struct thread *next = &r->threads[r->now];
        if (r->n_living > 0 && !next->fiber) {
            next->fiber = self;
            continue;
        }
        self->next = r->free;
        r->free = self;
        fiber_change(self, r->n_living > 0 ? next->fiber : &r->own);
    }
}

/* -- what a thread calls ------------------------------------------------------------- */

const void *emulated_args(size_t bytes, uint32_t most_threads)
{
    CHECK(bytes == emulated_here.args_bytes, "%s: launched with %zu bytes, it takes %zu",
          block_words(), emulated_here.args_bytes, bytes);
    CHECK(emulated_here.n_threads.x <= most_threads,
          "%s: launched with %u threads, it was made for %u", block_words(),
          emulated_here.n_threads.x, most_threads);
    return emulated_here.args;
}

void *emulated_shared(size_t bytes)
{
    CHECK(bytes <= emulated_here.shared_bytes,
          "%s: launched with %zu bytes of shared memory, it uses %zu", block_words(),
          emulated_here.shared_bytes, bytes);
    return emulated_here.shared;
}

void emulated_tell_unaligned(const void *memory, size_t bytes)
{
    CHECK(false, "%s, moves %zu bytes at once at %p, which they do not divide",
          block_words(), bytes, memory);
}

void emulated_barrier(int line)
{
    struct runner *r = runner;
    struct thread *t = &r->threads[r->now];
    t->state = THREAD_AT_BARRIER;
    t->what = "__syncthreads";
    t->line = line;
    if (++r->n_at_barrier == r->n_living)
        release_barrier(r);
    wait_turn(r);
}

void block_meet_warp(const struct warp_meeting *m, void *lane, int line)
{
    struct runner *r = runner;
    struct thread *t = &r->threads[r->now];
    uint32_t w = r->now / BLOCK_WARP, first = w * BLOCK_WARP;
    struct warp *warp = &r->warps[w];
    t->state = THREAD_IN_WARP;
    t->what = m->what;
    t->line = line;
    warp->met[r->now % BLOCK_WARP] = lane;
    warp->arrived |= 1u << r->now % BLOCK_WARP;
    if (warp->arrived == warp->lanes) {
        for (uint32_t i = first; i < first + BLOCK_WARP; i++) {
            check_lines(r, r->now, i);
            r->threads[i].state = THREAD_READY;
        }
        if (m->ready)
            m->ready(warp->met);
        warp->arrived = 0;
        make_ready(r, w, warp->lanes);
        if (emulated_watch && m->orders_memory)
            emulated_watch->warp(w);
    }
    wait_turn(r);
}

struct async_copies *block_copies(void)
{
    return &runner->threads[runner->now].copies;
}

/* -- blocks -------------------------------------------------------------------------- */

static pthread_key_t runner_key;

/* The thread of the system ends, and between blocks all its fibers are free. */
static void runner_free(void *ending)
{
    struct runner *r = ending;
    while (r->free) {
        struct fiber *f = r->free;
        r->free = f->next;
        fiber_free(f);
    }
    for (int i = 0; i < BLOCK_MOST_THREADS; i++)
        free(r->threads[i].copies.at);
    if (r->shared_end)
        munmap(r->shared_end - r->shared_room,
               r->shared_room + (size_t)sysconf(_SC_PAGESIZE));
    emulated_memory_leave_thread(r->watch);
    free(r);
    runner = NULL;
}

static void make_runner_key(void)
{
    CHECK(pthread_key_create(&runner_key, runner_free) == 0, "pthread_key_create");
}

static struct runner *runner_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!runner) {
        pthread_once(&once, make_runner_key);
        runner = calloc(1, sizeof *runner);
        CHECK(runner && pthread_setspecific(runner_key, runner) == 0,
              "no memory for an emulated block");
        runner->watch = emulated_memory_watch_thread();
    }
    return runner;
}

/* Shared memory that ends where a page begins that nobody may touch, all of it NaNs. */
static char *fresh_shared(struct runner *r, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + 15) / 16 * 16;
    if (room > r->shared_room) {
        size_t pages = (room + page - 1) / page * page;
        if (r->shared_end)
            munmap(r->shared_end - r->shared_room, r->shared_room + page);
        char *map = mmap(NULL, pages + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED, "no memory for %zu bytes of shared memory", bytes);
        CHECK(mprotect(map + pages, page, PROT_NONE) == 0, "mprotect of %zu bytes", page);
        r->shared_end = map + pages;
        r->shared_room = pages;
    }
    return room > 0 ? memset(r->shared_end - room, 0xFF, room) : r->shared_end;
}

static struct emulated_index index_of(uint64_t i, const uint32_t n[3])
{
    struct emulated_index at = {(uint32_t)(i % n[0]), (uint32_t)(i / n[0] % n[1]),
                                (uint32_t)(i / n[0] / n[1])};
    return at;
}

static void run_block(const struct gpu_launch *l, uint64_t i, uint64_t seed)
{
    struct runner *r = runner_get();
    r->l = l;
    r->random = mix(seed + i);
    r->is_loyal = draw(r) % 2;
    r->n_living = l->threads;
    r->n_at_barrier = 0;
    r->ready_warps = 0;
    for (uint32_t w = 0; w < l->threads / BLOCK_WARP; w++) {
        r->warps[w] = (struct warp){.lanes = UINT32_MAX};
        make_ready(r, w, UINT32_MAX);
    }
    for (uint32_t t = 0; t < l->threads; t++) {
        struct async_copies kept = r->threads[t].copies;
        kept.n = 0;
        r->threads[t] = (struct thread){.copies = kept};
    }
    emulated_here = (struct emulated_here){
        .block = index_of(i, l->blocks),
        .n_threads = {l->threads, 1, 1},
        .n_blocks = {l->blocks[0], l->blocks[1], l->blocks[2]},
        .kernel = l->name,
        .shared = fresh_shared(r, l->shared_bytes),
        .shared_bytes = l->shared_bytes,
        .args = l->args,
        .args_bytes = l->args_bytes,
    };
    if (emulated_watch)
        emulated_watch->block();
    choose(r);
    struct thread *first = &r->threads[r->now];
    first->fiber = free_fiber(r);
    fiber_change(&r->own, first->fiber);
    emulated_here.kernel = NULL;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A step that leads once around n blocks. */
static uint64_t step_around(uint64_t n, uint64_t seed)
{
    uint64_t step = orders.order == ORDER_RANDOM    ? mix(seed) % n
                    : orders.order == ORDER_REVERSE ? n - 1
                                                    : 1;
    while (gcd(step, n) != 1)
        step++;
    return step % n;
}

/* Threads of the system that a launch is worth. */
static int runners_for(uint64_t n_blocks, uint32_t n_threads)
{
    bool is_small = n_blocks < 2 || n_blocks * n_threads < 8192;
    return emulated_watch || is_small ? 1 : kernels_threads();
}

void block_launch(const struct gpu_launch *l)
{
    uint64_t n = (uint64_t)l->blocks[0] * l->blocks[1] * l->blocks[2];
    CHECK(n < UINT32_MAX, "%s: %llu blocks", l->name, (unsigned long long)n);
    uint64_t seed = mix(orders.seed ^ mix(orders.n_launches++));
    uint64_t step = step_around(n, seed), first = seed % n;
    if (emulated_watch)
        emulated_watch->launch();
#pragma omp parallel for schedule(dynamic) num_threads(runners_for(n, l->threads))
    for (uint64_t i = 0; i < n; i++)
        run_block(l, (first + i * step % n) % n, seed);
}
