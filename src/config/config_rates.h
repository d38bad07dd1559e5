/* config_rates - the keys of section Optimizer.lr. Local to src/config. */
#ifndef CONFIG_CONFIG_RATES_H
#define CONFIG_CONFIG_RATES_H

#include "config/config_check.h"

/* Fill the members of cfg->optimizer.lr that were left out. */
void config_rates_derive(struct config *cfg, const struct config_origins *origins);

/* Log a warning where max_lr is below min_lr. */
void config_rates_warn(const struct config *cfg, const struct config_origins *origins);

#endif
