#include "device/gpu/gpu_peers.h"

#include "device/gpu/gpu_runtime.h"

static const struct device_peers table = {
    .id = gpu_peers_id,
    .open = gpu_peers_open,
    .close = gpu_peers_close,
    .begin = gpu_peers_begin,
    .send = gpu_peers_send,
    .recv = gpu_peers_recv,
    .end = gpu_peers_end,
    .check = gpu_peers_check,
    .abort = gpu_peers_abort,
};

const struct device_peers *gpu_peers_table(void)
{
    return gpu_has_peers() ? &table : NULL;
}
