/*
 * config_list - the values that are lists of any length: text to member and back.
 *
 * A list comes as YAML's, or as one scalar: one path, or numbers with commas between
 * them. Local to src/config; config_value.h has what callers need.
 */
#ifndef CONFIG_CONFIG_LIST_H
#define CONFIG_CONFIG_LIST_H

#include "config/config_value.h"

MUST_CHECK int config_paths_set(struct config_paths *paths,
                                const struct config_text *text, struct error *err);
/* `key` has the range of the numbers. */
MUST_CHECK int config_numbers_set(const struct config_key *key,
                                  struct config_numbers *numbers,
                                  const struct config_text *text, struct error *err);

/* As YAML: 'a' for one path, ['a', 'b'], [1.0, 2.5]. */
void config_paths_text(const struct config_paths *paths, char *buf, size_t size);
void config_numbers_text(const struct config_numbers *numbers, char *buf, size_t size);

#endif
