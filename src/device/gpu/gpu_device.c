/*
 * A struct device over a GPU's runtime.
 *
 * A ring is cut into parts, and no request reaches over the end of one. A part of pinned
 * memory is written again only when all copies out of it and into it have happened: an
 * event is recorded when a part is left, and asked for when it is entered again. On the
 * device the order of the stream is enough.
 */
#include "device/gpu/gpu_device.h"

#include "device/gpu/gpu_peers.h"
#include "device/gpu/gpu_runtime.h"
#include "device/gpu/gpu_table.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define RING_PARTS 4
#define RING_ALIGN 256
#define SMALL_PART ((size_t)256 << 10) // of streams that carry messages
#define ARRAYS_KEPT 8                  // uploads that may be asked for again
#define DOWNLOADS_MOST 512             // under way on a stream
#define RANGES_MOST 1024               // of memory, on the device and pinned

struct array { // an upload
    size_t at, bytes;
    uint64_t n_parts; // that had been entered then
};

struct download {
    void *to;
    size_t at, bytes;
};

struct ring {
    pthread_mutex_t lock;
    char *host, *device;    // device NULL: copies alone
    size_t part_bytes;      // of RING_PARTS
    int part;               // that the newest bytes are in
    size_t used;            // bytes of it
    uint64_t n_parts;       // entered, ever
    void *left[RING_PARTS]; // events: the part was left; NULL: never
    struct array arrays[ARRAYS_KEPT];
    int next_array;
    struct download downloads[DOWNLOADS_MOST];
    int n_downloads;
};

struct range {
    const char *first;
    size_t bytes; // 0: none
};

/* One process has one GPU, whatever types it is open for. */
static struct {
    int n_open;
    struct gpu_facts facts;
    struct ring rings[N_STREAMS];
    pthread_mutex_t lock; // of what follows
    struct range tensors[RANGES_MOST], pinned[RANGES_MOST];
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -- memory -------------------------------------------------------------------------- */

static bool add_range(struct range *ranges, const void *first, size_t bytes)
{
    int i = 0;
    pthread_mutex_lock(&gpu.lock);
    while (i < RANGES_MOST && ranges[i].bytes > 0)
        i++;
    if (i < RANGES_MOST)
        ranges[i] = (struct range){first, bytes};
    pthread_mutex_unlock(&gpu.lock);
    return i < RANGES_MOST;
}

static void remove_range(struct range *ranges, const void *first)
{
    pthread_mutex_lock(&gpu.lock);
    for (int i = 0; i < RANGES_MOST; i++)
        if (ranges[i].bytes > 0 && ranges[i].first == first)
            ranges[i] = (struct range){0};
    pthread_mutex_unlock(&gpu.lock);
}

static bool is_in(const struct range *ranges, const void *memory)
{
    const char *at = memory;
    bool is_found = false;
    pthread_mutex_lock(&gpu.lock);
    for (int i = 0; i < RANGES_MOST && !is_found; i++)
        is_found = at >= ranges[i].first && at < ranges[i].first + ranges[i].bytes;
    pthread_mutex_unlock(&gpu.lock);
    return is_found;
}

static void *device_memory(struct device *dev, size_t bytes)
{
    (void)dev;
    void *memory = gpu_alloc(bytes);
    if (memory && !add_range(gpu.tensors, memory, bytes)) {
        gpu_free(memory, bytes);
        memory = NULL;
    }
    if (!memory)
        errno = ENOMEM;
    return memory;
}

static void device_memory_free(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    remove_range(gpu.tensors, memory);
    gpu_free(memory, bytes);
}

static void *pinned_memory(struct device *dev, size_t bytes)
{
    (void)dev;
    void *memory = gpu_alloc_host(bytes);
    if (memory)
        memset(memory, 0, bytes);
    if (memory && !add_range(gpu.pinned, memory, bytes)) {
        gpu_free_host(memory, bytes);
        memory = NULL;
    }
    if (!memory)
        errno = ENOMEM;
    return memory;
}

static void pinned_memory_free(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    remove_range(gpu.pinned, memory);
    gpu_free_host(memory, bytes);
}

static bool is_tensor(struct device *dev, const void *memory)
{
    (void)dev;
    return is_in(gpu.tensors, memory);
}

static size_t memory_left(struct device *dev)
{
    (void)dev;
    return gpu_memory_left();
}

static size_t memory_taken(struct device *dev)
{
    size_t bytes = gpu_rings_bytes() + gpu_workspace_bytes();
    (void)dev;
    pthread_mutex_lock(&gpu.lock);
    for (int i = 0; i < RANGES_MOST; i++)
        bytes += gpu.tensors[i].bytes;
    pthread_mutex_unlock(&gpu.lock);
    return bytes;
}

/* -- rings --------------------------------------------------------------------------- */

static size_t part_bytes(int stream)
{
    return stream == STREAM_COMPUTE || stream == STREAM_COPY ? GPU_RING_MOST : SMALL_PART;
}

static bool has_device_ring(int stream)
{
    return stream != STREAM_COPY;
}

size_t gpu_rings_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < N_STREAMS; i++)
        bytes += has_device_ring(i) ? RING_PARTS * part_bytes(i) : 0;
    return bytes;
}

