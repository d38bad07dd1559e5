/*
 * config_check - who gave each key its value, so that every message can point there, and
 * the rules between keys: what was left out is derived, what was given must agree, what
 * this version cannot do is refused.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_CHECK_H
#define CONFIG_CONFIG_CHECK_H

#include "config/config_names.h"
#include "config/config_yaml.h"

/* -- origins ------------------------------------------------------------------------- */

#define CONFIG_WHERE_BYTES 256

enum config_source {
    SOURCE_DEFAULT, // nobody: the key has its default or waits to be derived
    SOURCE_FILE,
    SOURCE_OPTION,     // -o
    SOURCE_CHECKPOINT, // the one to continue from: the default has changed since
};

struct config_origin {
    enum config_source source;
    struct config_place place;    // of the value, SOURCE_FILE
    const char *file;             // as shown in messages, borrowed, SOURCE_FILE
    const char *option;           // "key=value" as given, borrowed, SOURCE_OPTION
    int layer;                    // the higher one overrides; 0: nobody gave it
    bool is_empty;                // written with nothing after it
    char name[CONFIG_NAME_BYTES]; // as it was given; "": the key's path
};

struct config_origins {       // of all keys; a whole that knows no places gives every key
    const char *whole;        // not NULL: what stands for the whole in messages, borrowed
    struct config_origin *of; // otherwise one for each key, borrowed
};

/* True when somebody gave the key a value: what is derived must agree with it. */
bool config_was_given(const struct config_origins *origins, const struct config_key *key);

/* "file:3:7", "-o a=b", "default" or the name of the JSON into buf. */
void config_where(const struct config_origins *origins, const struct config_key *key,
                  char buf[CONFIG_WHERE_BYTES]);

/* One sentence about the value of `key`: "where: path: sentence". A key that nobody gave
 * is not the culprit: then the place is that of `other`, the key it disagrees with (or
 * NULL). Returns -1. */
int config_refuse(const struct config_origins *origins, const struct config_key *key,
                  const struct config_key *other, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* -- rules --------------------------------------------------------------------------- */

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
