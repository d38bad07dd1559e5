/*
 * A configuration from the JSON text of a checkpoint. Values pass through the same
 * config_value_set() as those of YAML, so types and ranges hold here too.
 */
#include "config/config_json.h"

#include "config/config_load.h"
#include "config/config_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool scalar_text(const json_t *value, char *buf, size_t size)
{
    int n = -1;
    if (json_is_integer(value))
        n = snprintf(buf, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        n = snprintf(buf, size, "%.*g", CONFIG_REAL_DIGITS, json_real_value(value));
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

int config_json_set(const struct config_key *key, struct config *cfg, const json_t *value,
                    struct error *err)
{
    char buf[2 * CONFIG_LIST_BYTES];
    struct config_text text = {buf, json_is_string(value), json_is_array(value)};
    struct error reason;
    if (key->type == CONFIG_TRUTH && json_is_null(value)) {
        config_set_default(key, cfg, "");
        return 0;
    }
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

json_t *config_json_find(const json_t *root, const struct config_key *key)
{
    const json_t *object = root;
    const char *name = key->path, *leaf = config_leaf(key->path);
    while (name < leaf && object) {
        size_t n = strcspn(name, ".");
        object = json_object_getn(object, name, n);
        name += n + 1;
    }
    return json_object_get(object, leaf);
}

void config_json_put(json_t *root, const struct config_key *key, json_t *value)
{
    char name[CONFIG_NAME_BYTES];
    const char *path = key->path;
    json_t *at = root;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        json_t *next = json_object_get(at, name);
        if (!json_is_object(next)) { // nothing, or what a damaged text has there
            next = json_object();
            CHECK(json_object_set_new(at, name, next) == 0, "out of memory");
        }
        at = next;
    }
    CHECK(json_object_set_new(at, path, value) == 0, "cannot make JSON of '%s'",
          key->path);
}

/* Every member of `object` must be a key or a section; sets the keys. */
static int read_object(struct config *cfg, const json_t *object, const char *prefix,
                       struct error *err)
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
            if (config_json_set(key, cfg, value, err))
                return -1;
        } else if (json_is_object(value) && config_is_section(path)) {
            if (read_object(cfg, value, path, err))
                return -1;
        } else {
            config_show(path, shown);
            return error_set(err, ERROR_INPUT,
                             "configuration JSON: '%s' is not a known key", shown);
        }
    }
    return 0;
}

/* The values of version 2.0.0, as far as no other key decides them. */
static json_t *former_values(void)
{
    struct config *cfg = malloc(sizeof *cfg);
    CHECK(cfg, "out of memory");
    config_set_defaults(cfg);
    for (int i = 0; i < config_n_keys; i++)
        if (config_keys[i].former)
            config_set_default(&config_keys[i], cfg, config_keys[i].former);
    char *text = config_to_json(cfg);
    json_t *values = json_loads(text, 0, NULL);
    CHECK(values, "out of memory");
    free(text);
    free(cfg);
    return values;
}

char *config_complete_json(const char *json)
{
    json_t *root = json_loads(json, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    json_t *former = former_values();
    const struct config_key *embedding = config_key_at("Model.embed_drop_rate");
    const struct config_key *hidden = config_key_at("Model.hidden_dropout_prob");
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        json_t *value = NULL;
        if (key == embedding)
            value = config_json_find(root, hidden);
        else if (key->former || key->default_text)
            value = config_json_find(former, key);
        if (value && !config_json_find(root, key))
            config_json_put(root, key, json_incref(value));
    }
    char *text = json_dumps(root, JSON_REAL_PRECISION(CONFIG_REAL_DIGITS));
    json_decref(former);
    json_decref(root);
    return text;
}

int config_from_json(struct config *cfg, const char *json, struct error *err)
{
    const struct config_origins origins = {.whole = "configuration JSON"};
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
    if (read_object(cfg, root, "", err))
        goto done;
    const struct config_key *embedding = config_key_at("Model.embed_drop_rate");
    if (!config_json_find(root, embedding))
        cfg->model.embed_drop_rate = cfg->model.hidden_dropout_prob;
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (key == embedding || config_json_find(root, key))
            continue;
        if (strncmp(key->path, "Model.", 6) == 0 && !key->former) {
            error_set(err, ERROR_INPUT, "configuration JSON: '%s' is missing", key->path);
            goto done;
        }
        if (key->former) // the key is newer than the text
            config_set_default(key, cfg, key->former);
    }
    // the setting of a value has checked its range
    rc = config_check_works_now(cfg, &origins, err);
    if (rc == 0)
        rc = config_check(cfg, &origins, err);
done:
    json_decref(root);
    return rc;
}
