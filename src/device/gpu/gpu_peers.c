#include "device/gpu/gpu_peers.h"

#include "device/gpu/gpu_runtime.h"

#include <stdlib.h>
#include <string.h>

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

int gpu_peers_find(const struct device_peers **peers, struct error *err)
{
    const char *value = getenv("TREFOIL_PEERS");
    bool is_off = value && strcmp(value, "off") == 0;
    *peers = NULL;
    if (value && !is_off && strcmp(value, "on") != 0)
        return error_set(err, ERROR_INPUT,
                         "TREFOIL_PEERS is '%s'; it must be one of on off", value);
    if (!is_off && gpu_has_peers())
        *peers = &table;
    return 0;
}
