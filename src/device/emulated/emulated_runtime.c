/*
 * The emulated device: what gpu_runtime.h has of its start and its end, copies and
 * launches, and what is counted.
 *
 * Operations are checked where they are enqueued, by what CUDA would refuse or what would
 * have no defined result there: memory of the wrong kind, ranges that leave an allocation,
 * blocks that are too large. All of that is our own bug.
 */
#include "device/gpu/gpu_runtime.h"

#include "device/emulated/emulated_block.h"
#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_options.h"
#include "device/emulated/emulated_streams.h"
#include "device/kernels.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MOST 4096 // bytes of arguments that a kernel can have

struct host_read { // a copy from pinned memory that was not made yet
    const char *first;
    size_t bytes;
};

static struct {
    pthread_mutex_t lock;
    struct gpu_counters counters;
    struct host_read *reads;
    int n_reads, room;
    struct emulated_options options;
    int local_rank, gpu; // `gpu`: its index on this machine
    size_t shared_bytes;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void count(int64_t *counter, int64_t n)
{
    pthread_mutex_lock(&all.lock);
    *counter += n;
    pthread_mutex_unlock(&all.lock);
}

void gpu_counters(struct gpu_counters *c)
{
    pthread_mutex_lock(&all.lock);
    *c = all.counters;
    pthread_mutex_unlock(&all.lock);
}

void emulated_count_gemm(void)
{
    count(&all.counters.gemms, 1);
}

void emulated_count_message(size_t bytes)
{
    count(&all.counters.messages, 1);
    count(&all.counters.bytes_messages, (int64_t)bytes);
}

/* -- start and end ------------------------------------------------------------------- */

/* Shared memory that a block can have, by capability. */
static size_t shared_most(int major, int minor)
{
    int kib = major < 8             ? 64
              : major == 8 && minor ? 99
              : major == 8          ? 163
              : major < 12          ? 227
                                    : 99;
    return (size_t)kib << 10;
}

/* The index of this process's GPU: its element of CUDA_VISIBLE_DEVICES, as with CUDA, where
 * that has one and it is a number. */
static int find_gpu(int local_rank)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; at && i < local_rank; i++)
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    size_t n_digits = at ? strspn(at, "0123456789") : 0;
    bool is_number =
        n_digits > 0 && n_digits < 6 && (!at[n_digits] || at[n_digits] == ',');
    return is_number ? atoi(at) : local_rank;
}

int gpu_start(int local_rank, int n_local, struct gpu_facts *facts, struct error *err)
{
    struct emulated_options *o = &all.options;
    if (emulated_options_read(o, err))
        return -1;
    if (o->n_gpus > 0 && n_local > o->n_gpus)
        return error_set(
            err, ERROR_INPUT,
            "%d processes on this machine want a GPU each, and %d %s emulated "
            "(TREFOIL_EMULATED); start fewer processes a machine",
            n_local, o->n_gpus, o->n_gpus == 1 ? "is" : "are");
    all.gpu = find_gpu(local_rank);
    if (o->n_gpus > 0 && all.gpu >= o->n_gpus)
        return error_set(err, ERROR_INPUT,
                         "there is no GPU %d: %d %s emulated (TREFOIL_EMULATED)", all.gpu,
                         o->n_gpus, o->n_gpus == 1 ? "is" : "are");
    if (kernels_start(err)) // GEMMs are the processor's
        return -1;
    all.local_rank = local_rank;
    all.shared_bytes = shared_most(o->major, o->minor);
    *facts = (struct gpu_facts){.name = "emulated",
                                .major = o->major,
                                .minor = o->minor,
                                .n_processors = 5, // odd: grids that it does not divide
                                .memory_bytes = o->memory_bytes,
                                .shared_bytes = all.shared_bytes,
                                .libraries = "none"};
    emulated_memory_limit(o->memory_bytes);
    emulated_memory_watch();
    streams_begin();
    return 0;
}

/* One line, written at once: several ranks add to one file. */
static void write_counters(void)
{
    char line[512];
    const struct gpu_counters *c = &all.counters;
    int n = snprintf(line, sizeof line,
                     "{\"local_rank\": %d, \"gpu\": %d, \"launches\": %" PRId64
                     ", \"synchronisations\": %" PRId64 ", \"gemms\": %" PRId64
                     ", \"messages\": %" PRId64 ", \"bytes_to_device\": %" PRId64
                     ", \"bytes_to_host\": %" PRId64 ", \"bytes_on_device\": %" PRId64
                     ", \"bytes_messages\": %" PRId64 "}\n",
                     all.local_rank, all.gpu, c->launches, c->synchronisations, c->gemms,
                     c->messages, c->bytes_to_device, c->bytes_to_host,
                     c->bytes_on_device, c->bytes_messages);
    int fd = open(all.options.counters, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        fprintf(stderr, "cannot write '%s' of TREFOIL_EMULATED\n", all.options.counters);
    if (fd >= 0)
        close(fd);
}

void gpu_stop(void)
{
    streams_drain();
    if (all.options.counters[0])
        write_counters();
    free(all.reads);
    all.reads = NULL;
    all.n_reads = all.room = 0;
    all.counters = (struct gpu_counters){0};
}

/* Whatever goes wrong here is told at once. */
int gpu_error(struct error *err)
{
    (void)err;
    return 0;
}

void gpu_synchronize(enum stream_name s)
{
    count(&all.counters.synchronisations, 1);
    streams_synchronize(s);
}

/* -- copies -------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from; // NULL: the bytes follow
    size_t bytes;
    bool is_host_read; // of pinned memory
};

struct byte_fill {
    void *to;
    size_t bytes;
    uint8_t byte;
};

static bool overlaps(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void add_host_read(const void *from, size_t bytes)
{
    pthread_mutex_lock(&all.lock);
    if (all.n_reads == all.room) {
        all.room = all.room ? 2 * all.room : 64;
        all.reads = realloc(all.reads, (size_t)all.room * sizeof *all.reads);
        CHECK(all.reads, "no memory for %d copies", all.room);
    }
    all.reads[all.n_reads++] = (struct host_read){from, bytes};
    pthread_mutex_unlock(&all.lock);
}

static void remove_host_read(const void *from, size_t bytes)
{
    int i = 0;
    pthread_mutex_lock(&all.lock);
    while (all.reads[i].first != from || all.reads[i].bytes != bytes)
        i++;
    all.reads[i] = all.reads[--all.n_reads];
    pthread_mutex_unlock(&all.lock);
}

/* From now on the host may find anything there: NaNs, unless a copy that was enqueued
 * before, and was not made yet, reads the old bytes first. */
static void spoil(char *to, size_t bytes)
{
    bool is_read = false;
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < all.n_reads; i++)
        is_read |= overlaps(to, bytes, all.reads[i].first, all.reads[i].bytes);
    pthread_mutex_unlock(&all.lock);
    if (!is_read)
        memset(to, 0xFF, bytes);
}