size_t gpu_rings_host_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < N_STREAMS; i++)
        bytes += RING_PARTS * part_bytes(i);
    return bytes;
}

static void close_ring(struct ring *r)
{
    size_t bytes = RING_PARTS * r->part_bytes;
    for (int i = 0; i < RING_PARTS; i++)
        if (r->left[i])
            gpu_event_free(r->left[i]);
    if (r->host)
        gpu_free_host(r->host, bytes);
    if (r->device)
        gpu_free(r->device, bytes);
    if (r->part_bytes > 0)
        pthread_mutex_destroy(&r->lock);
    *r = (struct ring){0};
}

static int open_ring(struct ring *r, int stream, struct error *err)
{
    r->part_bytes = part_bytes(stream);
    pthread_mutex_init(&r->lock, NULL);
    size_t bytes = RING_PARTS * r->part_bytes;
    r->host = gpu_alloc_host(bytes);
    r->device = has_device_ring(stream) ? gpu_alloc(bytes) : NULL;
    if (r->host && (r->device || !has_device_ring(stream)))
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "cannot get %.1f MB of the GPU's memory, and as much pinned memory "
                     "of the host, for what passes between them: other processes may "
                     "have taken it; -o device=cpu trains on the processor",
                     (double)bytes / 1e6);
}

/* The host waits; what came down goes where it belongs. With the ring's lock. */
static void synchronize_ring(struct ring *r, enum stream_name s)
{
    gpu_synchronize(s);
    for (int i = 0; i < r->n_downloads; i++)
        memcpy(r->downloads[i].to, r->host + r->downloads[i].at, r->downloads[i].bytes);
    r->n_downloads = 0;
}

/* Leave the part that the newest bytes are in, for the next one. */
static void enter_next_part(struct ring *r, enum stream_name s)
{
    bool holds_downloads = false;
    int from = r->part, part = (from + 1) % RING_PARTS;
    if (!r->left[from])
        r->left[from] = gpu_event_make();
    gpu_record(r->left[from], s);
    r->part = part;
    r->used = 0;
    r->n_parts++;
    for (int i = 0; i < r->n_downloads; i++)
        holds_downloads |= r->downloads[i].at / r->part_bytes == (size_t)part;
    if (holds_downloads || (r->left[part] && !gpu_happened(r->left[part])))
        synchronize_ring(r, s);
}

