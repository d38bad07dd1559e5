/*
 * weight - a matrix of parameters, or of their gradients, as kernels take it: its storage
 * and the forms that a device packs it into.
 *
 * Whoever owns the storage fills it in (params.h) and raises `version` when what lies
 * there has changed: after an update, a gather or a load. Packed forms of an older
 * version are stale. A vector is a matrix of one row.
 */
#ifndef DEVICE_WEIGHT_H
#define DEVICE_WEIGHT_H

#include "base/base.h"
#include "base/dtype.h"

struct weight {
    void *data; // (rows, cols), row-major; NULL: not here now
    enum dtype dtype;
    int64_t rows, cols;
    uint64_t version;
    void *packed;            // the device's own form of it; NULL: it has made none
    uint64_t packed_version; // of the data it was made of; another than version: stale
};

#endif
