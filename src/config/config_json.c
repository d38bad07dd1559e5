/*
 * The configuration as JSON, nested by section as the YAML is. Reading goes through the
 * same config_value_set() as YAML, so types and ranges hold here too.
 */
#include "config/config_check.h"
#include "config/config_value.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define REAL_DIGITS 17 // enough for every double to come back with the same bits

/* The object that holds the key's leaf, made on the way when it is not there. */
static json_t *object_for(json_t *root, const char *path)
{
    char name[CONFIG_NAME_BYTES];
    json_t *at = root;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        json_t *next = json_object_get(at, name);
        if (!next) {
            next = json_object();
            CHECK(json_object_set_new(at, name, next) == 0, "out of memory");
        }
        at = next;
    }
    return at;
}

/* One path is a string, as it is in YAML. */
static json_t *paths_to_json(const struct config_paths *paths)
{
    if (paths->n_paths == 1)
        return json_string(paths->bytes);
    json_t *list = json_array();
    for (int64_t i = 0; i < paths->n_paths; i++)
        CHECK(json_array_append_new(list, json_string(config_path_at(paths, i))) == 0,
              "out of memory");
    return list;
}

static json_t *numbers_to_json(const struct config_numbers *numbers)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < numbers->n_values; i++)
        CHECK(json_array_append_new(list, json_real(numbers->values[i])) == 0,
              "out of memory");
    return list;
}

static json_t *value_to_json(const struct config_key *key, const struct config *cfg)
{
    char text[CONFIG_SHOWN_BYTES];
    const void *member = config_member_const(key, cfg);
    const int64_t *ints = member;
    const double *reals = member;
    switch (key->type) {
    case CONFIG_INT:
        return json_integer(*ints);
    case CONFIG_FLOAT:
        return json_real(*reals);
    case CONFIG_BOOL:
        return json_boolean(*(const bool *)member);
    case CONFIG_ENUM:
        config_value_text(key, cfg, text, sizeof text);
        return json_string(text);
    case CONFIG_TEXT:
        return json_string(member);
    case CONFIG_WEIGHTS:
        return json_pack("[f,f,f]", reals[0], reals[1], reals[2]);
    case CONFIG_PATHS:
        return paths_to_json(member);
    case CONFIG_NUMBERS:
        return numbers_to_json(member);
    case CONFIG_SHAPE:
        return json_pack("[I,I,I]", (json_int_t)ints[0], (json_int_t)ints[1],
                         (json_int_t)ints[2]);
    }
    return NULL;
}

char *config_to_json(const struct config *cfg)
{
    json_t *root = json_object();
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        json_t *value = value_to_json(key, cfg);
        int rc = json_object_set_new(object_for(root, key->path), config_leaf(key->path),
                                     value);
        CHECK(rc == 0, "cannot make JSON of '%s'", key->path);
    }
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(REAL_DIGITS));
    json_decref(root);
    CHECK(text, "out of memory");
    return text;
}

/* -- back -----------------------------------------------------------------------------
 */

static bool scalar_text(const json_t *value, char *buf, size_t size)
{
    int n = -1;
    if (json_is_integer(value))
        n = snprintf(buf, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        n = snprintf(buf, size, "%.*g", REAL_DIGITS, json_real_value(value));
    else if (json_is_boolean(value))
        n = snprintf(buf, size, "%s", json_is_true(value) ? "True" : "False");
    else if (json_is_string(value) &&
             strlen(json_string_value(value)) == json_string_length(value))
        n = snprintf(buf, size, "%s", json_string_value(value));
    return n >= 0 && (size_t)n < size;
}

static bool list_text(const json_t *list, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char element[CONFIG_PATH_BYTES];
        const char separator[] = {i ? CONFIG_YAML_SEPARATOR : 0, 0};
        const json_t *value = json_array_get(list, i);
        bool is_plain = json_is_number(value) || json_is_string(value);
        if (!is_plain || !scalar_text(value, element, sizeof element) || !element[0] ||
            strchr(element, CONFIG_YAML_SEPARATOR))
            return false;
        int n = snprintf(buf + used, size - used, "%s%s", separator, element);
        used += (size_t)n;
        if (used >= size)
            return false;
    }
    return true;
}

static int set_from_json(const struct config_key *key, struct config *cfg,
                         const json_t *value, struct error *err)
{
    char buf[2 * CONFIG_LIST_BYTES];
    struct config_text text = {buf, json_is_string(value), json_is_array(value)};
    struct error reason;
    bool is_text = text.is_list ? list_text(value, buf, sizeof buf)
                                : scalar_text(value, buf, sizeof buf);
    if (!is_text)
        return error_set(err, ERROR_INPUT,
                         "configuration JSON: %s: neither a number, a truth value, a "
                         "short string nor a short list of numbers or strings",
                         key->path);
    if (config_value_set(key, cfg, &text, &reason))
        return error_set(err, ERROR_INPUT, "configuration JSON: %s: %s", key->path,
                         reason.text);
    return 0;
}

/* Every member of `object` must be a key or a section; sets the keys, marks them. */
static int read_object(struct config *cfg, const json_t *object, const char *prefix,
                       bool has_key[CONFIG_KEYS_MAX], struct error *err)
{
    const char *name;
    json_t *value;
    const struct config_alias *alias;
    json_object_foreach((json_t *)object, name, value)
    {
        char path[2 * CONFIG_NAME_BYTES], shown[CONFIG_SHOWN_BYTES];
        snprintf(path, sizeof path, "%s%s%.*s", prefix, prefix[0] ? "." : "",
                 CONFIG_NAME_BYTES, name);
        const struct config_key *key = config_find(path, &alias);
        if (key && !alias) {
            has_key[key - config_keys] = true;
            if (set_from_json(key, cfg, value, err))
                return -1;
        } else if (json_is_object(value) && config_is_section(path)) {
            if (read_object(cfg, value, path, has_key, err))
                return -1;
        } else {
            config_show(path, shown);
            return error_set(err, ERROR_INPUT,
                             "configuration JSON: '%s' is not a known key", shown);
        }
    }
    return 0;
}

/* All keys at once: the origin of a whole JSON is the JSON. */
static int check_all(const struct config *cfg, struct error *err)
{
    struct config_origins origins = {.json = "configuration JSON"};
    for (int i = 0; i < config_n_keys; i++)
        origins.of[i].source = SOURCE_JSON;
    if (config_check_works_now(cfg, &origins, err))
        return -1;
    return config_check(cfg, &origins, err);
}

int config_from_json(struct config *cfg, const char *json, struct error *err)
{
    bool has_key[CONFIG_KEYS_MAX] = {false};
    json_error_t where;
    int rc = -1;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(err, ERROR_INPUT, "configuration JSON: line %d, column %d: %s",
                         where.line, where.column, where.text);
    config_set_defaults(cfg);
    if (!json_is_object(root)) {
        error_set(err, ERROR_INPUT, "configuration JSON: not an object");
        goto done;
    }
    if (read_object(cfg, root, "", has_key, err))
        goto done;
    // a key that is younger than the text has its default; the model must be all there
    for (int i = 0; i < config_n_keys; i++)
        if (!has_key[i] && strncmp(config_keys[i].path, "Model.", 6) == 0) {
            error_set(err, ERROR_INPUT, "configuration JSON: '%s' is missing",
                      config_keys[i].path);
            goto done;
        }
    rc = check_all(cfg, err);
done:
    json_decref(root);
    return rc;
}
