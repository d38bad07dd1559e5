/*
 * checkpoints - when a run saves and where it starts from; ckpt_saver.h and ckpt_find.h
 * do the work. Every save is logged, and a failed one is an event in metrics.jsonl.
 */
#ifndef TRAIN_CHECKPOINTS_H
#define TRAIN_CHECKPOINTS_H

#include "train/plan.h"
#include "train/train.h"

/* Bytes of the copy that this process has for asynchronous saves; 0: none. */
size_t checkpoints_copy_bytes(const struct plan *plan, const struct config *cfg);

/* Lock output_dir and allocate what saves need; after usage_preflight(). [collective] */
MUST_CHECK int checkpoints_open(struct train *t, struct error *err);

/* Load the checkpoint that ckpt_dir means, if any, and say what changed since; or draw
 * initial weights. [collective] */
MUST_CHECK int checkpoints_restore(struct train *t, struct error *err);

/* Save the state as it is now. is_final: complete, or failed, when this returns.
 * [collective] */
MUST_CHECK int checkpoints_save(struct train *t, bool is_final, struct error *err);

/* The path of the checkpoint of the state as it is now. (local) */
MUST_CHECK int checkpoints_path(const struct train *t, char path[PATH_MAX],
                                struct error *err);
/* The path of this run's newest checkpoint before `step`, in output_dir or where it was
 * resumed from; false: there is none. (local) */
bool checkpoints_before(const struct train *t, int64_t step, char path[PATH_MAX]);

#endif
