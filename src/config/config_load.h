/*
 * config_load - a load under way: what is set so far and by whom.
 *
 * Files are layers: a file that names another as its `_base_` is laid over it, and the -o
 * options over all. A later layer overrides an earlier one whatever name it gives a key;
 * within one layer two names of a key must agree.
 *
 * Local to src/config.
 */
#ifndef CONFIG_CONFIG_LOAD_H
#define CONFIG_CONFIG_LOAD_H

#include "config/config_check.h"
#include "config/config_value.h"

#include <limits.h>

#define CONFIG_FILES_MOST 16  // that build on each other
#define CONFIG_FILE_SHOWN 160 // of a file's name; more would push out the message
#define CONFIG_OPTION_LAYER INT_MAX

struct config_target {
    struct config *cfg;
    struct config_origins origins;
};

struct config_foreign_use { // of one row
    bool is_seen;
    bool is_disabled; // by its "enable: False"
    int layer;
    char name[CONFIG_NAME_BYTES]; // as the user wrote it
    char where[CONFIG_WHERE_BYTES];
    const char *refusal;            // of its value, unless a later layer gives another;
    int n_refusal;                  // this many bytes of it. NULL: none
    char shown[CONFIG_SHOWN_BYTES]; // the value
};

struct config_loader {
    struct config_target ours;
    struct config_target echo;           // what was said again for evaluation
    struct config_foreign_use *foreigns; // one for each row of the table
    bool mixed;   // the value of mix_precision.enable, where it is seen
    bool is_scan; // only names that are no keys are noted, and no other error counts
    bool is_sectioned;
    bool is_of_tutorial; // a file has one of its names
    int n_files;
    struct {
        char shown[CONFIG_FILE_SHOWN];
        uint64_t device, inode; // 0: text that is no file
    } files[CONFIG_FILES_MOST];
};

/* A name and its value, as a user wrote them somewhere. */
struct config_given {
    const char *name;          // without the root
    const char *where;         // of the value, for messages
    struct config_origin from; // source, place, file, layer, option
    struct config_text text;
};

/* Give the key its value in its target; a message of failure points to the place. */
MUST_CHECK int config_apply(struct config_loader *l, const struct config_key *key,
                            const struct config_alias *alias,
                            const struct config_given *given, struct error *err);

/* The member has what it has when nobody sets it; a derived one waits as zeros. */
void config_reset_key(struct config_target *target, const struct config_key *key);

/* Give the member the value `text`, as YAML; NULL: zeros, to be derived. */
void config_set_default(const struct config_key *key, struct config *cfg,
                        const char *text);
/* All members of *cfg have their defaults; derived ones wait as zeros. */
void config_set_defaults(struct config *cfg);

static inline struct config_target *config_target_of(struct config_loader *l,
                                                     const struct config_alias *alias)
{
    return alias && alias->is_echo ? &l->echo : &l->ours;
}

#endif
