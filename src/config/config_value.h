/*
 * config_value - one value: text to member of struct config, and back.
 *
 * Numbers are read to the last character by strict rules of our own, so that "10x",
 * "1_000", "0o10" or "010" are answered instead of becoming something else.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_VALUE_H
#define CONFIG_CONFIG_VALUE_H

#include "config/config_keys.h"

#define CONFIG_SHOWN_BYTES 80 // of a user's text in a message

struct config_text { // borrowed, NUL-terminated, valid UTF-8
    const char *text;
    bool is_quoted; // quoted in the YAML: a string, whatever it looks like
    bool is_list;   // a YAML list of plain scalars, joined by commas
};

/* True for nothing at all, and for ~, null and None when not quoted. */
bool config_text_is_empty(const struct config_text *text);

/* Set the key's member from `text`, checking type and range. The sentence in *err has the
 * reason and the remedy, without place or key: the caller puts those in front. */
MUST_CHECK int config_value_set(const struct config_key *key, struct config *cfg,
                                const struct config_text *text, struct error *err);

/* The member as YAML text that config_value_set() reads back to the same bits. */
void config_value_text(const struct config_key *key, const struct config *cfg, char *buf,
                       size_t size);

/* True when this version can honour the member's value. */
bool config_value_works_now(const struct config_key *key, const struct config *cfg);

/* Every member := what its key has when nobody sets it; derived ones are 0. */
void config_set_defaults(struct config *cfg);

/* "an integer from 1 to 8", "one of cpu, gpu", ... */
void config_describe_type(const struct config_key *key, char *buf, size_t size);

/* A user's text for a message: shortened, control characters replaced. */
void config_show(const char *text, char buf[CONFIG_SHOWN_BYTES]);

/* The member itself; the type must be the key's. */
static inline void *config_member(const struct config_key *key, struct config *cfg)
{
    return (char *)cfg + key->offset;
}

static inline const void *config_member_const(const struct config_key *key,
                                              const struct config *cfg)
{
    return (const char *)cfg + key->offset;
}

#endif
