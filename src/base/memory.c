/*
 * What a control group uses counts against its limit, except file pages that it can give
 * back.
 */
#include "base/memory.h"

#include "base/control_group.h"
#include "base/fs.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define UNKNOWN UINT64_MAX

/* The number that follows `label` at the start of a line of dir/name, or UNKNOWN. */
static uint64_t number_in(const char *dir, const char *name, const char *label)
{
    char path[PATH_MAX], line[1024];
    struct error ignored;
    unsigned long long value;
    uint64_t found = UNKNOWN;
    FILE *file = NULL;
    if (fs_join(path, sizeof path, dir, name, &ignored) == 0)
        file = fopen(path, "re");
    if (!file)
        return UNKNOWN;
    while (found == UNKNOWN && fgets(line, sizeof line, file)) {
        size_t n = strlen(label);
        if (strncmp(line, label, n) == 0 && sscanf(line + n, "%llu", &value) == 1)
            found = value;
    }
    fclose(file);
    return found;
}

/* -- used ---------------------------------------------------------------------------- */

static uint64_t status_bytes(const char *label)
{
    uint64_t kb = number_in("/proc/self", "status", label);
    return kb == UNKNOWN ? 0 : kb * 1024;
}

uint64_t memory_peak_bytes(void)
{
    return status_bytes("VmHWM:");
}

uint64_t memory_resident_bytes(void)
{
    return status_bytes("VmRSS:");
}

/* -- available ----------------------------------------------------------------------- */

/* The two generations of control groups, as they are mounted everywhere. */
struct group_kind {
    const char *controller; // "": version 2
    const char *mount;
    const char *limit, *usage; // files of a group
    const char *given_back;    // label in its memory.stat
    const char *events;        // the file that counts kills
};

static const struct group_kind group_kinds[] = {
    {"", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ",
     "memory.events"},
    {"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "memory.oom_control"},
};

static uint64_t less_to_zero(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Of one level. */
static double available_in_group(const char *dir, const void *context)
{
    const struct group_kind *kind = context;
    uint64_t limit = number_in(dir, kind->limit, ""); // "max" is no number: no limit
    uint64_t used = number_in(dir, kind->usage, "");
    uint64_t given_back = number_in(dir, "memory.stat", kind->given_back);
    if (limit == UNKNOWN)
        return (double)INFINITY;
    if (used == UNKNOWN)
        return (double)limit;
    if (given_back != UNKNOWN)
        used = less_to_zero(used, given_back);
    return (double)less_to_zero(limit, used);
}

uint64_t memory_available_under(const char *root)
{
    uint64_t kb = number_in(root, "proc/meminfo", "MemAvailable:");
    uint64_t least = kb == UNKNOWN ? UNKNOWN : kb * 1024;
    for (size_t i = 0; i < ARRAY_LEN(group_kinds); i++) {
        const struct group_kind *kind = &group_kinds[i];
        double here = control_group_least(root, kind->controller, kind->mount,
                                          available_in_group, kind);
        least = here < (double)least ? (uint64_t)here : least;
    }
    return least;
}

uint64_t memory_available_bytes(void)
{
    struct rlimit limit;
    uint64_t least = memory_available_under("");
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return least;
    uint64_t addresses = less_to_zero(limit.rlim_cur, status_bytes("VmSize:"));
    return addresses < least ? addresses : least;
}

/* -- kills --------------------------------------------------------------------------- */

static double oom_kills_of_group(const char *dir, const void *context)
{
    const struct group_kind *kind = context;
    uint64_t n = number_in(dir, kind->events, "oom_kill ");
    return n == UNKNOWN ? (double)INFINITY : (double)n;
}

uint64_t memory_oom_kills_under(const char *root)
{
    for (size_t i = 0; i < ARRAY_LEN(group_kinds); i++) {
        const struct group_kind *kind = &group_kinds[i];
        double n = control_group_nearest(root, kind->controller, kind->mount,
                                         oom_kills_of_group, kind);
        if (isfinite(n))
            return (uint64_t)n;
    }
    return number_in(root, "proc/vmstat", "oom_kill ");
}

uint64_t memory_oom_kills_of_machine(void)
{
    return number_in("", "proc/vmstat", "oom_kill ");
}

uint64_t memory_oom_kills(void)
{
    return memory_oom_kills_under("");
}
