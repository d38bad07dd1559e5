/*
 * launch_devices - the list of --devices, as of PaddleFleetX's launcher: the GPUs of this
 * machine by their index, one for each rank, in the order of ranks.
 *
 * Ranks find their GPU by CUDA_VISIBLE_DEVICES, whose list the launcher replaces. Where
 * the variable is set already, an index counts in its list, so that a job stays within
 * the GPUs that a scheduler has given it. On a processor only the length counts.
 */
#ifndef LAUNCH_LAUNCH_DEVICES_H
#define LAUNCH_LAUNCH_DEVICES_H

#include "base/base.h"
#include "base/error.h"

#define LAUNCH_VISIBLE_BYTES 4096 // of CUDA_VISIBLE_DEVICES

/* How many ranks the list "0,1,2,3" is for, or -1 with *err: each element is an index, and
 * none comes twice. */
MUST_CHECK int64_t launch_devices_count(const char *devices, struct error *err);

/* buf := the list for CUDA_VISIBLE_DEVICES, which is `visible` now; NULL: not set. An error
 * if an index is beyond it. `devices` has been counted. */
MUST_CHECK int launch_devices_visible(const char *devices, const char *visible, char *buf,
                                      size_t size, struct error *err);

#endif
