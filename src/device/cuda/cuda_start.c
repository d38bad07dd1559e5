/*
 * Which GPU this process takes, and why it cannot have one.
 *
 * What refuses a run is asked of the driver without taking a GPU, so that the launcher can
 * do it, too. CUDA_LEAST is the oldest architecture that the plug-in was compiled for: 75
 * for compute capability 7.5.
 */
#include "device/cuda/cuda_gemm.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/cuda_product.h"

#include <stdio.h>
#include <stdlib.h>

#define BF16_LEAST 80
#define QUEUES_LEAST 8 // of the device: one for each stream, and the library's own

/* -- environment --------------------------------------------------------------------- */

/* What CUDA reads once, at its first call. Receives that have been enqueued occupy the GPU
 * until their peers have come, which may need work of this one that comes later:
 *   - that work must not stand behind them in a queue: one a stream;
 *   - a kernel must not be loaded at its first launch, since that may wait until nothing
 *     runs. So all of them are loaded at the start, ours and the libraries'. */
static void set_environment(void)
{
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (!queues || strtol(queues, NULL, 10) < QUEUES_LEAST)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

/* -- refusals ------------------------------------------------------------------------ */

static int count_gpus(int *n_gpus, struct error *err)
{
    int driver = 0, built_with = CUDART_VERSION;
    *n_gpus = 0;
    cudaError_t rc = cudaDriverGetVersion(&driver);
    if (rc == cudaSuccess && driver == 0)
        return error_set(err, ERROR_INPUT,
                         "device: gpu needs NVIDIA's driver, and this machine has none "
                         "(where there is one, nvidia-smi lists the GPUs); " CUDA_REMEDY);
    rc = cudaGetDeviceCount(n_gpus);
    (void)cudaGetLastError();
    if (rc == cudaErrorInsufficientDriver)
        return error_set(
            err, ERROR_INPUT,
            "NVIDIA's driver of this machine knows CUDA up to %d.%d, and the "
            "plug-in for GPUs was built with CUDA %d.%d: install a newer "
            "driver, or build the plug-in with an older CUDA (make "
            "cuda); " CUDA_REMEDY,
            driver / 1000, driver % 1000 / 10, built_with / 1000, built_with % 1000 / 10);
    if (rc != cudaSuccess && rc != cudaErrorNoDevice)
        return error_set(err, ERROR_RUNTIME, "cannot ask NVIDIA's driver for GPUs: %s",
                         cudaGetErrorString(rc));
    if (*n_gpus > 0)
        return 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return error_set(err, ERROR_INPUT,
                     "NVIDIA's driver finds no GPU on this machine%s%s%s; " CUDA_REMEDY,
                     visible ? " (CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "",
                     visible ? "')" : "");
}

static int check_count(int n_gpus, int n_local, struct error *err)
{
    if (n_local <= n_gpus)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "%d processes of this machine want a GPU each, and each of them sees "
        "%d: start at most %d on a machine, or let each see more GPUs "
        "(CUDA_VISIBLE_DEVICES); " CUDA_REMEDY,
        n_local, n_gpus, n_gpus);
}

/* The capability of a GPU, as 75 for 7.5, without taking it. */
static int capability_of(int device, int *capability, struct error *err)
{
    int major = 0, minor = 0;
    cudaError_t rc =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = 10 * major + minor;
    if (rc == cudaSuccess)
        return 0;
    return error_set(err, ERROR_RUNTIME, "cannot ask what GPU %d is: %s", device,
                     cudaGetErrorString(rc));
}

static int check_capability(int device, enum dtype dtype, struct error *err)
{
    int capability;
    if (capability_of(device, &capability, err))
        return -1;
    if (capability < CUDA_LEAST)
        return error_set(
            err, ERROR_INPUT,
            "GPU %d has compute capability %d.%d, and the plug-in was built "
            "for %d.%d and above: build it with an older CUDA that still has "
            "this one (make cuda); " CUDA_REMEDY,
            device, capability / 10, capability % 10, CUDA_LEAST / 10, CUDA_LEAST % 10);
    if (dtype == DTYPE_BF16 && capability < BF16_LEAST)
        return error_set(
            err, ERROR_INPUT,
            "GPU %d has compute capability %d.%d, and bfloat16 needs 8.0: use "
            "mix_precision.dtype: float16; " CUDA_REMEDY,
            device, capability / 10, capability % 10);
    return 0;
}

int cuda_look(int n_local, enum dtype dtype, struct error *err)
{
    int n_gpus;
    set_environment();
    if (count_gpus(&n_gpus, err) || check_count(n_gpus, n_local, err))
        return -1;
    for (int i = 0; i < n_gpus && i < (n_local > 0 ? n_local : 1); i++)
        if (check_capability(i, dtype, err))
            return -1;
    return 0;
}

/* -- one GPU ------------------------------------------------------------------------- */

static void version_words(char words[static 256])
{
    int driver = 0, runtime = 0, nccl = cuda_peers_version();
    size_t blas = cuda_product_version();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    int n =
        snprintf(words, 256, "CUDA %d.%d, driver for CUDA %d.%d, cuBLASLt %zu.%zu.%zu",
                 runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10,
                 blas / 10000, blas / 100 % 100, blas % 100);
    if (nccl > 0)
        snprintf(words + n, 256 - (size_t)n, ", NCCL %d.%d.%d", nccl / 10000,
                 nccl / 100 % 100, nccl % 100);
    else
        snprintf(words + n, 256 - (size_t)n, ", no NCCL");
}

static int read_facts(int device, struct gpu_facts *facts, struct error *err)
{
    struct cudaDeviceProp prop;
    cudaError_t rc = cudaGetDeviceProperties(&prop, device);
    if (rc != cudaSuccess)
        return error_set(err, ERROR_RUNTIME, "cannot ask what GPU %d is: %s", device,
                         cudaGetErrorString(rc));
    *facts = (struct gpu_facts){
        .major = prop.major,
        .minor = prop.minor,
        .n_processors = prop.multiProcessorCount,
        .memory_bytes = prop.totalGlobalMem,
        .shared_bytes = prop.sharedMemPerBlockOptin,
    };
    snprintf(facts->name, sizeof facts->name, "%.127s", prop.name);
    version_words(facts->libraries);
    return 0;
}

int gpu_start(int local_rank, int n_local, struct gpu_facts *facts, struct error *err)
{
    int n_gpus;
    set_environment();
    if (count_gpus(&n_gpus, err) || check_count(n_gpus, n_local, err) ||
        check_capability(local_rank, DTYPE_F32, err) ||
        cuda_runtime_open(local_rank, err))
        return -1;
    if (cuda_gemm_open(err) == 0) {
        if (read_facts(local_rank, facts, err) == 0)
            return 0;
        cuda_gemm_close();
    }
    cuda_runtime_close();
    return -1;
}

void gpu_stop(void)
{
    cuda_gemm_close();
    cuda_runtime_close();
}
