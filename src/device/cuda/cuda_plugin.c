/* What the plug-in exports; everything else in it is hidden. */
#include "device/cuda/cuda_internal.h"
#include "device/gpu/gpu_device.h"
#include "device/plugin.h"

extern const struct plugin trefoil_plugin;

__attribute__((visibility("default"))) const struct plugin trefoil_plugin = {
    .version = TREFOIL_VERSION,
    .abi = plugin_abi,
    .open = gpu_device_open,
    .look = cuda_look,
};
