/* config_resume - values that a run keeps from the checkpoint it continues from. Local to
 * src/config; config_keys.h has the rule. */
#ifndef CONFIG_CONFIG_RESUME_H
#define CONFIG_CONFIG_RESUME_H

#include "config/config_load.h"

/* Apply the rule to *target, whose file and options have been read. Nothing happens
 * without save_load.ckpt_dir. */
MUST_CHECK int config_resume(struct config_target *target, config_past_fn *past,
                             struct error *err);

/* Whether config_resume() has given the key its value. */
static inline bool config_was_kept(const struct config_origins *origins,
                                   const struct config_key *key)
{
    return origins->of[key - config_keys].source == SOURCE_CHECKPOINT;
}

#endif
