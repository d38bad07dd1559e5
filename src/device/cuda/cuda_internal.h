/*
 * cuda_internal - what the files of the plug-in share: streams, and the first error.
 *
 * Libraries: the CUDA runtime.
 */
#ifndef DEVICE_CUDA_CUDA_INTERNAL_H
#define DEVICE_CUDA_CUDA_INTERNAL_H

#include "device/gpu/gpu_runtime.h"

#include <cuda_runtime_api.h>

#define CUDA_REMEDY "-o device=cpu trains on the processor"
#define CUDA_HOLDERS "nvidia-smi shows which processes have the GPU; " CUDA_REMEDY

/* -- refusals, cuda_start.c ---------------------------------------------------------- */

/* Refuse what n_local processes of this machine (0: not known how many) would be refused
 * with a model of this type. Takes no GPU. */
MUST_CHECK int cuda_look(int n_local, enum dtype dtype, struct error *err);

/* -- the runtime, cuda_runtime.c ----------------------------------------------------- */

/* Take the GPU with this number, and make its streams. */
MUST_CHECK int cuda_runtime_open(int device, struct error *err);
void cuda_runtime_close(void);

/* Before a call of CUDA: threads other than the first would talk to another GPU. */
void cuda_use(void);
cudaStream_t cuda_stream(enum stream_name s);

/* Keep this error if it is the first: "%s: %s". */
void cuda_failed(const char *what, const char *why);
/* Did it succeed? The error is kept otherwise. */
bool cuda_went(cudaError_t rc, const char *what);

/* -- messages, cuda_peers.c or cuda_peers_none.c ------------------------------------- */

int cuda_peers_version(void); // 22809 is NCCL 2.28.9; 0: there is no such library

#endif
