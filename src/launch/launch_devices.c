#include "launch/launch_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_MAX 99999
#define N_INDICES (INDEX_MAX + 1)
#define SPACES " \t"

/* The element at `at` of a list, without spaces around it; returns the one behind it, or
 * NULL after the last. */
static const char *next_element(const char *at, const char **first, int *n)
{
    size_t n_all = strcspn(at, ",");
    *first = at + strspn(at, SPACES);
    const char *end = at + n_all;
    while (end > *first && strchr(SPACES, end[-1]))
        end--;
    *n = end > *first ? (int)(end - *first) : 0;
    return at[n_all] ? at + n_all + 1 : NULL;
}

/* -1: it is not a number from 0 to INDEX_MAX. */
static int parse_index(const char *first, int n)
{
    int value = n > 0 ? 0 : -1;
    for (int i = 0; i < n && value >= 0; i++) {
        value = first[i] >= '0' && first[i] <= '9' ? value * 10 + (first[i] - '0') : -1;
        value = value > INDEX_MAX ? -1 : value;
    }
    return value;
}

int64_t launch_devices_count(const char *devices, struct error *err)
{
    const char *first, *at = devices;
    bool *is_seen = calloc(N_INDICES, sizeof *is_seen);
    int64_t count = 0;
    int n, index;
    if (!is_seen)
        return error_set(err, ERROR_RUNTIME, "out of memory for --devices");
    while (at && count >= 0) {
        at = next_element(at, &first, &n);
        index = parse_index(first, n);
        if (index >= 0 && !is_seen[index]) {
            is_seen[index] = true;
            count++;
            continue;
        }
        error_set(err, ERROR_INPUT,
                  "--devices '%.200s': number %lld of the list, '%.*s', %s; write the "
                  "indices of GPUs, one for each rank, as in 0,1 or 1,3",
                  devices, (long long)count + 1, n > 40 ? 40 : n, first,
                  index >= 0 ? "is there twice" : "is not an index from 0 to 99999");
        count = -1;
    }
    free(is_seen);
    return count;
}

/* Element number `index` of a list; false: it is shorter. */
static bool find_element(const char *list, int index, const char **first, int *n)
{
    const char *at = list;
    for (int i = 0; at; i++) {
        at = next_element(at, first, n);
        if (i == index)
            return *n > 0;
    }
    return false;
}

int launch_devices_visible(const char *devices, const char *visible, char *buf,
                           size_t size, struct error *err)
{
    const char *at = devices, *first, *name;
    size_t used = 0;
    int n, n_name;
    buf[0] = 0;
    while (at) {
        at = next_element(at, &first, &n);
        if (visible && !find_element(visible, parse_index(first, n), &name, &n_name))
            return error_set(err, ERROR_INPUT,
                             "--devices '%.200s': there is no GPU %.*s, because "
                             "CUDA_VISIBLE_DEVICES is '%.200s'; indices count from 0 in "
                             "its list",
                             devices, n, first, visible);
        if (!visible) {
            name = first;
            n_name = n;
        }
        used += (size_t)snprintf(buf + used, size - used, "%s%.*s", used ? "," : "",
                                 n_name, name);
        if (used >= size)
            return error_set(err, ERROR_INPUT, "--devices '%.200s...' is too long",
                             devices);
    }
    return 0;
}
