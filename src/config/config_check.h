/*
 * config_check - rules between keys: what was left out is derived, what was given must
 * agree, what this version cannot do is refused. Local to src/config.
 */
#ifndef CONFIG_CONFIG_CHECK_H
#define CONFIG_CONFIG_CHECK_H

#include "config/config_origin.h"

/* Refuse all values that need a later version, in one message with a line for each. */
MUST_CHECK int config_check_works_now(const struct config *cfg,
                                      const struct config_origins *origins,
                                      struct error *err);

/* Fill every member that is still waiting, for one process. */
MUST_CHECK int config_derive(struct config *cfg, const struct config_origins *origins,
                             int64_t n_processes, struct error *err);

/* Check complete members against each other. */
MUST_CHECK int config_check(const struct config *cfg,
                            const struct config_origins *origins, struct error *err);

/* Log what is accepted but probably not meant. */
void config_warn(const struct config *cfg, const struct config_origins *origins);

#endif
