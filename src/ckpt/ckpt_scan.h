/* ckpt_scan - the names of checkpoints, and which of them a directory holds. */
#ifndef CKPT_CKPT_SCAN_H
#define CKPT_CKPT_SCAN_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt.h"

#include <limits.h>

#define CKPT_NAME_BYTES 64
#define CKPT_TEMP_INFIX                                                                  \
    ".tmp-" // between the name of an unfinished checkpoint and a number
#define CKPT_DAMAGED_SUFFIX ".damaged"
#define CKPT_LATEST_NAME "latest"

struct ckpt_name {
    int64_t epoch;
    int64_t step;
    char text[CKPT_NAME_BYTES]; // "epoch_E_step_N"
};

struct ckpt_list { // by step, newest first
    struct ckpt_name *names;
    int64_t n_names;
};

struct ckpt_name ckpt_name_make(int64_t epoch, int64_t step);
/* False unless `text` is exactly a name that ckpt_name_make() makes. */
bool ckpt_name_parse(const char *text, struct ckpt_name *name);

MUST_CHECK int ckpt_scan(const char *dir, struct ckpt_list *list, struct error *err);
void ckpt_list_release(struct ckpt_list *list);

/* Whether dir/name looks like a checkpoint that says of itself what its name says: files
 * of the right sizes, whose content is not read. How far it is goes to *progress, without
 * its configuration (NULL: not wanted). An error that is not of kind ERROR_INPUT: it
 * cannot be told now. */
MUST_CHECK int ckpt_check(const char *dir, const struct ckpt_name *name,
                          struct ckpt_progress *progress, struct error *err);

/* Read every byte that sets [0, n_sets) of the checkpoint at `path` need; with all sets,
 * every byte of it. *is_damaged: it is not what was written. */
MUST_CHECK int ckpt_verify(const char *path, int n_sets, bool *is_damaged,
                           struct error *err);

/* Is the checkpoint at `path` called what it is? One that stands under another name than
 * epoch_E_step_N is. */
MUST_CHECK int ckpt_check_name(const char *path, const struct ckpt_progress *progress,
                               struct error *err);

/* -- which one to go on from --------------------------------------------------------- */

/* What a directory that a user names may stand for: one checkpoint, or the checkpoints in
 * it. Each is to be tried in turn until one can be loaded. */
struct ckpt_candidates {
    char dir[PATH_MAX];
    struct ckpt_list list; // n_names 0: `dir` itself is the checkpoint
    int64_t n_tried;
};

/* An error if there is none. */
MUST_CHECK int ckpt_candidates_open(struct ckpt_candidates *c, const char *ckpt_dir,
                                    struct error *err);
void ckpt_candidates_release(struct ckpt_candidates *c);
/* The next one to `path`; false: no more. */
bool ckpt_candidates_next(struct ckpt_candidates *c, char *path, size_t path_size);
/* One was taken, at `path`: warn if it is of a later step than the one saved last. */
void ckpt_candidates_warn(const struct ckpt_candidates *c, const char *path);
/* After the last: an error that quotes why the newest could not be loaded. */
int ckpt_candidates_none(const struct ckpt_candidates *c, const struct error *newest,
                         struct error *err);

/* Rename a damaged checkpoint to "PATH.damaged", or ".damaged-2" and so on where that is
 * taken, so that nobody tries it again; the new path to `aside`. */
MUST_CHECK int ckpt_set_aside(const char *path, char *aside, size_t size,
                              struct error *err);

#endif
