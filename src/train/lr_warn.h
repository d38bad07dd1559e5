/*
 * lr_warn - learning rates that are probably not meant.
 */
#ifndef TRAIN_LR_WARN_H
#define TRAIN_LR_WARN_H

#include "config/config.h"

#include <jansson.h>

/* Log a warning when a run from `first_step` to max_steps ends inside its warm-up, or when
 * its highest rate is below 1 % of max_lr or 0. max_steps and decay_steps are known. */
void lr_warn(const struct config *cfg, int64_t first_step);

/* A run continues after `step`: log the next rate when it is not the one of the
 * checkpoint's configuration `then`. */
void lr_log_change(const struct config *cfg, const json_t *then, int64_t step);

#endif
