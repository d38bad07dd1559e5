/*
 * load_newest - all ranks of a job load the same checkpoint: the newest that is whole.
 *
 * Every rank reads its own part. One that is damaged for one rank is damaged for all, and
 * the next older one is tried.
 */
#ifndef TRAIN_LOAD_NEWEST_H
#define TRAIN_LOAD_NEWEST_H

#include "base/error.h"
#include "comm/comm.h"

#include <limits.h>

struct load_newest {
    void *context;
    /* This rank's part of the checkpoint at `path`, all of it or nothing. *is_damaged,
     * false before: that is why it failed, and another may be better. (local) */
    int (*load)(void *context, const char *path, bool *is_damaged, struct error *err);
    /* On rank 0: a damaged one is passed over. Not called for a checkpoint that the user
     * named by itself. */
    void (*skip)(void *context, const char *path, const struct error *why);
};

/* `dir` is a checkpoint or a directory of them; `path` becomes the one that was loaded.
 * An error if there is none, or none whole. [collective] */
MUST_CHECK int load_newest(const struct load_newest *what, struct comm *world,
                           const char *dir, char path[PATH_MAX], struct error *err);

#endif
