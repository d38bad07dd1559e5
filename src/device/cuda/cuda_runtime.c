/*
 * The runtime of gpu_runtime.h over CUDA's: memory, streams, events and launches.
 *
 * A process has one GPU. Streams do not wait for each other unless an event says so, and
 * nothing runs on CUDA's default stream. The host waits by asking again and again, so that
 * a peer that is gone is noticed meanwhile.
 */
#include "device/cuda/cuda_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_KERNELS 256
#define SHARED_BYTES_BEFORE_ASKING ((size_t)48 << 10)

/* One GPU a process, and CUDA itself has one current device a thread. */
static struct {
    int device;
    cudaStream_t streams[N_STREAMS];
    void (*on_wait)(void *context);
    void *on_wait_context;
    pthread_mutex_t lock; // of what follows
    bool has_failed;
    char error[512]; // the first one
    struct {
        gpu_kernel *kernel;
        size_t shared_bytes; // it was told that it may have
    } kernels[MOST_KERNELS];
    atomic_int_fast64_t launches, synchronisations, bytes_to_device, bytes_to_host,
        bytes_on_device;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -- errors -------------------------------------------------------------------------- */

void cuda_failed(const char *what, const char *why)
{
    pthread_mutex_lock(&gpu.lock);
    if (!gpu.has_failed)
        snprintf(gpu.error, sizeof gpu.error, "%s: %s", what, why);
    gpu.has_failed = true;
    pthread_mutex_unlock(&gpu.lock);
}

bool cuda_went(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return true;
    cuda_failed(what, cudaGetErrorString(rc));
    (void)cudaGetLastError(); // it is told once
    return false;
}

int gpu_error(struct error *err)
{
    pthread_mutex_lock(&gpu.lock);
    int rc = 0;
    if (gpu.has_failed)
        rc =
            error_set(err, ERROR_RUNTIME,
                      "the GPU failed: %s; the driver's messages (dmesg, those with Xid) "
                      "may tell why; " CUDA_REMEDY,
                      gpu.error);
    pthread_mutex_unlock(&gpu.lock);
    return rc;
}

void cuda_use(void)
{
    static _Thread_local bool is_set;
    if (!is_set)
        is_set = cuda_went(cudaSetDevice(gpu.device), "cannot use the GPU");
}

/* -- the GPU ------------------------------------------------------------------------- */

int cuda_runtime_open(int device, struct error *err)
{
    gpu.device = device;
    gpu.has_failed = false;
    cudaError_t rc = cudaSetDevice(device);
    if (rc == cudaSuccess)
        rc = cudaFree(NULL); // makes its context, whatever the version
    for (int i = 0; i < N_STREAMS && rc == cudaSuccess; i++)
        rc = cudaStreamCreateWithFlags(&gpu.streams[i], cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        return 0;
    cuda_runtime_close();
    return error_set(err, ERROR_RUNTIME,
                     "cannot take GPU %d of this machine: %s; " CUDA_HOLDERS, device,
                     cudaGetErrorString(rc));
}

void cuda_runtime_close(void)
{
    for (int i = 0; i < N_STREAMS; i++) {
        if (gpu.streams[i])
            (void)cudaStreamDestroy(gpu.streams[i]);
        gpu.streams[i] = NULL;
    }
    gpu.on_wait = NULL;
}

cudaStream_t cuda_stream(enum stream_name s)
{
    return gpu.streams[s];
}

/* -- memory -------------------------------------------------------------------------- */

void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;
    cuda_use();
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        errno = ENOMEM;
        return NULL;
    }
    cudaStream_t stream = gpu.streams[STREAM_COMPUTE];
    if (!cuda_went(cudaMemsetAsync(memory, 0, bytes, stream), "cannot clear memory") ||
        !cuda_went(cudaStreamSynchronize(stream), "cannot clear memory")) {
        (void)cudaFree(memory);
        errno = EIO;
        return NULL;
    }
    return memory;
}

void gpu_free(void *memory, size_t bytes)
{
    (void)bytes;
    cuda_use();
    cuda_went(cudaFree(memory), "cannot free memory");
}

