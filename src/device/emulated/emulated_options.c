#include "device/emulated/emulated_options.h"

#include "device/emulated/emulated_block.h"
#include "device/emulated/emulated_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The whole of a decimal number, or -1. */
static int64_t number_of(const char *text)
{
    char *end;
    long long x = strtoll(text, &end, 10);
    return end == text || *end || x < 0 ? -1 : (int64_t)x;
}

static bool has_seed(const char *value, uint64_t *seed)
{
    static const char prefix[] = "random:";
    int64_t x = -1;
    if (strncmp(value, prefix, sizeof prefix - 1) == 0)
        x = number_of(value + sizeof prefix - 1);
    *seed = (uint64_t)x;
    return x >= 0;
}

int emulated_order(const char *value)
{
    uint64_t seed = 0;
    if (strcmp(value, "forward") == 0)
        block_order(ORDER_FORWARD, 0);
    else if (strcmp(value, "reverse") == 0)
        block_order(ORDER_REVERSE, 0);
    else if (has_seed(value, &seed))
        block_order(ORDER_RANDOM, seed);
    else
        return -1;
    return 0;
}

int emulated_streams(const char *value)
{
    static const struct {
        const char *value;
        enum stream_policy policy;
        enum stream_name preferred;
    } known[] = {
        {"eager", STREAMS_EAGER, STREAM_COMPUTE},
        {"late", STREAMS_LATE, STREAM_COMPUTE},
        {"prefer:compute", STREAMS_PREFER, STREAM_COMPUTE},
        {"prefer:comm", STREAMS_PREFER, STREAM_COMM},
        {"prefer:copy", STREAMS_PREFER, STREAM_COPY},
    };
    uint64_t seed = 0;
    if (has_seed(value, &seed)) {
        streams_policy(STREAMS_RANDOM, seed, STREAM_COMPUTE);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].value, value) == 0) {
            streams_policy(known[i].policy, 0, known[i].preferred);
            return 0;
        }
    return -1;
}

static int take_option(struct emulated_options *o, const char *key, const char *value)
{
    int64_t x = number_of(value);
    if (strcmp(key, "order") == 0)
        return emulated_order(value);
    if (strcmp(key, "streams") == 0)
        return emulated_streams(value);
    if (strcmp(key, "counters") == 0)
        return snprintf(o->counters, sizeof o->counters, "%s", value) <
                       (int)sizeof o->counters
                   ? 0
                   : -1;
    if (strcmp(key, "memory") == 0 && x > 0) {
        o->memory_bytes = (size_t)x * 1000000;
        return 0;
    }
    if (strcmp(key, "gpus") == 0 && x > 0 && x < 1000) {
        o->n_gpus = (int)x;
        return 0;
    }
    if (strcmp(key, "capability") == 0)
        return sscanf(value, "%2d.%1d", &o->major, &o->minor) == 2 ? 0 : -1;
    return -1;
}

int emulated_options_read(struct emulated_options *o, struct error *err)
{
    const char *text = getenv("TREFOIL_EMULATED");
    char words[2048], *rest = words, *option;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *o = (struct emulated_options){
        .memory_bytes = (size_t)pages * (size_t)page, .major = 8, .minor = 0};
    if (!text)
        return 0;
    if (snprintf(words, sizeof words, "%s", text) >= (int)sizeof words)
        return error_set(err, ERROR_INPUT, "TREFOIL_EMULATED is too long");
    while ((option = strsep(&rest, ","))) {
        char *value = strchr(option, '=');
        if (!*option)
            continue;
        if (value)
            *value++ = 0;
        if (!value || take_option(o, option, value))
            return error_set(err, ERROR_INPUT,
                             "TREFOIL_EMULATED has no '%s%s%s': it takes order, streams, "
                             "memory, gpus, capability and counters, as KEY=VALUE,...",
                             option, value ? "=" : "", value ? value : "");
    }
    return 0;
}
