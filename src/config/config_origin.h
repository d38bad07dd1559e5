/*
 * config_origin - who gave each key its value, so that every message can point there.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_ORIGIN_H
#define CONFIG_CONFIG_ORIGIN_H

#include "config/config_keys.h"
#include "config/config_yaml.h"

#define CONFIG_WHERE_BYTES 256

enum config_source {
    SOURCE_DEFAULT, // nobody: the key has its default or waits to be derived
    SOURCE_FILE,
    SOURCE_OPTION, // -o
    SOURCE_JSON,   // config_from_json(), which knows no places
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

struct config_origins {
    const char *json; // what stands for the JSON in messages, borrowed, SOURCE_JSON
    struct config_origin of[CONFIG_KEYS_MAX];
};

/* The row of the key with this path, which must exist. */
const struct config_key *config_key_at(const char *path);

/* True when somebody gave the key a value: what is derived must agree with it. */
bool config_was_given(const struct config_origins *origins, const struct config_key *key);

/* The key as the user called it. */
const char *config_name_of(const struct config_origins *origins,
                           const struct config_key *key);

/* "file:3:7", "-o a=b", "default" or the name of the JSON into buf. */
void config_where(const struct config_origins *origins, const struct config_key *key,
                  char buf[CONFIG_WHERE_BYTES]);

/* One sentence about the value of `key`: "where: path: sentence". A key that nobody gave
 * is not the culprit: then the place is that of `other`, the key it disagrees with (or
 * NULL). Returns -1. */
int config_refuse(const struct config_origins *origins, const struct config_key *key,
                  const struct config_key *other, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

#endif
