/*
 * What a user who wrote an unknown key probably meant.
 *
 * First choice: the same leaf name in another section, because sections are what people
 * forget. Then the nearest name by edit distance, comparing whole paths, section names
 * and leaf names without regard to case, if it is near enough to be a slip of the hand.
 */
#include "config/config_keys.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

struct nearest {
    char name[CONFIG_NAME_BYTES];
    int distance; // as far as can still be a slip, until something nearer is found
};

static void keep_nearer(struct nearest *best, int distance, const char *name, int n)
{
    if (distance >= best->distance)
        return;
    snprintf(best->name, sizeof best->name, "%.*s", n, name);
    best->distance = distance;
}

/* A leaf name alone costs one more, so that a name of the right section wins. */
static void consider(struct nearest *best, const char *path, const char *candidate)
{
    int n = (int)strlen(candidate);
    char section[CONFIG_NAME_BYTES];
    if (strcmp(config_leaf(candidate), "*") != 0) {
        keep_nearer(best, text_distance(path, candidate), candidate, n);
        keep_nearer(best, text_distance(config_leaf(path), config_leaf(candidate)) + 1,
                    candidate, n);
    }
    for (const char *dot = strchr(candidate, '.'); dot; dot = strchr(dot + 1, '.')) {
        n = (int)(dot - candidate);
        snprintf(section, sizeof section, "%.*s", n, candidate);
        keep_nearer(best, text_distance(path, section), candidate, n);
    }
}

/* "did you mean 'a' or 'b'?" for the keys that end in the leaf of `path`. */
static bool suggest_same_leaf(const char *path, char *buf, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < config_n_keys; i++) {
        if (strcmp(config_leaf(config_keys[i].path), config_leaf(path)) != 0)
            continue;
        int n = snprintf(buf + used, size - used, "%s'%s'",
                         used ? " or " : "did you mean ", config_keys[i].path);
        used += (size_t)n;
        if (used + 2 > size)
            return true;
    }
    if (used)
        snprintf(buf + used, size - used, "?");
    return used > 0;
}

void config_suggest(const char *path, char *buf, size_t size)
{
    size_t n = strlen(path);
    struct nearest best = {"", (int)strlen(config_leaf(path)) / 3 + 2};
    snprintf(buf, size, "`trefoil config` lists all keys");
    if (n == 0 || n >= CONFIG_NAME_BYTES || suggest_same_leaf(path, buf, size))
        return;
    for (int i = 0; i < config_n_keys; i++)
        consider(&best, path, config_keys[i].path);
    for (int i = 0; i < config_n_aliases; i++)
        consider(&best, path, config_aliases[i].name);
    if (best.name[0])
        snprintf(buf, size, "did you mean '%s'?", best.name);
}
