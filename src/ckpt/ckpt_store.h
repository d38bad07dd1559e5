/*
 * ckpt_store - a directory of checkpoints: their names, which of them there are and
 * whether they are whole, whose they are, and what is removed.
 *
 * Checkpoints are found by listing the directory, ordered by the step in their names, and
 * believed only after their own hashes; time stamps do not matter. Names of unfinished or
 * discarded ones (".tmp-", ".trash-") do not parse. ckpt_latest.h has the one saved last,
 * ckpt_find.h the one that a directory stands for.
 */
#ifndef CKPT_CKPT_STORE_H
#define CKPT_CKPT_STORE_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_manifest.h"

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

/* The highest step of which `dir` holds a checkpoint, going by names alone; -1: none. */
int64_t ckpt_newest_step(const char *dir);

/* -- is it whole? -------------------------------------------------------------------- */

/* Whether dir/name looks like a checkpoint that says of itself what its name says: files
 * of the right sizes, whose content is not read. How far it is goes to *progress, without
 * its configuration (NULL: not wanted). An error that is not of kind ERROR_INPUT: it is
 * not known now. */
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

/* Rename a damaged checkpoint to "PATH.damaged", or ".damaged-2" and so on where that is
 * taken, so that nobody tries it again; the new path to `aside`. */
MUST_CHECK int ckpt_set_aside(const char *path, char *aside, size_t size,
                              struct error *err);

/*
 * A name for a run that begins in output_dir. The first run there is named by what it
 * computes, whatever the layout, so that the same state is the same bytes; one that
 * begins among the checkpoints of others gets a name that no other has.
 */
void ckpt_run_id_make(char id[CKPT_RUN_ID_BYTES], const char *output_dir,
                      const char *config_json, const char *data_fingerprint);

/* Warn if output_dir holds checkpoints of other runs than this one. */
void ckpt_warn_of_other_runs(const char *output_dir, const char *run_id);
/* The path of the newest checkpoint of the run before `step`; false: there is none. */
bool ckpt_find_own(const char *output_dir, const char *run_id, int64_t step,
                   char path[PATH_MAX]);

/* -- what a save leaves to be done around it ----------------------------------------- */

struct ckpt_keep { // which older checkpoints stay; 0 and 0: all
    int64_t last;  // the newest so many; 0: all
    int64_t every; // and those whose step is a multiple; 0: none
};

/* After a save: remove the checkpoints of the same run up to it that need not be kept and
 * do not look damaged. Failures are warnings. */
void ckpt_tidy_prune(const char *output_dir, const struct ckpt_name *saved,
                     const char *run_id, const struct ckpt_keep *keep);
/* Remove unfinished and discarded checkpoints. Requires the lock. */
void ckpt_tidy_leftovers(const char *output_dir);
/* Give the checkpoint at `path` a name that is no checkpoint's, and remove it. */
void ckpt_tidy_discard(const char *output_dir, const char *path,
                       const struct ckpt_name *name);
/* The first half of that; the new path goes to `trash`. */
MUST_CHECK int ckpt_tidy_rename(const char *output_dir, const char *path,
                                const struct ckpt_name *name, char trash[PATH_MAX],
                                struct error *err);
void ckpt_tidy_remove(const char *trash);

#endif
