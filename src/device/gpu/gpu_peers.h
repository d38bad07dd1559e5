/*
 * gpu_peers - the runtime's messages between GPUs as a device has them.
 */
#ifndef DEVICE_GPU_GPU_PEERS_H
#define DEVICE_GPU_GPU_PEERS_H

#include "device/device_peers.h"

/* *peers NULL: messages go through the host, because the runtime has no others or the
 * environment variable TREFOIL_PEERS is "off". -1 for a value that is neither "on" nor
 * "off". */
MUST_CHECK int gpu_peers_find(const struct device_peers **peers, struct error *err);

#endif
