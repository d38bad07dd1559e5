/*
 * config_keys - the one table of configuration keys.
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
#define CONFIG_NAME_BYTES 128     // a dotted path; longer ones are unknown keys

enum config_type {
    CONFIG_INT,     // int64_t
    CONFIG_FLOAT,   // double
    CONFIG_BOOL,    // bool
    CONFIG_TRUTH,   // enum config_truth: a bool that may be left empty
    CONFIG_ENUM,    // an enum of config.h
    CONFIG_TEXT,    // char[CONFIG_PATH_BYTES]
    CONFIG_WEIGHTS, // double[CONFIG_MAX_SPLIT]
    CONFIG_SHAPE,   // int64_t[CONFIG_SHAPE_DIMS]
    CONFIG_PATHS,   // struct config_paths
    CONFIG_TEXTS,   // struct config_paths too, of any texts; may be empty
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
                         // does not say all; NULL: it does
    const char *sectioned_default; // in a file with one of config_sectioned; NULL: the
                                   // same
    const char *tutorial_default;  // in a file with one of config_is_of_tutorial; NULL:
                                   // the same
    const char *former; // the value, as YAML, that a key that was left out had in version
                        // 2.0.0; NULL: the same as today. See below
};

/*
 * A run that continues from a checkpoint keeps its behaviour although the default of a key
 * has changed since: config_resume() gives the key `former` when
 *   - the key was left out (an empty value counts as none, unless the row has
 *     `empty`), and
 *   - the checkpoint's configuration has `former` there, or lacks the key because the key
 *     is newer than the checkpoint.
 * This precedes whatever is derived from the value, and the key then counts as given. One
 * line of the log names the keys whose values differ from today's defaults. A checkpoint
 * of an imported model (step 0) decides keys of the section Model only. The rule depends
 * on values, not on versions, so it also holds for the checkpoints that such a run saves.
 *
 * config_from_json(), which reads a checkpoint's configuration to use its model, gives
 * `former` to a key that is missing.
 *
 * A row whose default changes, or a new row whose default is not the behaviour of 2.0.0 in
 * every form of file, needs `former`.
 */

extern const struct config_key config_keys[];
extern const int config_n_keys;
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
