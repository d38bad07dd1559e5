/*
 * own_checkpoints - those of this run in output_dir, told from those of others that may
 * be there too by the identity that a run keeps in its checkpoints (ckpt_run_id_make()).
 */
#ifndef TRAIN_OWN_CHECKPOINTS_H
#define TRAIN_OWN_CHECKPOINTS_H

#include "train/train.h"

#include <limits.h>

/* Give a run that has no name yet one, the same on all ranks. [collective] */
MUST_CHECK int own_checkpoints_name_run(struct train *t, struct error *err);

/* Warn if output_dir holds checkpoints of other runs. (local) */
void own_checkpoints_warn_of_others(const struct train *t);

/* The path of the checkpoint of the state as it is now. (local) */
MUST_CHECK int own_checkpoints_path(const struct train *t, char path[PATH_MAX],
                                    struct error *err);

/* The path of this run's newest checkpoint before `step`, in output_dir or where it was
 * resumed from; false: there is none. (local) */
bool own_checkpoints_before(const struct train *t, int64_t step, char path[PATH_MAX]);

#endif
