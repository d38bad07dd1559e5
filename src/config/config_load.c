/*
 * The order of a load: defaults, the file, the -o options, then what this version cannot
 * do, then deriving, then the rules between keys. Each step sees complete input of the
 * one before it, so an error is about what the user wrote, not about a half-made state.
 */
#include "base/fs.h"
#include "config/config_check.h"
#include "config/config_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SECTIONS 32
#define MAX_FILE_SHOWN 160 // of a file's name; more of it would push out the message

struct loader {
    struct config *cfg;
    struct config_origins origins;
    struct { // sections met in the file, to find one that comes twice
        char path[CONFIG_NAME_BYTES];
        struct config_place place;
    } sections[MAX_SECTIONS];
    int n_sections;
};

/* -- one value ------------------------------------------------------------------------
 */

/* Give the member its default; a derived one waits as zeros. */
static void set_default(const struct config_key *key, struct config *cfg,
                        const char *text)
{
    struct config_text value = {.text = text};
    struct error err;
    if (text && config_value_set(key, cfg, &value, &err))
        CHECK(false, "default of '%s': %s", key->path, err.text);
}

void config_set_defaults(struct config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < config_n_keys; i++)
        set_default(&config_keys[i], cfg, config_keys[i].default_text);
}

/* An alias may have words of its own: "theirs=ours|theirs=ours". */
static int translate(const struct config_alias *alias, struct config_text *text,
                     char ours[CONFIG_NAME_BYTES], struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    size_t n_text = strlen(text->text);
    if (!alias || !alias->words)
        return 0;
    for (const char *p = alias->words; *p; p += strcspn(p, "|"), p += *p == '|') {
        size_t n_theirs = strcspn(p, "=");
        const char *word = p + n_theirs + 1;
        if (text->is_list || n_theirs != n_text || memcmp(p, text->text, n_text) != 0)
            continue;
        snprintf(ours, CONFIG_NAME_BYTES, "%.*s", (int)strcspn(word, "|"), word);
        *text = (struct config_text){.text = ours};
        return 0;
    }
    config_show(text->text, shown);
    return error_set(err, ERROR_INPUT, "'%s' is unknown: use %.*s, or leave it empty",
                     shown, (int)strcspn(alias->words, "="), alias->words);
}

/* Set the key from the text its origin has; the message of a failure points there. */
static int apply(struct loader *l, const struct config_key *key,
                 const struct config_alias *alias, struct config_text text,
                 struct error *err)
{
    struct error reason;
    char ours[CONFIG_NAME_BYTES];
    struct config_origin *origin = &l->origins.of[key - config_keys];
    origin->is_empty = config_text_is_empty(&text);
    if (origin->is_empty) {
        if (key->default_text)
            set_default(key, l->cfg, key->empty ? key->empty : key->default_text);
        else
            memset(config_member(key, l->cfg), 0, sizeof(int64_t));
        return 0;
    }
    if (translate(alias, &text, ours, &reason) ||
        config_value_set(key, l->cfg, &text, &reason))
        return config_refuse(&l->origins, key, NULL, err, "%s", reason.text);
    return 0;
}

/* -- the file -------------------------------------------------------------------------
 */

static int refuse_node(const struct loader *l, struct config_place at, struct error *err,
                       const char *path, const char *reason)
{
    char shown[CONFIG_SHOWN_BYTES];
    config_show(path, shown);
    return error_set(err, ERROR_INPUT, "%s:%d:%d: '%s' %s", l->origins.file, at.line,
                     at.column, shown, reason);
}

static int refuse_unknown(const struct loader *l, const struct config_node *node,
                          const char *path, struct error *err)
{
    char remedy[512], reason[600];
    config_suggest(path, remedy, sizeof remedy);
    snprintf(reason, sizeof reason, "is not a known key: %s", remedy);
    return refuse_node(l, node->key_place, err, path, reason);
}

static int enter_section(struct loader *l, const struct config_node *node,
                         const char *path, struct error *err)
{
    char reason[128];
    for (int i = 0; i < l->n_sections; i++)
        if (strcmp(l->sections[i].path, path) == 0) {
            snprintf(reason, sizeof reason,
                     "comes a second time, first in line %d: put its keys together",
                     l->sections[i].place.line);
            return refuse_node(l, node->key_place, err, node->path, reason);
        }
    CHECK(l->n_sections < MAX_SECTIONS, "more sections than the table of keys can have");
    snprintf(l->sections[l->n_sections].path, CONFIG_NAME_BYTES, "%s", path);
    l->sections[l->n_sections++].place = node->key_place;
    return 0;
}

static int set_from_node(struct loader *l, const struct config_key *key,
                         const struct config_alias *alias, const struct config_node *node,
                         struct error *err)
{
    char where[CONFIG_WHERE_BYTES], reason[CONFIG_WHERE_BYTES + 128];
    struct config_origin *origin = &l->origins.of[key - config_keys];
    if (origin->source != SOURCE_DEFAULT) {
        config_where(&l->origins, key, where);
        snprintf(reason, sizeof reason,
                 "is set a second time (%s, first at %s): remove one", key->path, where);
        return refuse_node(l, node->key_place, err, config_strip_root(node->path),
                           reason);
    }
    *origin = (struct config_origin){.source = SOURCE_FILE, .place = node->value_place};
    struct config_text text = {node->text, node->is_quoted, node->kind == NODE_LIST};
    return apply(l, key, alias, text, err);
}