static bool run_copy(void *args)
{
    struct copy *c = args;
    memmove(c->to, c->from ? c->from : c + 1, c->bytes);
    if (c->is_host_read)
        remove_host_read(c->from, c->bytes);
    return true;
}

static bool run_fill(void *args)
{
    const struct byte_fill *f = args;
    memset(f->to, f->byte, f->bytes);
    return true;
}

static bool covers(struct emulated_range r, const char *memory, size_t bytes)
{
    return r.bytes > 0 && memory + bytes <= r.first + r.bytes;
}

static void check_device(const void *memory, size_t bytes, const char *what)
{
    CHECK(covers(emulated_memory_device_at(memory), memory, bytes),
          "%s %zu bytes at %p, which are not all of one allocation of device memory",
          what, bytes, memory);
}

static void check_host(const void *memory, size_t bytes, const char *what)
{
    const char *last = (const char *)memory + bytes - 1;
    CHECK(emulated_memory_device_at(memory).bytes == 0 &&
              emulated_memory_device_at(last).bytes == 0,
          "%s %zu bytes at %p, which is device memory and no host's", what, bytes,
          memory);
}

static bool is_pinned(const void *memory, size_t bytes)
{
    return covers(emulated_memory_pinned_at(memory), memory, bytes);
}

void gpu_copy(enum stream_name s, void *to, const void *from, size_t bytes,
              enum copy_kind kind)
{
    struct copy c = {to, from, bytes, false};
    const void *more = NULL;
    if (bytes == 0)
        return;
    if (kind == COPY_TO_HOST)
        check_host(to, bytes, "a copy to the host writes");
    else
        check_device(to, bytes, "a copy to the device writes");
    if (kind == COPY_TO_DEVICE)
        check_host(from, bytes, "a copy to the device reads");
    else
        check_device(from, bytes, "a copy from the device reads");

    if (kind == COPY_TO_DEVICE) {
        count(&all.counters.bytes_to_device, (int64_t)bytes);
        c.is_host_read = is_pinned(from, bytes);
        if (c.is_host_read)
            add_host_read(from, bytes);
        else
            more = from;
        c.from = more ? NULL : from;
    }
    if (kind == COPY_ON_DEVICE)
        count(&all.counters.bytes_on_device, (int64_t)bytes);
    if (kind == COPY_TO_HOST) {
        count(&all.counters.bytes_to_host, (int64_t)bytes);
        spoil(to, bytes);
    }
    streams_enqueue(s, run_copy, &c, sizeof c, more, more ? bytes : 0);
    if (kind == COPY_TO_HOST && !is_pinned(to, bytes))
        gpu_synchronize(s);
}

void gpu_fill(enum stream_name s, void *to, uint8_t byte, size_t bytes)
{
    struct byte_fill f = {to, bytes, byte};
    if (bytes == 0)
        return;
    check_device(to, bytes, "a fill writes");
    streams_enqueue(s, run_fill, &f, sizeof f, NULL, 0);
}

/* -- launches ------------------------------------------------------------------------ */

struct launched { // and its arguments behind it, aligned as those of any kernel
    alignas(16) struct gpu_launch l;
};

static bool run_launch(void *args)
{
    struct launched *x = args;
    x->l.args = x + 1;
    block_launch(&x->l);
    return true;
}

void gpu_launch(enum stream_name s, const struct gpu_launch *l)
{
    const uint32_t *n = l->blocks;
    CHECK(n[0] > 0 && n[1] > 0 && n[2] > 0 && n[0] <= INT32_MAX && n[1] <= UINT16_MAX &&
              n[2] <= UINT16_MAX,
          "%s: %u x %u x %u blocks", l->name, n[0], n[1], n[2]);
    CHECK(l->threads > 0 && l->threads <= BLOCK_MOST_THREADS &&
              l->threads % BLOCK_WARP == 0,
          "%s: %u threads a block", l->name, l->threads);
    CHECK(l->shared_bytes <= all.shared_bytes, "%s: %zu bytes of shared memory, of %zu",
          l->name, l->shared_bytes, all.shared_bytes);
    CHECK(l->args_bytes <= ARGS_MOST, "%s: %zu bytes of arguments", l->name,
          l->args_bytes);
    count(&all.counters.launches, 1);
    struct launched x = {*l};
    streams_enqueue(s, run_launch, &x, sizeof x, l->args, l->args_bytes);
}
