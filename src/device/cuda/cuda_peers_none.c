/*
 * In the place of cuda_peers.c where the plug-in is built without NCCL's header: messages
 * go through the host, and nothing else here is ever called.
 */
#include "device/cuda/cuda_internal.h"

bool gpu_has_peers(void)
{
    return false;
}

int cuda_peers_version(void)
{
    return 0;
}

int gpu_peers_id(char id[DEVICE_PEERS_ID_BYTES], struct error *err)
{
    (void)id;
    return error_set(err, ERROR_RUNTIME, "the plug-in for GPUs was built without NCCL");
}

int gpu_peers_open(struct gpu_peers **peers, const char id[DEVICE_PEERS_ID_BYTES],
                   int rank, int size, enum stream_name s, const struct device_link *link,
                   struct error *err)
{
    (void)peers;
    (void)id;
    (void)rank;
    (void)size;
    (void)s;
    (void)link;
    return error_set(err, ERROR_RUNTIME, "the plug-in for GPUs was built without NCCL");
}

void gpu_peers_close(struct gpu_peers *g)
{
    (void)g;
}

void gpu_peers_begin(struct gpu_peers *g)
{
    (void)g;
}

void gpu_peers_send(struct gpu_peers *g, const void *x, size_t bytes, int to)
{
    (void)g;
    (void)x;
    (void)bytes;
    (void)to;
}

void gpu_peers_recv(struct gpu_peers *g, void *x, size_t bytes, int from)
{
    (void)g;
    (void)x;
    (void)bytes;
    (void)from;
}

void gpu_peers_end(struct gpu_peers *g)
{
    (void)g;
}

int gpu_peers_check(struct gpu_peers *g, struct error *err)
{
    (void)g;
    (void)err;
    return 0;
}

void gpu_peers_abort(struct gpu_peers *g)
{
    (void)g;
}
