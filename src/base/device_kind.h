/*
 * device_kind - the devices by name: what the key `device` and the options of that name
 * say. device/device.h has what they are.
 */
#ifndef BASE_DEVICE_KIND_H
#define BASE_DEVICE_KIND_H

#include "base/base.h"
#include "base/error.h"

/* The name, and the end of the enumerator. */
#define DEVICE_KINDS(X)                                                                  \
    X("cpu", CPU)                                                                        \
    X("gpu", GPU)                                                                        \
    X("emulated", EMULATED)                                                              \
    X("xpu", XPU)

#define DEVICE_KIND_ENUMERATOR(name, id) DEVICE_##id,
enum device_kind { DEVICE_KINDS(DEVICE_KIND_ENUMERATOR) N_DEVICE_KINDS };

const char *device_kind_name(enum device_kind kind);
/* The device that the option --device names, one of those that there are; NULL: cpu. */
MUST_CHECK int device_kind_parse(enum device_kind *kind, const char *name,
                                 struct error *err);

#endif
