/*
 * emulated_options - how the emulated device behaves, from the environment variable
 * TREFOIL_EMULATED: KEY=VALUE,...
 *
 *   order=forward|reverse|random:SEED     of threads between barriers, and of blocks
 *   streams=eager|late|random:SEED|prefer:compute|prefer:comm|prefer:copy
 *                                         what runs when, see emulated_streams.h
 *   memory=MEGABYTES                      that the device has; all of the host's
 *   gpus=NUMBER                           on this machine; as many as are asked for
 *   capability=MAJOR.MINOR                8.0
 *   counters=FILE                         one line of JSON is added to it at the end
 *
 * Whatever is chosen, the results are the same, or something is wrong with them.
 */
#ifndef DEVICE_EMULATED_EMULATED_OPTIONS_H
#define DEVICE_EMULATED_EMULATED_OPTIONS_H

#include "base/error.h"

struct emulated_options {
    size_t memory_bytes;
    int n_gpus; // 0: as many as are asked for
    int major, minor;
    char counters[512]; // file; "": none
};

/* Read the variable and set orders; the rest is given back. */
MUST_CHECK int emulated_options_read(struct emulated_options *o, struct error *err);

/* The values of order= and streams=, from now on; -1: no such value. */
MUST_CHECK int emulated_order(const char *value);
MUST_CHECK int emulated_streams(const char *value);

#endif
