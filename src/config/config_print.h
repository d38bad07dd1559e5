/* config_print - values as text. Local to src/config; config.h has the whole. */
#ifndef CONFIG_CONFIG_PRINT_H
#define CONFIG_CONFIG_PRINT_H

#include "config/config_keys.h"

#define CONFIG_TEXT_BYTES (2 * CONFIG_LIST_BYTES + 8 * CONFIG_LIST_MOST) // of any value
#define CONFIG_REAL_DIGITS 17 // enough for every double to come back with the same bits

/* The member as YAML text that config_value_set() reads back to the same bits. */
void config_value_text(const struct config_key *key, const struct config *cfg, char *buf,
                       size_t size);

#endif
