/*
 * Only strings, brackets and commas matter: a value ends with the bracket that closes its
 * first, with the quote that closes a string, or before the comma, the white space or the
 * bracket after anything else.
 */
#include "data/text/json_values.h"

#include <stdio.h>
#include <string.h>

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool json_values_is_one(const char *start, size_t n)
{
    size_t i = 0;
    while (i < n && is_white(start[i]))
        i++;
    if (i == n || start[i] != '{')
        return i < n && start[i] == '[';
    for (i++; i < n && start[i] != '\n'; i++)
        if (!is_white(start[i]))
            return false;
    return i < n;
}

void json_values_init(struct json_values *v, const struct text_record_sink *sink)
{
    *v = (struct json_values){.sink = sink, .line = 1};
}

static int append(struct json_values *v, const char *bytes, size_t n, struct error *err)
{
    v->n_bytes += n;
    if (n == 0 || v->n_bytes > TEXT_MAX_LINE_BYTES)
        return 0;
    return v->sink->append(v->sink->context, bytes, n, err);
}

static int end_value(struct json_values *v, struct error *err)
{
    const struct text_record_sink *sink = v->sink;
    size_t n_bytes = v->n_bytes;
    char reason[64];
    v->is_in_value = v->is_in_string = v->is_escaped = false;
    v->n_bytes = 0;
    if (n_bytes <= TEXT_MAX_LINE_BYTES)
        return sink->end(sink->context, v->value_line, err);
    snprintf(reason, sizeof reason, "longer than %u MiB", TEXT_MAX_LINE_BYTES >> 20);
    return sink->bad_line(sink->context, v->value_line, reason, err);
}

/* Between values; true when `c` begins one. */
static bool begins_value(struct json_values *v, char c)
{
    if (is_white(c) || c == ',')
        return false;
    if (c == (v->is_in_array ? ']' : '[')) {
        v->is_in_array = !v->is_in_array;
        return false;
    }
    v->is_in_value = true;
    v->value_line = v->line;
    v->depth = 0;
    return true;
}

enum ends { GOES_ON, ENDS_BEFORE, ENDS_AFTER };

/* Where `c`, a byte of a value or the one after, leaves it. */
static enum ends step(struct json_values *v, char c, bool is_first)
{
    if (v->is_in_string && c == '\n')
        return ENDS_BEFORE; // never closed: only this value is lost, not the rest
    if (v->is_escaped) {
        v->is_escaped = false;
    } else if (v->is_in_string) {
        v->is_escaped = c == '\\';
        v->is_in_string = c != '"';
        return !v->is_in_string && v->depth == 0 ? ENDS_AFTER : GOES_ON;
    } else if (c == '"' && (v->depth > 0 || is_first)) {
        v->is_in_string = true;
    } else if (c == '{' || c == '[') {
        v->depth++;
    } else if ((c == '}' || c == ']') && v->depth > 0) {
        v->depth--;
        return v->depth == 0 ? ENDS_AFTER : GOES_ON;
    } else if (v->depth == 0 && !is_first && (c == ',' || c == ']' || is_white(c))) {
        return ENDS_BEFORE;
    }
    return GOES_ON;
}

int json_values_take(struct json_values *v, const char *bytes, size_t n,
                     struct error *err)
{
    size_t begin = 0; // of the value, in these bytes
    for (size_t i = 0; i < n; i++) {
        bool is_first = !v->is_in_value;
        enum ends ends = GOES_ON;
        if (is_first && begins_value(v, bytes[i]))
            begin = i;
        if (v->is_in_value)
            ends = step(v, bytes[i], is_first);
        size_t end = ends == ENDS_AFTER ? i + 1 : i;
        if (ends != GOES_ON &&
            (append(v, bytes + begin, end - begin, err) || end_value(v, err)))
            return -1;
        if (ends == ENDS_BEFORE)
            i--; // once more, as what stands between values
        else
            v->line += bytes[i] == '\n';
    }
    return v->is_in_value ? append(v, bytes + begin, n - begin, err) : 0;
}

int json_values_end(struct json_values *v, struct error *err)
{
    const struct text_record_sink *sink = v->sink;
    if (v->is_in_value && !v->is_in_string && v->depth == 0 && end_value(v, err))
        return -1;
    if (v->is_in_value)
        return sink->bad_line(sink->context, v->value_line,
                              "the file ends inside the value that begins here", err);
    if (v->is_in_array)
        return sink->bad_line(sink->context, v->line,
                              "the file ends inside an array; is it cut off?", err);
    return 0;
}
