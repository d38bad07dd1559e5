/*
 * emulated_watch - for a checker of everything that touches device and shared memory:
 * tests put one in. Where there is one, blocks run on one thread of the system.
 */
#ifndef DEVICE_EMULATED_EMULATED_WATCH_H
#define DEVICE_EMULATED_EMULATED_WATCH_H

#include "device/gpu/gpu_runtime.h"

enum watched_access {
    ACCESS_READ,
    ACCESS_WRITE,
    ACCESS_COPY_BEGINS, // what is there is not known until it ends
    ACCESS_COPY_ENDS,
};

/* An operation, and for each stream the last one that it comes after, by order of streams,
 * events and what the host has waited for; counted from 1. Its own number is its own
 * stream's. */
struct stream_point {
    enum stream_name stream;
    uint32_t seen[N_STREAMS];
};

struct emulated_watch {
    void (*operation)(const struct stream_point *at); // runs now; NULL: has run
    void (*launch)(void);                             // of it begins
    void (*block)(void);                              // begins
    void (*barrier)(void);                            // was reached by all
    void (*warp)(uint32_t warp);                      // met, and memory is ordered
    void (*access)(const void *memory, size_t bytes, enum watched_access how);
};
extern const struct emulated_watch *emulated_watch;

#endif
