/*
 * ckpt_latest - which checkpoint of a directory was saved last.
 *
 *     latest        "NAME\n": the checkpoint that was saved last
 *     latest.next   "NAME HASH BEFORE\n": a commit that `latest` does not show yet. HASH
 *                   is the hash of the new trainer.json, BEFORE the name in `latest` at
 *                   the time of writing, or "-"
 *
 * A commit writes latest.next, renames the checkpoint to its final name, writes `latest`
 * and removes latest.next. A kill between any two of these steps leaves a state with one
 * answer: latest.next counts if the checkpoint under its name has its hash and `latest`
 * still says BEFORE. Otherwise the commit did not happen, or `latest` is newer.
 */
#ifndef CKPT_CKPT_LATEST_H
#define CKPT_CKPT_LATEST_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_store.h"

/* The checkpoint in `dir` that was saved last. *is_known false: no file names it, or not
 * in this form. It may be damaged or missing. An error: the files cannot be read now. */
MUST_CHECK int ckpt_latest_read(const char *dir, struct ckpt_name *name, bool *is_known,
                                struct error *err);

/* Before the commit of the checkpoint whose finished files are in `temp`. */
MUST_CHECK int ckpt_latest_announce(const char *dir, const struct ckpt_name *name,
                                    const char *temp, struct error *err);
/* The commit did not happen. */
void ckpt_latest_retract(const char *dir);
/* After the commit. A failure is a warning: the announcement still counts. */
void ckpt_latest_note(const char *dir, const struct ckpt_name *name);
/* Before the next save: finish the work of a process killed between commit and note. */
void ckpt_latest_settle(const char *dir);

#endif