/* Where the next `bytes` of the ring begin. With its lock. */
static size_t take(struct ring *r, enum stream_name s, size_t bytes)
{
    CHECK(bytes <= r->part_bytes, "%zu bytes", bytes);
    size_t size = (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    if (r->used + size > r->part_bytes)
        enter_next_part(r, s);
    size_t at = (size_t)r->part * r->part_bytes + r->used;
    r->used += size;
    return at;
}

static struct ring *ring_of(const struct stream *s)
{
    return &gpu.rings[s->name];
}

static const void *find_array(const struct ring *r, const void *from, size_t bytes)
{
    for (int i = 0; i < ARRAYS_KEPT; i++) {
        const struct array *a = &r->arrays[i];
        if (a->bytes == bytes && r->n_parts - a->n_parts < RING_PARTS / 2 &&
            memcmp(r->host + a->at, from, bytes) == 0)
            return r->device + a->at;
    }
    return NULL;
}

const void *gpu_upload(struct stream *s, const void *from, size_t bytes)
{
    struct ring *r = ring_of(s);
    if (bytes == 0)
        return r->device;
    pthread_mutex_lock(&r->lock);
    const void *to = find_array(r, from, bytes);
    if (!to) {
        size_t at = take(r, s->name, bytes);
        memcpy(r->host + at, from, bytes);
        gpu_copy(s->name, r->device + at, r->host + at, bytes, COPY_TO_DEVICE);
        r->arrays[r->next_array] = (struct array){at, bytes, r->n_parts};
        r->next_array = (r->next_array + 1) % ARRAYS_KEPT;
        to = r->device + at;
    }
    pthread_mutex_unlock(&r->lock);
    return to;
}

void *gpu_scratch(struct stream *s, size_t bytes)
{
    struct ring *r = ring_of(s);
    pthread_mutex_lock(&r->lock);
    size_t at = take(r, s->name, bytes);
    pthread_mutex_unlock(&r->lock);
    return r->device + at;
}

/* At most a part of the ring. With its lock. */
static void download_part(struct ring *r, enum stream_name s, void *to, const void *from,
                          size_t bytes)
{
    if (r->n_downloads == DOWNLOADS_MOST)
        synchronize_ring(r, s);
    size_t at = take(r, s, bytes);
    gpu_copy(s, r->host + at, from, bytes, COPY_TO_HOST);
    r->downloads[r->n_downloads++] = (struct download){to, at, bytes};
}

void gpu_download(struct stream *s, void *to, const void *from, size_t bytes)
{
    struct ring *r = ring_of(s);
    if (is_in(gpu.pinned, to)) {
        gpu_copy(s->name, to, from, bytes, COPY_TO_HOST);
        return;
    }
    pthread_mutex_lock(&r->lock);
    for (size_t at = 0; at < bytes; at += r->part_bytes) {
        size_t n = bytes - at < r->part_bytes ? bytes - at : r->part_bytes;
        download_part(r, s->name, (char *)to + at, (const char *)from + at, n);
    }
    pthread_mutex_unlock(&r->lock);
}

static void copy_up(struct stream *s, void *to, const void *from, size_t bytes)
{
    struct ring *r = ring_of(s);
    if (is_in(gpu.pinned, from)) {
        gpu_copy(s->name, to, from, bytes, COPY_TO_DEVICE);
        return;
    }
    pthread_mutex_lock(&r->lock);
    for (size_t done = 0; done < bytes; done += r->part_bytes) {
        size_t n = bytes - done < r->part_bytes ? bytes - done : r->part_bytes;
        size_t at = take(r, s->name, n);
        memcpy(r->host + at, (const char *)from + done, n);
        gpu_copy(s->name, (char *)to + done, r->host + at, n, COPY_TO_DEVICE);
    }
    pthread_mutex_unlock(&r->lock);
}

/* -- streams ------------------------------------------------------------------------- */

static void copy(struct stream *s, void *to, const void *from, size_t bytes,
                 enum copy_kind kind)
{
    if (bytes == 0)
        return;
    if (kind == COPY_TO_DEVICE)
        copy_up(s, to, from, bytes);
    else if (kind == COPY_TO_HOST)
        gpu_download(s, to, from, bytes);
    else
        gpu_copy(s->name, to, from, bytes, kind);
}

static void fill(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    if (bytes > 0)
        gpu_fill(s->name, to, byte, bytes);
}

static void record(struct event *e, struct stream *s)
{
    if (!e->impl)
        e->impl = gpu_event_make();
    e->stream = s;
    gpu_record(e->impl, s->name);
}

static void wait(struct stream *s, const struct event *e)
{
    if (e->impl)
        gpu_wait(s->name, e->impl);
}

static bool happened(const struct event *e)
{
    return !e->impl || gpu_happened(e->impl);
}

static void event_free(struct device *dev, void *impl)
{
    (void)dev;
    gpu_event_free(impl);
}

static void synchronize(struct stream *s)
{
    struct ring *r = ring_of(s);
    pthread_mutex_lock(&r->lock);
    synchronize_ring(r, s->name);
    pthread_mutex_unlock(&r->lock);
}

static void on_wait(struct device *dev, void (*fn)(void *context), void *context)
{
    (void)dev;
    gpu_on_wait(fn, context);
}

static int check(struct device *dev, struct error *err)
{
    (void)dev;
    return gpu_error(err);
}

static void counters(struct device *dev, struct gpu_counters *c)
{
    (void)dev;
    gpu_counters(c);
}

/* -- opening ------------------------------------------------------------------------- */

static void close_gpu(struct device *dev)
{
    (void)dev;
    if (--gpu.n_open > 0)
        return;
    for (int i = 0; i < N_STREAMS; i++)
        close_ring(&gpu.rings[i]);
    gpu_stop();
}

static const struct device_ops gpu_ops = {
    .alloc = device_memory,
    .free = device_memory_free,
    .copy = copy,
    .fill = fill,
    .record = record,
    .wait = wait,
    .synchronize = synchronize,
    .memory_left = memory_left,
    .alloc_host = pinned_memory,
    .free_host = pinned_memory_free,
    .event_free = event_free,
    .happened = happened,
    .is_tensor = is_tensor,
    .on_wait = on_wait,
    .memory_taken = memory_taken,
    .check = check,
    .counters = counters,
    .close = close_gpu,
};

static int start_gpu(const struct device_request *r, struct error *err)
{
    if (gpu.n_open == 0) {
        if (gpu_start(r->local_rank, r->n_local, &gpu.facts, err))
            return -1;
        for (int i = 0; i < N_STREAMS; i++)
            if (open_ring(&gpu.rings[i], i, err)) {
                gpu.n_open = 1;
                close_gpu(NULL);
                return -1;
            }
    }
    gpu.n_open++;
    return 0;
}

static int check_type(enum dtype dtype, struct error *err)
{
    enum { SM_80 = 8 };
    if (dtype != DTYPE_BF16 || gpu.facts.major >= SM_80)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "mix_precision.dtype is bfloat16, and the GPU, %s of compute capability "
        "%d.%d, has none: that begins with 8.0; use -o "
        "mix_precision.dtype=float16",
        gpu.facts.name, gpu.facts.major, gpu.facts.minor);
}

int gpu_device_open(struct device *dev, const struct device_request *r, struct error *err)
{
    if (start_gpu(r, err))
        return -1;
    if (check_type(dev->dtype, err) || gpu_peers_find(&dev->peers, err)) {
        close_gpu(dev);
        return -1;
    }
    gpu_allow_tf32(r->allow_tf32);
    dev->ops = &gpu_ops;
    dev->k = gpu_kernels();
    dev->facts = &gpu.facts;
    return 0;
}
