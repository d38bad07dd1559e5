/*
 * plugin - what the program does not have in itself: the device for NVIDIA's GPUs, in
 * libtrefoil_cuda.so.
 *
 * It is looked for in $TREFOIL_PLUGIN_DIR where that is set; otherwise beside the program,
 * as the build leaves it, and in ../lib/trefoil from there, as an installation does. It is
 * opened once, by the first who needs it, and stays.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include "device/device.h"

/* What a plug-in exports, under the name of PLUGIN_SYMBOL. */
struct plugin {
    const char *version;   // TREFOIL_VERSION; before anything that may change with it
    uint64_t (*abi)(void); // plugin_abi()
    /* See device_open(). */
    int (*open)(struct device *dev, const struct device_request *r, struct error *err);
    /* What plugin_check_gpu() asks, once the plug-in is open. */
    int (*look)(int n_local, enum dtype dtype, struct error *err);
};
#define PLUGIN_SYMBOL "trefoil_plugin"

/* A number that differs when the structs that pass between program and plug-in do. */
static inline uint64_t plugin_abi(void)
{
    const size_t sizes[] = {
        sizeof(struct device),
        sizeof(struct device_ops),
        sizeof(struct device_request),
        sizeof(struct gpu_counters),
        sizeof(struct gpu_facts),
        sizeof(struct kernels),
        sizeof(struct error),
        sizeof(struct event),
        sizeof(struct weight),
#define ARGUMENTS_BYTES(name, args) sizeof(struct args),
        OPERATIONS(ARGUMENTS_BYTES)
#undef ARGUMENTS_BYTES
            sizeof(struct dropout),
        N_STREAMS,
    };
    uint64_t abi = 14695981039346656037u; // FNV-1a
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        abi = (abi ^ sizes[i]) * 1099511628211u;
    return abi;
}

/* Open the GPU of this process: see device_open(). */
MUST_CHECK int plugin_open_gpu(struct device *dev, const struct device_request *r,
                               struct error *err);
/* Refuse what n_local processes of this machine (0: their number is not known) would be
 * refused with a model of this type, without taking a GPU. */
MUST_CHECK int plugin_check_gpu(int n_local, enum dtype dtype, struct error *err);
/* The path of the plug-in, or "none". */
void plugin_words(char *words, size_t size);

#endif
