/* config_json - values of keys in JSON. Local to src/config; config.h has the whole. */
#ifndef CONFIG_CONFIG_JSON_H
#define CONFIG_CONFIG_JSON_H

#include "config/config_keys.h"

#include <jansson.h>

/* Give the member of `key` this value. */
MUST_CHECK int config_json_set(const struct config_key *key, struct config *cfg,
                               const json_t *value, struct error *err);

/* The value of `key` in the JSON form of a configuration, borrowed; NULL: missing. */
json_t *config_json_find(const json_t *root, const struct config_key *key);

/* Put `value`, taken over, in the place of `key`. Its sections are made where there are none,
 * also in place of something that is no section. */
void config_json_put(json_t *root, const struct config_key *key, json_t *value);

#endif
