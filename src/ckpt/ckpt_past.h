/*
 * ckpt_past - the configuration of the checkpoint that a run will continue from.
 */
#ifndef CKPT_CKPT_PAST_H
#define CKPT_CKPT_PAST_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"

/* A config_past_fn. A directory without a readable checkpoint has none. */
MUST_CHECK int ckpt_past(const char *ckpt_dir, struct config_past *past,
                         struct error *err);

#endif
