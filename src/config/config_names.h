/*
 * config_names - the names of keys: their own, those of other systems' files, the names
 * that mean nothing here, and how a name is found.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_NAMES_H
#define CONFIG_CONFIG_NAMES_H

#include "config/config_keys.h"

/* Another name of a key, or of all keys of a section: "A.*" for "b.*". With `words`, its
 * values are other words too. */
struct config_alias {
    const char *name;
    const char *path;
    const char *words; // "theirs=ours|theirs=ours"; NULL: the key's own values
    const char *why;   // where the name comes from
    bool is_echo;      // says the key again, for evaluation: must agree, decides nothing
};

enum config_foreign_kind {
    FOREIGN_UNUSED,  // accepted with all that is below it, and named as not used
    FOREIGN_ONLY,    // accepted with one of `values`
    FOREIGN_REFUSED, // with all that is below it, unless its key "enable" is False
    FOREIGN_MIXED,   // True or False: whether 16 bits are used at all
};

/* A name of the original files that is no key here. Names are as config_canonical() makes
 * them. */
struct config_foreign {
    const char *name;
    enum config_foreign_kind kind;
    const char *values; // FOREIGN_ONLY: "a|b|c=|d=reason": c is accepted and named as not
                        // used, d is refused for a reason of its own
    const char *reason; // of a refusal: a sentence with its remedy
};

extern const struct config_alias config_aliases[];
extern const int config_n_aliases;
extern const struct config_foreign config_foreigns[];
extern const int config_n_foreigns;

/* True for the sections that only PaddleFleetX's files since August 2022 have,
 * which have other defaults. */
bool config_is_sectioned(const char *path);

/* True for the names of the Colossal-AI tutorial that make a file one of its form, which
 * has other defaults. */
bool config_is_of_tutorial(const char *path);

/* The last part of a dotted path. */
const char *config_leaf(const char *path);

/* `path` without a leading root; "" for the root itself. */
const char *config_strip_root(const char *path);

/* The key called `path` (no root), by its own path or an alias; *alias is which alias,
 * or NULL. NULL when there is none. */
const struct config_key *config_find(const char *path, const struct config_alias **alias);

/* `path` with a section of another name replaced by ours: "Engine.save_load.x" is
 * "save_load.x". */
void config_canonical(const char *path, char buf[CONFIG_NAME_BYTES]);

/* The row of a name that is no key, or of the section it is in; NULL: none. */
const struct config_foreign *config_find_foreign(const char *path);

/* The row whose last part is the first part of `path`, for an option without its section.
 * `full` is `path` with the section. NULL: none, or rows of different meanings. */
const struct config_foreign *config_complete_foreign(const char *path,
                                                     char full[CONFIG_NAME_BYTES]);

/* As config_find(), and also by a leaf name that only one key has. */
const struct config_key *config_find_loose(const char *path,
                                           const struct config_alias **alias);

/* True when some key or alias lies below `path`. */
bool config_is_section(const char *path);

/* The remedy for an unknown `path`: "did you mean ...?" or where to find the list. */
void config_suggest(const char *path, char *buf, size_t size);

/* The row of the key with this path, which must exist. */
const struct config_key *config_key_at(const char *path);

#endif
