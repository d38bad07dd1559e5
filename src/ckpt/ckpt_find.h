/*
 * ckpt_find - which checkpoint a directory that a user names stands for: itself, or the
 * newest one in it that is whole. Damaged ones are passed over.
 */
#ifndef CKPT_CKPT_FIND_H
#define CKPT_CKPT_FIND_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_store.h"
#include "comm/comm.h"

#include <limits.h>

/*
 * Which checkpoint `ckpt_dir` means to a reader of sets [0, n_sets) of tensors (the first
 * is the model's weights: ckpt_format.h), into `path`: itself, if it holds a trainer.json
 * (what is in it is then verified by whoever reads it); else the newest one in it whose
 * sets are valid to the last bit. Damaged ones are skipped with a warning that
 * says why. It is an error if there is none, or none valid, or if one cannot be read now.
 */
MUST_CHECK int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path,
                            size_t path_size, struct error *err);

/* The newest one that `dir` means whose manifest can be read, with its path: it stands
 * for the one that will be loaded, since whether its tensors are whole is found by the
 * ranks that read them. */
MUST_CHECK int ckpt_find_info(const char *dir, struct ckpt_info *info,
                              char path[PATH_MAX], struct error *err);

/*
 * All ranks of a job load the same checkpoint. Every rank reads its own part. One that is
 * damaged for one rank is damaged for all, and the next older one is tried.
 */
struct ckpt_load_newest {
    void *context;
    /* This rank's part of the checkpoint at `path`, all of it or nothing. *is_damaged,
     * false before: that is why it failed, and another may be better. (local) */
    int (*load)(void *context, const char *path, bool *is_damaged, struct error *err);
    /* One that is damaged is renamed (ckpt_set_aside()), so that nobody tries it again;
     * not one that the user named by itself. */
    bool sets_aside;
};

/* `dir` is a checkpoint or a directory of them; `path` becomes the one that was loaded.
 * An error if there is none, or none whole. [collective] */
MUST_CHECK int ckpt_load_newest(const struct ckpt_load_newest *what, struct comm *world,
                                const char *dir, char path[PATH_MAX], struct error *err);

#endif
