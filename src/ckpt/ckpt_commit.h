/*
 * ckpt_commit - how a checkpoint comes to be, step by step, for jobs of any size.
 *
 *     one process   ckpt_commit_begin()      temporary directory and files
 *     all           ckpt_write_part()        each its slices, synced (ckpt_write.h)
 *     all           ckpt_gather_sums()       hashes to the one process
 *     one process   ckpt_commit_finish()     manifest, rename: now it exists
 *                   ckpt_tidy()              `latest`, old ones removed
 *                or ckpt_commit_abandon()    at any point before, on any failure
 *
 * Between the steps the processes agree that all of them succeeded.
 */
#ifndef CKPT_CKPT_COMMIT_H
#define CKPT_CKPT_COMMIT_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_layout.h"
#include "ckpt/ckpt_lock.h"
#include "ckpt/ckpt_scan.h"
#include "ckpt/ckpt_sum.h"
#include "comm/comm.h"

#include <limits.h>

struct ckpt_commit {
    const char *output_dir;           // borrowed, as the next two
    const struct ckpt_layout *layout; //
    const struct ckpt_lock *lock;     //
    struct ckpt_name name;
    char final[PATH_MAX];
    char temp[PATH_MAX]; // where all write
    bool has_temp;       // the directory at `temp` is ours to remove
    uint64_t needed_bytes;
};

/* Clear away what interrupted saves left in output_dir, and make the temporary directory
 * with its files. */
MUST_CHECK int ckpt_commit_begin(struct ckpt_commit *c, const char *output_dir,
                                 const struct ckpt_lock *lock,
                                 const struct ckpt_layout *layout,
                                 const struct ckpt_progress *progress, struct error *err);

/* All slices are written and synced, and `sums` has their hashes: make it the checkpoint
 * epoch_E_step_N. */
MUST_CHECK int ckpt_commit_finish(struct ckpt_commit *c,
                                  const struct ckpt_progress *progress,
                                  const struct ckpt_sums *sums, struct error *err);

/* Remove what was written, and turn the reason in *err into the sentence that a person
 * needs; returns -1. */
int ckpt_commit_abandon(struct ckpt_commit *c, struct error *err);

/* Note the checkpoint just saved in `latest`, remove those of the same run that need not
 * be kept. Failures are warnings. */
void ckpt_tidy(const char *output_dir, const struct ckpt_name *saved, const char *run_id,
               const struct ckpt_keep *keep);
/* The two halves of that. */
void ckpt_tidy_note(const char *output_dir, const struct ckpt_name *saved);
void ckpt_tidy_prune(const char *output_dir, const struct ckpt_name *saved,
                     const char *run_id, const struct ckpt_keep *keep);
/* Remove unfinished and discarded checkpoints. Only for who holds the lock. */
void ckpt_tidy_leftovers(const char *output_dir);
/* Give the checkpoint at `path` a name that is no checkpoint's, and remove it. */
void ckpt_tidy_discard(const char *output_dir, const char *path,
                       const struct ckpt_name *name);
/* The first half of that; the new path goes to `trash`. */
MUST_CHECK int ckpt_tidy_rename(const char *output_dir, const char *path,
                                const struct ckpt_name *name, char trash[PATH_MAX],
                                struct error *err);
void ckpt_tidy_remove(const char *trash);

/* The sums of all processes of the group, added up on rank 0. [collective] */
MUST_CHECK int ckpt_gather_sums(struct ckpt_sums *sums, struct comm *comm,
                                struct error *err);

#endif
