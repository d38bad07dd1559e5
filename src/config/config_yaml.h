/*
 * config_yaml - a YAML text as a stream of sections and values with their places.
 *
 * Knows YAML and nothing of configuration keys. Refused here: what is not UTF-8, control
 * characters, syntax errors, several documents, anchors, aliases, tags, keys that are not
 * plain words, nesting over CONFIG_YAML_DEPTH, lists of anything but scalars.
 *
 * For src/config, and for who shows a configuration without knowing its keys; config_yaml.c
 * is the only file that includes <yaml.h>.
 */
#ifndef CONFIG_CONFIG_YAML_H
#define CONFIG_CONFIG_YAML_H

#include "base/base.h"
#include "base/error.h"

#define CONFIG_YAML_DEPTH 32
#define CONFIG_YAML_SEPARATOR '\x1f' // between the elements of a list, and in none

struct config_place { // counted from 1
    int line, column;
};

enum config_node_kind { NODE_SECTION, NODE_SCALAR, NODE_LIST };

struct config_node {
    enum config_node_kind kind;
    const char *path; // dotted, from the document's root
    struct config_place key_place, value_place;
    const char *text; // scalar, or a list's elements, none empty, with separators between
                      // them; NULL: section
    bool is_quoted;
};

/* Called for a section before what is in it; -1 with *err filled stops the reading. All
 * pointers of the node are valid during the call only. */
typedef int config_node_fn(void *context, const struct config_node *node,
                           struct error *err);

/* Hand every section and value of the n bytes at `text` to `fn`, in order; nothing is
 * handed over when the text is not one sound document. `name` stands for the file in
 * messages. */
MUST_CHECK int config_yaml_read(const char *name, const char *text, size_t n,
                                config_node_fn *fn, void *context, struct error *err);

/* A code point that is no text: control characters, and what YAML takes for an end of a
 * line or refuses. */
bool config_is_control(uint32_t code);

/* The n bytes are UTF-8 without control characters other than tab and line ends;
 * otherwise *err says which byte at which place. */
MUST_CHECK int config_check_bytes(const char *name, const char *text, size_t n,
                                  struct error *err);

#endif
