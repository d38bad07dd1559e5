/*
 * config_value - one value: text to member of struct config.
 *
 * Numbers are read to the last character by strict rules of our own, so that "10x",
 * "1_000", "0o10" or "010" are answered instead of becoming something else.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_VALUE_H
#define CONFIG_CONFIG_VALUE_H

#include "config/config_keys.h"
#include "config/config_yaml.h"

#define CONFIG_SHOWN_BYTES 80 // of a user's text in a message

struct config_text { // borrowed, NUL-terminated, valid UTF-8
    const char *text;
    bool is_quoted; // quoted in the YAML: a string, whatever it looks like
    bool is_list;   // of plain scalars, CONFIG_YAML_SEPARATOR between them
};

/* True for nothing at all, and for ~, null and None when not quoted. */
bool config_text_is_empty(const struct config_text *text);

/* Set the key's member from `text`, checking type and range. The sentence in *err has the
 * reason and the remedy, without place or key: the caller puts those in front. */
MUST_CHECK int config_value_set(const struct config_key *key, struct config *cfg,
                                const struct config_text *text, struct error *err);

/* `text` is how the user wrote `value`. */
MUST_CHECK int config_check_range(const struct config_key *key, double value,
                                  const char *text, struct error *err);
/* The n bytes may be a TEXT or an element of PATHS and TEXTS. */
MUST_CHECK int config_check_text(const char *text, size_t n, struct error *err);
/* Whether the value is a list of any length. */
bool config_is_list(const struct config_key *key);
/* "an integer from 1 to 8", "one of cpu, gpu", ... */
void config_describe_type(const struct config_key *key, char *buf, size_t size);

/* A user's text for a message: shortened, control characters replaced, commas between
 * the elements of a list. */
void config_show(const char *text, char buf[CONFIG_SHOWN_BYTES]);

#endif
