/*
 * A control group can be limited at any level above the process, so all levels are read.
 */
#include "base/control_group.h"

#include "base/fs.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static FILE *open_in(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct error ignored;
    return fs_join(path, sizeof path, dir, name, &ignored) ? NULL : fopen(path, "re");
}

/* Whether the list "cpu,cpuacct" has `controller`; the list of version 2 is empty. */
static bool has_controller(const char *list, const char *controller)
{
    size_t n = strlen(controller);
    if (n == 0)
        return list[0] == '\0';
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* The path of this process's group, which begins with a slash; false if it has none. */
static bool find_group(char *group, size_t size, const char *root, const char *controller)
{
    char line[PATH_MAX];
    bool is_found = false;
    FILE *file = open_in(root, "proc/self/cgroup");
    if (!file)
        return false;
    while (!is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':');
        char *at = list ? strchr(list + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = 0;
        is_found = at[0] == '/' && has_controller(list + 1, controller) &&
                   snprintf(group, size, "%s", at) < (int)size;
    }
    fclose(file);
    return is_found;
}

/* The least value of all levels, or of the nearest level that has one. */
static double find_value(const char *root, const char *controller, const char *mount,
                         control_group_limit *limit, const void *context, bool is_nearest)
{
    char group[PATH_MAX], top[PATH_MAX], dir[PATH_MAX];
    struct error ignored;
    double least = (double)INFINITY;
    if (!find_group(group, sizeof group, root, controller) ||
        fs_join(top, sizeof top, root, mount, &ignored))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        if (fs_join(dir, sizeof dir, top, group[0] ? group + 1 : "", &ignored) == 0)
            least = fmin(least, limit(dir, context));
        if (is_nearest && isfinite(least))
            break;
    }
    return least;
}

double control_group_least(const char *root, const char *controller, const char *mount,
                           control_group_limit *limit, const void *context)
{
    return find_value(root, controller, mount, limit, context, false);
}

double control_group_nearest(const char *root, const char *controller, const char *mount,
                             control_group_limit *limit, const void *context)
{
    return find_value(root, controller, mount, limit, context, true);
}

/* -- time on processors -------------------------------------------------------------- */

static bool read_number(const char *dir, const char *name, double *value)
{
    FILE *file = open_in(dir, name);
    bool is_read = file && fscanf(file, "%lf", value) == 1;
    if (file)
        fclose(file);
    return is_read;
}

static double quota_over_period(double quota, double period)
{
    return quota > 0 && period > 0 ? quota / period : (double)INFINITY;
}

/* Version 2: "QUOTA PERIOD" in microseconds, or "max PERIOD". */
static double limit_of_max(const char *dir, const void *context)
{
    double quota = 0, period = 0;
    FILE *file = open_in(dir, "cpu.max");
    (void)context;
    if (!file)
        return (double)INFINITY;
    bool is_read = fscanf(file, "%lf %lf", &quota, &period) == 2;
    fclose(file);
    return is_read ? quota_over_period(quota, period) : (double)INFINITY;
}

/* Version 1: a quota of -1 is none. */
static double limit_of_cfs(const char *dir, const void *context)
{
    double quota, period;
    (void)context;
    if (!read_number(dir, "cpu.cfs_quota_us", &quota) ||
        !read_number(dir, "cpu.cfs_period_us", &period))
        return (double)INFINITY;
    return quota_over_period(quota, period);
}

double control_group_processors(const char *root)
{
    double least = control_group_least(root, "", "sys/fs/cgroup", limit_of_max, NULL);
    static const char *const mounts[] = {"sys/fs/cgroup/cpu",
                                         "sys/fs/cgroup/cpu,cpuacct"};
    for (size_t i = 0; i < ARRAY_LEN(mounts); i++)
        least =
            fmin(least, control_group_least(root, "cpu", mounts[i], limit_of_cfs, NULL));
    return least;
}
