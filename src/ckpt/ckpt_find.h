/*
 * ckpt_find - the checkpoint that a directory named by a user stands for: itself, or one
 * of those in it. Every command, a resumed run and the launcher use this rule:
 *
 *   1. The checkpoint saved last comes first (ckpt_latest.h). A save counts from its
 *      commit on, even if a kill came before `latest` was updated.
 *   2. If it is damaged, the lower steps of the same run follow, from the highest down.
 *      The run is the run_id in trainer.json. Checkpoints of other runs are never tried.
 *   3. Where `latest` is missing or unreadable, all checkpoints are tried, from the
 *      highest step down.
 *
 * The run of a damaged checkpoint may be unknown (its trainer.json cannot be read). Then
 * the lower steps are tried if all other checkpoints are of one run and none has a higher
 * step; otherwise an error asks for the name of one. If the checkpoint that `latest`
 * names was removed, all others are tried if they are of one run.
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
 * (its content is then verified by its reader); else the first in the order above whose
 * sets are valid to the last bit. Damaged ones are skipped with a warning and the reason.
 * It is an error if there is none, or none valid, or if one cannot be read now.
 */
MUST_CHECK int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path,
                            size_t path_size, struct error *err);

/* The first one of `dir` whose manifest can be read, with its path. The ranks that read
 * its tensors may still find it damaged. Logs nothing: loading it reports the same. */
MUST_CHECK int ckpt_find_info(const char *dir, struct ckpt_info *info,
                              char path[PATH_MAX], struct error *err);

/* The names of the checkpoints in `dir`, in the order in which they are tried; none is
 * read, except to find the run of the first. An error if there is none. `warns`: log it
 * if `latest` names none of them. */
MUST_CHECK int ckpt_find_order(const char *dir, bool warns, struct ckpt_list *order,
                               struct error *err);

/*
 * All ranks of a job load the same checkpoint. Every rank reads its own part. One that is
 * damaged for one rank is damaged for all, and the next in the order above is tried.
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
