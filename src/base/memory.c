/*
 * A control group can limit memory at any level above the process, so all levels are
 * asked; what the group uses counts against it, except file pages it can give back.
 */
#include "base/memory.h"

#include "base/fs.h"

#include <limits.h>
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
    const char *controllers; // second field of its line in /proc/self/cgroup
    const char *mount;
    const char *limit, *usage; // files of a group
    const char *given_back;    // label in its memory.stat
};

static const struct group_kind group_kinds[] = {
    {"", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};

/* The path of this process's group, which begins with a slash; false if it has none. */
static bool find_group(char *group, size_t size, const char *root,
                       const struct group_kind *kind)
{
    char path[PATH_MAX], line[PATH_MAX];
    bool is_found = false;
    struct error ignored;
    FILE *file = NULL;
    if (fs_join(path, sizeof path, root, "proc/self/cgroup", &ignored) == 0)
        file = fopen(path, "re");
    if (!file)
        return false;
    while (!is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *at = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = 0;
        is_found = at[0] == '/' && strcmp(controllers + 1, kind->controllers) == 0 &&
                   snprintf(group, size, "%s", at) < (int)size;
    }
    fclose(file);
    return is_found;
}

static uint64_t less_to_zero(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Of one level; a group that is not there, or not in this mount, limits nothing. */
static uint64_t available_in_group(const char *dir, const struct group_kind *kind)
{
    uint64_t limit = number_in(dir, kind->limit, ""); // "max" is no number: no limit
    uint64_t used = number_in(dir, kind->usage, "");
    uint64_t given_back = number_in(dir, "memory.stat", kind->given_back);
    if (limit == UNKNOWN)
        return UNKNOWN;
    if (used == UNKNOWN)
        return limit;
    if (given_back != UNKNOWN)
        used = less_to_zero(used, given_back);
    return less_to_zero(limit, used);
}

static uint64_t available_in_groups(const char *root, const struct group_kind *kind)
{
    char group[PATH_MAX], mount[PATH_MAX], dir[PATH_MAX];
    struct error ignored;
    uint64_t least = UNKNOWN;
    if (!find_group(group, sizeof group, root, kind) ||
        fs_join(mount, sizeof mount, root, kind->mount, &ignored))
        return UNKNOWN;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        if (fs_join(dir, sizeof dir, mount, group[0] ? group + 1 : "", &ignored))
            continue;
        uint64_t here = available_in_group(dir, kind);
        least = here < least ? here : least;
    }
    return least;
}

uint64_t memory_available_under(const char *root)
{
    uint64_t kb = number_in(root, "proc/meminfo", "MemAvailable:");
    uint64_t least = kb == UNKNOWN ? UNKNOWN : kb * 1024;
    for (size_t i = 0; i < ARRAY_LEN(group_kinds); i++) {
        uint64_t here = available_in_groups(root, &group_kinds[i]);
        least = here < least ? here : least;
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
