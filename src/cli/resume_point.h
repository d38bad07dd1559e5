/*
 * resume_point - where a run of pretrain that died is to go on.
 *
 * The launcher asks before each start (launch.h). A run that has saved something since it
 * was first started goes on from the newest of that; one that has not is started as the
 * user started it. Checkpoints of an earlier run that were in output_dir before are none
 * of its own, unless the run was to continue those.
 */
#ifndef CLI_RESUME_POINT_H
#define CLI_RESUME_POINT_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_store.h"
#include "config/config.h"
#include "launch/launch.h"

#include <sys/types.h>
#include <time.h>

struct resume_mark { // of a directory that was there before: a name may pass to another
    ino_t inode;
    struct timespec changed;
};

struct resume_point {
    char output_dir[CONFIG_PATH_BYTES];
    struct ckpt_list before;   // in output_dir at first, not of this run
    struct resume_mark *marks; // (before.n_names)
    char **words;              // argv, then what makes it go on; NULL-terminated
    int n_argv;
    char setting[CONFIG_PATH_BYTES + 128]; // "save_load.ckpt_dir=..."
};

/* For the run that `argv` starts: the NULL-terminated words from the command's name on,
 * which are borrowed and mean *cfg. */
MUST_CHECK int resume_point_init(struct resume_point *r, const struct config *cfg,
                                 char *const *argv, struct error *err);
/* Zeros are fine too. */
void resume_point_release(struct resume_point *r);

/* For launch_options: `r` must stay where it is. */
struct launch_resume resume_point_for_launch(struct resume_point *r);

#endif
