#include "base/device_kind.h"

#include <string.h>

#define DEVICE_KIND_NAME(name, id) name,

static const char *const names[] = {DEVICE_KINDS(DEVICE_KIND_NAME)};

const char *device_kind_name(enum device_kind kind)
{
    return names[kind];
}

int device_kind_parse(enum device_kind *kind, const char *name, struct error *err)
{
    *kind = DEVICE_CPU;
    for (int i = 0; name && i < N_DEVICE_KINDS; i++)
        if (strcmp(names[i], name) == 0)
            *kind = (enum device_kind)i;
    if (!name || (strcmp(names[*kind], name) == 0 && *kind != DEVICE_XPU))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "--device is '%s'; it must be one of cpu gpu emulated", name);
}