static int on_node(void *context, const struct config_node *node, struct error *err)
{
    struct loader *l = context;
    const char *path = config_strip_root(node->path);
    const struct config_alias *alias;
    const struct config_key *key = config_find(path, &alias);
    char reason[300], wanted[256];
    if (key && node->kind == NODE_SECTION) {
        config_describe_type(key, wanted, sizeof wanted);
        snprintf(reason, sizeof reason, "takes %s, not keys of its own", wanted);
        return refuse_node(l, node->value_place, err, path, reason);
    }
    if (key)
        return set_from_node(l, key, alias, node, err);
    if (!config_is_section(path))
        return refuse_unknown(l, node, path, err);
    struct config_text text = {node->text, node->is_quoted, node->kind == NODE_LIST};
    if (node->kind != NODE_SECTION && !config_text_is_empty(&text))
        return refuse_node(l, node->value_place, err, node->path,
                           "is a section: write its keys in the lines below, indented");
    return enter_section(l, node, path, err);
}

/* -- options --------------------------------------------------------------------------
 */

struct list_option { // a list that is given by -o, while YAML reads it
    struct loader *loader;
    const struct config_key *key;
    const struct config_alias *alias;
    bool is_read; // so that what fails afterwards is the value, not the syntax
};

static int on_list_option(void *context, const struct config_node *node,
                          struct error *err)
{
    struct list_option *o = context;
    struct config_text text = {node->text, false, true};
    if (node->kind != NODE_LIST)
        return 0;
    o->is_read = true;
    return apply(o->loader, o->key, o->alias, text, err);
}

/* `value` begins with a bracket: it is a list as in a file, quotes and all. */
static int apply_list(struct loader *l, const struct config_key *key,
                      const struct config_alias *alias, const char *shown,
                      const char *value, struct error *err)
{
    struct list_option o = {l, key, alias, false};
    char *text = NULL;
    int n = asprintf(&text, "list: %s", value);
    if (n < 0)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    int rc = config_yaml_read("-o", text, (size_t)n, on_list_option, &o, err);
    free(text);
    if (rc == 0 || o.is_read)
        return rc;
    return error_set(err, ERROR_INPUT,
                     "-o %s: this is no list: write [a, b], with quotes around elements "
                     "that have commas or brackets in them",
                     shown);
}

static int apply_option(struct loader *l, const char *option, struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES], path[CONFIG_NAME_BYTES], remedy[512];
    const char *equals = strchr(option, '=');
    const struct config_alias *alias;
    config_show(option, shown);
    if (config_check_bytes("-o", option, strlen(option), err))
        return -1;
    if (!equals || equals == option)
        return error_set(err, ERROR_INPUT, "-o %s: write key=value", shown);
    snprintf(path, sizeof path, "%.*s", (int)i64_min(equals - option, INT32_MAX), option);
    const char *name = config_strip_root(path);
    const struct config_key *key = config_find_loose(name, &alias);
    if (!key && config_is_section(name))
        return error_set(err, ERROR_INPUT,
                         "-o %s: '%s' is a section: name one of its keys, as in "
                         "%s.key=value",
                         shown, name, name);
    if (!key) {
        config_suggest(name, remedy, sizeof remedy);
        return error_set(err, ERROR_INPUT, "-o %s: '%s' is not a known key: %s", shown,
                         name, remedy);
    }
    l->origins.of[key - config_keys] =
        (struct config_origin){.source = SOURCE_OPTION, .option = option};
    if (equals[1] == '[' && (key->type == CONFIG_PATHS || key->type == CONFIG_NUMBERS))
        return apply_list(l, key, alias, shown, equals + 1, err);
    return apply(l, key, alias, (struct config_text){.text = equals + 1}, err);
}

/* -- the whole ------------------------------------------------------------------------
 */

/* The end of a long path tells more than its beginning. */
static const char *shown_file(const char *path, char buf[MAX_FILE_SHOWN])
{
    size_t n = strlen(path);
    if (n < MAX_FILE_SHOWN)
        return path;
    snprintf(buf, MAX_FILE_SHOWN, "...%s", path + n - (MAX_FILE_SHOWN - 4));
    return buf;
}

static int load_text(struct config *cfg, const char *name, const char *text, size_t n,
                     char *const *overrides, int n_overrides, int64_t n_processes,
                     struct error *err)
{
    char shown[MAX_FILE_SHOWN];
    struct loader l = {.cfg = cfg, .origins.file = shown_file(name, shown)};
    config_set_defaults(cfg);
    if (n > CONFIG_MAX_BYTES)
        return error_set(err, ERROR_INPUT,
                         "%s: %zu bytes are too many for a configuration, which has at "
                         "most %d",
                         l.origins.file, n, CONFIG_MAX_BYTES);
    if (n > 0 && config_yaml_read(l.origins.file, text, n, on_node, &l, err))
        return -1;
    for (int i = 0; i < n_overrides; i++)
        if (apply_option(&l, overrides[i], err))
            return -1;
    if (config_check_works_now(cfg, &l.origins, err) ||
        config_derive(cfg, &l.origins, n_processes, err) ||
        config_check(cfg, &l.origins, err))
        return -1;
    config_warn(cfg, &l.origins);
    return 0;
}

int config_load_text(struct config *cfg, const char *name, const char *text, size_t n,
                     char *const *overrides, int n_overrides, struct error *err)
{
    return load_text(cfg, name, text, n, overrides, n_overrides, 1, err);
}

int config_load_for(struct config *cfg, const char *path, char *const *overrides,
                    int n_overrides, int64_t n_processes, struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    if (path && fs_read_all(path, CONFIG_MAX_BYTES, &text, &n, err))
        return -1;
    int rc = load_text(cfg, path ? path : "defaults", text, n, overrides, n_overrides,
                       n_processes, err);
    free(text);
    return rc;
}

int config_load(struct config *cfg, const char *path, char *const *overrides,
                int n_overrides, struct error *err)
{
    return config_load_for(cfg, path, overrides, n_overrides, 1, err);
}
