/*
 * gpu_runtime - what a GPU gives: memory, streams, events, launches, GEMMs, and messages
 * between GPUs. One of two is behind it: CUDA (device/cuda, in the plug-in) or the
 * emulated device (device/emulated, in the program). gpu_device.c makes a struct device
 * of it, gpu_table*.c the table of kernels.
 *
 * One process has one GPU. Nothing here fails where it is called but the functions that
 * return int: the first error of anything else is kept, and gpu_error() tells it.
 */
#ifndef DEVICE_GPU_GPU_RUNTIME_H
#define DEVICE_GPU_GPU_RUNTIME_H

#include "base/base.h"
#include "base/error.h"
#include "device/device_peers.h"

/* -- the device ---------------------------------------------------------------------- */

/* Take the GPU for this process's rank on its machine, one of n_local that want one each.
 * Errors are finished sentences: no driver, fewer GPUs than processes. */
MUST_CHECK int gpu_start(int local_rank, int n_local, struct gpu_facts *facts,
                         struct error *err);
void gpu_stop(void);
/* The first error of what was enqueued or run since the start, as a sentence; 0: none. */
MUST_CHECK int gpu_error(struct error *err);

/* -- memory -------------------------------------------------------------------------- */

void *gpu_alloc(size_t bytes); // of the device, zeroed, 256-byte aligned; NULL: none left
void gpu_free(void *memory, size_t bytes);
void *gpu_alloc_host(size_t bytes); // pinned: the device copies from and to it; or NULL
void gpu_free_host(void *memory, size_t bytes);
size_t gpu_memory_left(void);

/* -- streams and events -------------------------------------------------------------- */

/* enum stream_name of device.h; what is enqueued runs in order on each. Host memory of an
 * asynchronous copy is pinned (gpu_alloc_host); other memory is copied all the same, but
 * the call may wait for it. */
void gpu_copy(enum stream_name s, void *to, const void *from, size_t bytes,
              enum copy_kind kind);
void gpu_fill(enum stream_name s, void *to, uint8_t byte, size_t bytes);
void *gpu_event_make(void);
void gpu_event_free(void *event);
void gpu_record(void *event, enum stream_name s);
void gpu_wait(enum stream_name s, void *event); // the stream waits
bool gpu_happened(void *event);
void gpu_synchronize(enum stream_name s); // the host waits; counted
void gpu_counters(struct gpu_counters *c);
/* While the host waits in gpu_synchronize() it calls fn(context) again and again: a peer
 * may be gone. NULL: nothing. */
void gpu_on_wait(void (*fn)(void *context), void *context);

/* -- launches ------------------------------------------------------------------------ */

typedef void gpu_kernel(void); // a kernel, known by its address alone

struct gpu_launch {
    gpu_kernel *kernel;
    const char *name;
    uint32_t blocks[3]; // at least 1 each
    uint32_t threads;
    size_t shared_bytes;
    const void *args; // the kernel's struct, copied
    size_t args_bytes;
};
void gpu_launch(enum stream_name s, const struct gpu_launch *l);

/* -- GEMMs --------------------------------------------------------------------------- */

/* The bare products of kernels.h, in the type the device was opened for (`dtype`): sums in
 * float, rounded once to y_dtype, dx_dtype or the type of dw, accumulated as said there.
 * Of gpu_linear_fwd: the bias is added before the rounding where act is ACTIVATION_NONE;
 * activations are the caller's. No split-K where the bits of a row would depend on it. */
void gpu_linear_fwd(enum stream_name s, enum dtype dtype, const struct linear *l);
void gpu_linear_bwd_input(enum stream_name s, enum dtype dtype,
                          const struct linear_bwd_input *l);
void gpu_linear_bwd_weight(enum stream_name s, enum dtype dtype,
                           const struct linear_bwd_weight *l);
void gpu_gemm(enum stream_name s, const struct gemm *g); // float
/* Products of float may round their operands to TF32 (mix_precision.allow_tf32). */
void gpu_allow_tf32(bool is_allowed);
size_t gpu_workspace_bytes(void); // GPU_WORKSPACE_BYTES, taken at the start

/* -- messages between GPUs ----------------------------------------------------------- */

/* What device_peers.h says of each. */
bool gpu_has_peers(void); // false: messages go through the host
MUST_CHECK int gpu_peers_id(char id[DEVICE_PEERS_ID_BYTES], struct error *err);
MUST_CHECK int gpu_peers_open(struct gpu_peers **peers,
                              const char id[DEVICE_PEERS_ID_BYTES], int rank, int size,
                              enum stream_name s, const struct device_link *link,
                              struct error *err);
void gpu_peers_close(struct gpu_peers *g);
void gpu_peers_begin(struct gpu_peers *g);
void gpu_peers_send(struct gpu_peers *g, const void *x, size_t bytes, int to);
void gpu_peers_recv(struct gpu_peers *g, void *x, size_t bytes, int from);
void gpu_peers_end(struct gpu_peers *g);
MUST_CHECK int gpu_peers_check(struct gpu_peers *g, struct error *err);
void gpu_peers_abort(struct gpu_peers *g);

#endif