void *gpu_alloc_host(size_t bytes)
{
    void *memory = NULL;
    cuda_use();
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        errno = ENOMEM;
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

void gpu_free_host(void *memory, size_t bytes)
{
    (void)bytes;
    cuda_use();
    cuda_went(cudaFreeHost(memory), "cannot free pinned memory");
}

size_t gpu_memory_left(void)
{
    size_t left = 0, all = 0;
    cuda_use();
    cuda_went(cudaMemGetInfo(&left, &all), "cannot ask for the memory that is left");
    return left;
}

/* -- streams and events -------------------------------------------------------------- */

void gpu_copy(enum stream_name s, void *to, const void *from, size_t bytes,
              enum copy_kind kind)
{
    static const enum cudaMemcpyKind kinds[] = {
        [COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [COPY_TO_HOST] = cudaMemcpyDeviceToHost,
        [COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    if (bytes == 0)
        return;
    atomic_fetch_add(kind == COPY_TO_DEVICE ? &gpu.bytes_to_device
                     : kind == COPY_TO_HOST ? &gpu.bytes_to_host
                                            : &gpu.bytes_on_device,
                     (int_fast64_t)bytes);
    cuda_use();
    cuda_went(cudaMemcpyAsync(to, from, bytes, kinds[kind], gpu.streams[s]),
              "cannot copy");
}

void gpu_fill(enum stream_name s, void *to, uint8_t byte, size_t bytes)
{
    if (bytes == 0)
        return;
    cuda_use();
    cuda_went(cudaMemsetAsync(to, byte, bytes, gpu.streams[s]), "cannot fill memory");
}

void *gpu_event_make(void)
{
    cudaEvent_t event = NULL;
    cuda_use();
    cuda_went(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
              "cannot make an event");
    return event;
}

void gpu_event_free(void *event)
{
    cuda_use();
    if (event)
        cuda_went(cudaEventDestroy(event), "cannot free an event");
}

void gpu_record(void *event, enum stream_name s)
{
    cuda_use();
    cuda_went(cudaEventRecord(event, gpu.streams[s]), "cannot record an event");
}

void gpu_wait(enum stream_name s, void *event)
{
    cuda_use();
    cuda_went(cudaStreamWaitEvent(gpu.streams[s], event, 0), "cannot wait for an event");
}

/* After an error everything has happened that ever will: nobody waits for it. */
static bool is_done(cudaError_t rc, const char *what)
{
    return rc != cudaErrorNotReady && (cuda_went(rc, what) || true);
}

bool gpu_happened(void *event)
{
    cuda_use();
    return is_done(cudaEventQuery(event), "work of the GPU ended with an error");
}

void gpu_on_wait(void (*fn)(void *context), void *context)
{
    gpu.on_wait = fn;
    gpu.on_wait_context = context;
}

/* Short work is waited for without a nap, which would cost more than it. */
void gpu_synchronize(enum stream_name s)
{
    const struct timespec nap = {.tv_nsec = 20000};
    double start = clock_seconds();
    atomic_fetch_add(&gpu.synchronisations, 1);
    cuda_use();
    while (!is_done(cudaStreamQuery(gpu.streams[s]),
                    "work of the GPU ended with an error")) {
        if (clock_seconds() - start < 200e-6)
            continue;
        if (gpu.on_wait)
            gpu.on_wait(gpu.on_wait_context);
        nanosleep(&nap, NULL);
    }
}

void gpu_counters(struct gpu_counters *c)
{
    *c = (struct gpu_counters){
        .launches = atomic_load(&gpu.launches),
        .synchronisations = atomic_load(&gpu.synchronisations),
        .bytes_to_device = atomic_load(&gpu.bytes_to_device),
        .bytes_to_host = atomic_load(&gpu.bytes_to_host),
        .bytes_on_device = atomic_load(&gpu.bytes_on_device),
    };
}

/* -- launches ------------------------------------------------------------------------ */

/* A kernel has to be told once that it may have more shared memory than 48 KB. */
static bool allow_shared(const struct gpu_launch *l)
{
    if (l->shared_bytes <= SHARED_BYTES_BEFORE_ASKING)
        return true;
    pthread_mutex_lock(&gpu.lock);
    size_t i = (size_t)(uintptr_t)l->kernel / 16 % MOST_KERNELS, tried = 0;
    while (gpu.kernels[i].kernel && gpu.kernels[i].kernel != l->kernel &&
           ++tried < MOST_KERNELS)
        i = (i + 1) % MOST_KERNELS;
    bool is_told = gpu.kernels[i].kernel == l->kernel &&
                   gpu.kernels[i].shared_bytes >= l->shared_bytes;
    gpu.kernels[i].kernel = l->kernel;
    gpu.kernels[i].shared_bytes = l->shared_bytes;
    pthread_mutex_unlock(&gpu.lock);
    return is_told ||
           cuda_went(cudaFuncSetAttribute((const void *)(uintptr_t)l->kernel,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)l->shared_bytes),
                     l->name);
}

void gpu_launch(enum stream_name s, const struct gpu_launch *l)
{
    dim3 grid = {l->blocks[0], l->blocks[1], l->blocks[2]}, block = {l->threads, 1, 1};
    void *args[] = {
        (void *)(uintptr_t)l->args}; // read only, though its type does not say
    atomic_fetch_add(&gpu.launches, 1);
    cuda_use();
    if (allow_shared(l))
        cuda_went(cudaLaunchKernel((const void *)(uintptr_t)l->kernel, grid, block, args,
                                   l->shared_bytes, gpu.streams[s]),
                  l->name);
}
