/*
 * config_keys - the one table of configuration keys (config_keys.c), the other names they
 * have and the names that mean nothing here (config_names.c), and how names are found.
 *
 * A row says everything about a key: where it stands in the YAML and in struct config,
 * its type, default, range, the values this version can honour, and its meaning. Parsing,
 * `-o`, checks, `trefoil config`, docs/config.md and trainer.json all follow from it.
 * A feature arrives by setting its row's `works_now` to NULL.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_KEYS_H
#define CONFIG_CONFIG_KEYS_H

#include "config/config.h"

#define CONFIG_ROOT "PreTraining" // optional in files and in -o
#define CONFIG_KEYS_MAX 96        // no table of this project grows past it
#define CONFIG_NAME_BYTES 128     // a dotted path; longer ones are unknown keys

enum config_type {
    CONFIG_INT,     // int64_t
    CONFIG_FLOAT,   // double
    CONFIG_BOOL,    // bool
    CONFIG_ENUM,    // an enum of config.h
    CONFIG_TEXT,    // char[CONFIG_PATH_BYTES]
    CONFIG_WEIGHTS, // double[CONFIG_MAX_SPLIT]
    CONFIG_SHAPE,   // int64_t[CONFIG_SHAPE_DIMS]
    CONFIG_PATHS,   // struct config_paths
    CONFIG_NUMBERS, // struct config_numbers
};

struct config_word { // {NULL, 0} ends a list; the first word of a value is its name
    const char *word;
    int value;
};

struct config_range { // of INT, FLOAT and the elements of WEIGHTS, SHAPE, NUMBERS
    double min, max;
    bool is_min_open, is_max_open; // the bound itself is outside
};

struct config_key {
    const char *path; // "Optimizer.lr.max_lr"
    enum config_type type;
    size_t offset;            // in struct config
    const char *default_text; // as YAML; NULL: derived, and all bytes 0 until then
    struct config_range range;
    const struct config_word *words; // ENUM only
    const char *works_now;           // the values of this version, "a|b"; NULL: all
    const char *meaning;             // one sentence
    const char *empty;   // the value when written with nothing after the colon; NULL:
                         // as when the key is absent
    const char *derived; // how a value that was left out comes about; NULL: it does not
    const char *without; // what a key that is left out has, in words, where default_text
                         // does not tell all; NULL: it does
    const char *sectioned_default; // in a file with one of config_sectioned; NULL: the
                                   // same
};

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

extern const struct config_key config_keys[];
extern const int config_n_keys;
extern const struct config_alias config_aliases[];
extern const int config_n_aliases;
extern const struct config_foreign config_foreigns[];
extern const int config_n_foreigns;

/* True for the sections that tell PaddleFleetX's files since August 2022 from older ones,
 * which have other defaults. */
bool config_is_sectioned(const char *path);

/* The last part of a dotted path. */
const char *config_leaf(const char *path);

/* `path` without a leading root; "" for the root itself. */
const char *config_strip_root(const char *path);

/* The key called `path` (no root), by its own path or an alias; *alias tells which alias,
 * or NULL. NULL when there is none. */
const struct config_key *config_find(const char *path, const struct config_alias **alias);

/* `path` with a section of another name replaced by ours: "Engine.save_load.x" is
 * "save_load.x". */
void config_canonical(const char *path, char buf[CONFIG_NAME_BYTES]);

/* The row of a name that is no key, or of the section it is in; NULL when there is none.
 */
const struct config_foreign *config_find_foreign(const char *path);

/* As config_find(), and also by a leaf name that only one key has. */
const struct config_key *config_find_loose(const char *path,
                                           const struct config_alias **alias);

/* True when some key or alias lies below `path`. */
bool config_is_section(const char *path);

/* The remedy for an unknown `path`: "did you mean ...?" or where to find the list. */
void config_suggest(const char *path, char *buf, size_t size);

#endif
