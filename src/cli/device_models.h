/*
 * device_models - the models that `trefoil selftest --device` measures, and what others
 * published for them.
 */
#ifndef CLI_DEVICE_MODELS_H
#define CLI_DEVICE_MODELS_H

#include "base/base.h"
#include "base/dtype.h"

struct device_model {
    const char *name;
    int64_t L, H, A, V, S;
    int64_t B;         // samples of a step, one micro-batch
    bool is_recompute; // as its recipe has it
};

/* Those for a GPU; or a toy for an emulated one. Ends with a name of NULL. */
const struct device_model *device_models(bool is_emulated);

struct device_anchor {
    const char *system;
    const char *hardware;     // part of the GPU's name
    const char *model;        // that of device_models() of about its size
    double tokens_per_second; // and GPU
    const char *source;       // and what was different
};

/* Published speeds; ends with a system of NULL. */
const struct device_anchor *device_anchors(void);

/* Dense products of 16-bit numbers with sums in float32, in FLOP/s, as the manufacturer
 * gives them; 0: not known. */
double device_peak(const char *gpu_name, enum dtype dtype);

#endif
