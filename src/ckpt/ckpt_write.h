/*
 * ckpt_write - how a checkpoint comes to be, step by step, for jobs of any size.
 *
 *     one process   ckpt_commit_begin()      temporary directory and files
 *     all           ckpt_write_part()        each its slices, synced
 *     all           ckpt_gather_sums()       hashes to the one process
 *     one process   ckpt_commit_finish()     manifest, rename: now it exists
 *                   ckpt_latest_note(), ckpt_tidy_prune()
 *                or ckpt_commit_abandon()    at any point before, on any failure
 *
 * Between the steps the processes agree that all of them succeeded.
 */
#ifndef CKPT_CKPT_WRITE_H
#define CKPT_CKPT_WRITE_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_format.h"
#include "ckpt/ckpt_lock.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_store.h"
#include "comm/comm.h"

#include <limits.h>

/* Disk space of one checkpoint: never less than will be written. */
uint64_t ckpt_bytes(const struct param_table *table, const struct update_rule *rule);

struct ckpt_commit {
    const char *output_dir;           // borrowed, as the next two
    const struct ckpt_layout *layout; //
    const struct ckpt_lock *lock;     //
    struct ckpt_name name;
    char final[PATH_MAX];
    char temp[PATH_MAX]; // where all write
    bool has_temp;       // the directory at `temp` is ours to remove
    bool is_announced;   // ckpt_latest_announce() was called
    uint64_t needed_bytes;
};

/* Clear away what interrupted saves left in output_dir, and make the temporary directory
 * with its files. */
MUST_CHECK int ckpt_commit_begin(struct ckpt_commit *c, const char *output_dir,
                                 const struct ckpt_lock *lock,
                                 const struct ckpt_layout *layout,
                                 const struct ckpt_progress *progress, struct error *err);

/* Write the pieces of `part` in their places, add their hashes to `sums`, and sync the
 * files written to. The process that made the files syncs all of them: on a file system
 * of several machines nobody else can sync the headers it wrote. No messages, no state
 * but its arguments: it may run in a thread. */
MUST_CHECK int ckpt_write_part(const char *dir, const struct ckpt_layout *layout,
                               const struct ckpt_part *part,
                               const struct ckpt_source *source, bool is_maker,
                               struct ckpt_sums *sums, struct error *err);

/* The sums of all processes of the group, added up on rank 0. [collective] */
MUST_CHECK int ckpt_gather_sums(struct ckpt_sums *sums, struct comm *comm,
                                struct error *err);

/* All slices are written and synced, and `sums` has their hashes: make it the checkpoint
 * epoch_E_step_N. */
MUST_CHECK int ckpt_commit_finish(struct ckpt_commit *c,
                                  const struct ckpt_progress *progress,
                                  const struct ckpt_sums *sums, struct error *err);

/* Remove what was written, and turn the reason in *err into the sentence that a person
 * needs; returns -1. */
int ckpt_commit_abandon(struct ckpt_commit *c, struct error *err);

#endif
