/*
 * control_group - the control groups of this process: its own and all above it.
 *
 * Files are read below `root` instead of "/": proc/self/cgroup and sys/fs/cgroup. A group
 * that is not there, or not in this mount, limits nothing.
 */
#ifndef BASE_CONTROL_GROUP_H
#define BASE_CONTROL_GROUP_H

#include "base/base.h"

/* A limit that one group sets, by the files in `dir`. */
typedef double control_group_limit(const char *dir, const void *context);

/* The least `limit` of this process's group and of those above it; INFINITY if none is
 * found. `controller` is a controller of version 1, as "memory", or "" for version 2;
 * `mount` is below root. */
double control_group_least(const char *root, const char *controller, const char *mount,
                           control_group_limit *limit, const void *context);

/* The value of the nearest group that has one, this process's own first; INFINITY if none
 * has. The arguments are as above. */
double control_group_nearest(const char *root, const char *controller, const char *mount,
                             control_group_limit *limit, const void *context);

/* The processors that the quotas on this process's time amount to, as 1.5: INFINITY
 * without a quota. */
double control_group_processors(const char *root);

#endif
