/*
 * Plug-ins that are none, or not ours, for test_plugin.c. One of these is defined:
 *   FAKE_VERSION "x"   of that version; FAKE_ABI n: built from other sources
 *   FAKE_EMPTY         has no symbol that we know
 *   FAKE_NEEDS         needs a library that is then nowhere
 */
#include "device/plugin.h"

#if defined(FAKE_EMPTY)
int trefoil_is_not_here(void);
int trefoil_is_not_here(void)
{
    return 0;
}
#else

#if defined(FAKE_NEEDS)
int fake_needed(void);
#endif

static int fake_open(struct device *dev, const struct device_request *r,
                     struct error *err)
{
    (void)dev;
    (void)r;
    return error_set(err, ERROR_RUNTIME, "the fake plug-in opens nothing");
}

/* What it was asked comes back. */
static int fake_look(int n_local, enum dtype dtype, struct error *err)
{
    return error_set(err, ERROR_INPUT, "the fake plug-in was asked for %d of %s", n_local,
                     dtype_name(dtype));
}

static uint64_t fake_abi(void)
{
#if defined(FAKE_ABI)
    return FAKE_ABI;
#elif defined(FAKE_NEEDS)
    return (uint64_t)fake_needed();
#else
    return plugin_abi();
#endif
}

extern const struct plugin trefoil_plugin;
const struct plugin trefoil_plugin = {
    .version = FAKE_VERSION,
    .abi = fake_abi,
    .open = fake_open,
    .look = fake_look,
};
#endif
