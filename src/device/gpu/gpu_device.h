/*
 * gpu_device - a GPU as a device, and what its table of kernels needs of it: arrays of the
 * host for kernels, and results for the host.
 *
 * Each stream has a ring of memory, pinned on the host and on the device alike, that what
 * passes between them goes through, so that neither waits for the other. What was taken
 * of it is overwritten some megabytes later, in the order of the stream.
 */
#ifndef DEVICE_GPU_GPU_DEVICE_H
#define DEVICE_GPU_GPU_DEVICE_H

#include "device/device.h"

#define GPU_RING_MOST DEVICE_ARRAY_MOST // of one request, in bytes

/* Take the GPU of this process for a type. Fills in all of *dev but its name, kind, type
 * and streams. */
MUST_CHECK int gpu_device_open(struct device *dev, const struct device_request *r,
                               struct error *err);

/* What rings take of the device's memory, and of the host's. */
size_t gpu_rings_bytes(void);
size_t gpu_rings_host_bytes(void);

/* A copy of an array of the host in device memory, for kernels enqueued on `s` from now
 * on; the array may change at once. An array that is there already is not copied again.
 * Valid until GPU_RING_MOST bytes more were asked for on `s`. */
const void *gpu_upload(struct stream *s, const void *from, size_t bytes);
/* Device memory for what is enqueued on `s` next, not zeroed; valid likewise. */
void *gpu_scratch(struct stream *s, size_t bytes);
/* Device memory comes to the host: there once `s` was synchronised. */
void gpu_download(struct stream *s, void *to, const void *from, size_t bytes);

#endif
