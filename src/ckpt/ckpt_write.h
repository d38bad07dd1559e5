/*
 * ckpt_write - the files of a new checkpoint: made by one process, filled by all.
 *
 * No messages, no state but its arguments: ckpt_write_part() may run in a thread.
 */
#ifndef CKPT_CKPT_WRITE_H
#define CKPT_CKPT_WRITE_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_layout.h"
#include "ckpt/ckpt_part.h"
#include "ckpt/ckpt_sum.h"

/* Make the files in `dir`: headers written, room for the data taken, nothing synced. */
MUST_CHECK int ckpt_make_files(const char *dir, const struct ckpt_layout *layout,
                               struct error *err);

/* Write the pieces of `part` in their places, add their hashes to `sums`, and sync the
 * files written to. The process that made the files syncs all of them: on a file system
 * of several machines nobody else can sync the headers it wrote. */
MUST_CHECK int ckpt_write_part(const char *dir, const struct ckpt_layout *layout,
                               const struct ckpt_part *part,
                               const struct ckpt_source *source, bool is_maker,
                               struct ckpt_sums *sums, struct error *err);

#endif
