#include "config/config_list.h"

#include "config/config_number.h"

#include <stdio.h>
#include <string.h>

#define MAX_NUMBER_BYTES 64

const char *config_path_at(const struct config_paths *paths, int64_t i)
{
    const char *path = paths->bytes;
    CHECK(i >= 0 && i < paths->n_paths, "path %lld of %lld", (long long)i,
          (long long)paths->n_paths);
    for (; i > 0; i--)
        path += strlen(path) + 1;
    return path;
}

/* Add the n bytes at `text` as the next path; *used is what the others take. */
static int add_path(struct config_paths *paths, const char *text, size_t n, size_t *used,
                    struct error *err)
{
    if (config_check_text(text, n, err))
        return -1;
    if (paths->n_paths == CONFIG_LIST_MOST || *used + n + 1 > sizeof paths->bytes)
        return error_set(
            err, ERROR_INPUT,
            "the list is too long: use at most %d paths of %d bytes together",
            CONFIG_LIST_MOST, CONFIG_LIST_BYTES);
    memcpy(paths->bytes + *used, text, n);
    *used += n + 1;
    paths->n_paths++;
    return 0;
}

int config_paths_set(struct config_paths *paths, const struct config_text *text,
                     struct error *err)
{
    static const char separator[] = {CONFIG_YAML_SEPARATOR, 0};
    struct config_paths all = {0}; // so that a refused value leaves the member alone
    size_t used = 0;
    const char *p = text->text;
    if (text->is_list && !*p)
        return error_set(err, ERROR_INPUT, "the list is empty: name at least one path");
    while (p) {
        size_t n = text->is_list ? strcspn(p, separator) : strlen(p);
        if (add_path(&all, p, n, &used, err))
            return error_prefix(err, "path %lld", (long long)all.n_paths + 1);
        p = p[n] ? p + n + 1 : NULL;
    }
    *paths = all;
    return 0;
}

int config_numbers_set(const struct config_key *key, struct config_numbers *numbers,
                       const struct config_text *text, struct error *err)
{
    const char separator[] = {text->is_list ? CONFIG_YAML_SEPARATOR : ',', 0};
    struct config_numbers all = {0};
    const char *p = *text->text ? text->text : NULL;
    while (p) {
        char element[MAX_NUMBER_BYTES];
        p += strspn(p, " ");
        size_t n = strcspn(p, separator), kept = n;
        while (kept > 0 && p[kept - 1] == ' ')
            kept--;
        if (kept >= sizeof element)
            return config_refuse_type(key, text, err);
        snprintf(element, sizeof element, "%.*s", (int)kept, p);
        if (all.n_values == CONFIG_LIST_MOST)
            return error_set(err, ERROR_INPUT,
                             "the list is too long: use at most %d numbers",
                             CONFIG_LIST_MOST);
        double *value = &all.values[all.n_values];
        if (config_parse_float(element, value, err) ||
            config_check_range(key, *value, element, err))
            return error_prefix(err, "number %lld", (long long)all.n_values + 1);
        all.n_values++;
        p = p[n] ? p + n + 1 : NULL;
    }
    *numbers = all;
    return 0;
}

/* -- back -----------------------------------------------------------------------------
 */

void config_paths_text(const struct config_paths *paths, char *buf, size_t size)
{
    size_t used = 0;
    if (paths->n_paths == 1) {
        config_quote(paths->bytes, buf, size);
        return;
    }
    for (int64_t i = 0; i < paths->n_paths && used + 8 < size; i++) {
        used += (size_t)snprintf(buf + used, size - used, "%s", i ? ", " : "[");
        config_quote(config_path_at(paths, i), buf + used, size - used - 1);
        used += strlen(buf + used);
    }
    snprintf(buf + used, size - used, "]");
}

void config_numbers_text(const struct config_numbers *numbers, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int64_t i = 0; i < numbers->n_values && used + 40 < size; i++) {
        char number[32];
        config_format_float(numbers->values[i], number, sizeof number);
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", number);
    }
    snprintf(buf + used, size - used, "]");
}
