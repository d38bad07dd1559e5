/*
 * gpu_peers - the runtime's messages between GPUs as a device has them.
 */
#ifndef DEVICE_GPU_GPU_PEERS_H
#define DEVICE_GPU_GPU_PEERS_H

#include "device/device_peers.h"

/* NULL: messages go through the host. */
const struct device_peers *gpu_peers_table(void);

#endif
