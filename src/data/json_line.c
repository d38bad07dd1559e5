#include "data/json_line.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\v\f", line[i]) || line[i] == 0)
            return false;
    return true;
}

/* Integers are read as reals, because large ones in other keys are none of our business.
 */
enum json_line_kind json_line_read(struct json_line *out, const char *line, size_t n,
                                   const char *key)
{
    json_error_t json_err;
    out->text = NULL;
    out->owner = NULL;
    if (is_blank(line, n))
        return JSON_LINE_BLANK;
    json_t *root = json_loadb(
        line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
        &json_err);
    const json_t *text = json_object_get(root, key);
    out->owner = root;
    if (json_is_string(text)) {
        out->text = json_string_value(text);
        out->n_text = json_string_length(text);
        return JSON_LINE_TEXT;
    }
    if (!root)
        snprintf(out->reason, sizeof out->reason, "not JSON: %s", json_err.text);
    else if (!json_is_object(root))
        snprintf(out->reason, sizeof out->reason, "not a JSON object");
    else
        snprintf(out->reason, sizeof out->reason, "%s \"%.100s\"",
                 text ? "no string under the key" : "no key", key);
    return JSON_LINE_BAD;
}

void json_line_release(struct json_line *l)
{
    json_decref(l->owner);
    l->owner = NULL;
}
