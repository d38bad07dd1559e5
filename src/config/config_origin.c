#include "config/config_origin.h"

#include "config/config_value.h"

#include <stdio.h>
#include <string.h>

const struct config_key *config_key_at(const char *path)
{
    const struct config_alias *alias;
    const struct config_key *key = config_find(path, &alias);
    CHECK(key, "no key '%s' in the table", path);
    return key;
}

bool config_was_given(const struct config_origins *origins, const struct config_key *key)
{
    const struct config_origin *o = &origins->of[key - config_keys];
    return o->source != SOURCE_DEFAULT && !o->is_empty;
}

const char *config_name_of(const struct config_origins *origins,
                           const struct config_key *key)
{
    const char *name = origins->of[key - config_keys].name;
    return config_was_given(origins, key) && name[0] ? name : key->path;
}

void config_where(const struct config_origins *origins, const struct config_key *key,
                  char buf[CONFIG_WHERE_BYTES])
{
    const struct config_origin *o = &origins->of[key - config_keys];
    char shown[CONFIG_SHOWN_BYTES];
    switch (o->source) {
    case SOURCE_DEFAULT:
        snprintf(buf, CONFIG_WHERE_BYTES, "default");
        break;
    case SOURCE_JSON:
        snprintf(buf, CONFIG_WHERE_BYTES, "%s", origins->json);
        break;
    case SOURCE_FILE:
        snprintf(buf, CONFIG_WHERE_BYTES, "%s:%d:%d", o->file, o->place.line,
                 o->place.column);
        break;
    case SOURCE_OPTION:
        config_show(o->option, shown);
        snprintf(buf, CONFIG_WHERE_BYTES, "-o %s", shown);
        break;
    }
}

int config_refuse(const struct config_origins *origins, const struct config_key *key,
                  const struct config_key *other, struct error *err, const char *fmt, ...)
{
    char where[CONFIG_WHERE_BYTES], sentence[1024];
    bool is_given = config_was_given(origins, key);
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    config_where(origins, is_given || !other ? key : other, where);
    return error_set(err, ERROR_INPUT, "%s: %s%s: %s", where,
                     config_name_of(origins, key), is_given ? "" : " (not given)",
                     sentence);
}
