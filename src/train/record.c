#include "train/record.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REAL_BYTES 32 // of a number as text

/* -- building ------------------------------------------------------------------------ */

void record_begin(struct record *r, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->step = step;
    r->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    r->n_fields = 0;
}

static struct record_field *add_field(struct record *r, const char *key,
                                      enum record_type type)
{
    CHECK(r->n_fields < RECORD_FIELDS_MOST, "a record of more fields, at %s",
          key ? key : "the end of a group");
    struct record_field *f = &r->fields[r->n_fields++];
    f->key = key;
    f->type = type;
    f->n = 0;
    return f;
}

void record_null(struct record *r, const char *key)
{
    add_field(r, key, RECORD_NULL);
}

void record_i64(struct record *r, const char *key, int64_t value)
{
    add_field(r, key, RECORD_INT)->value.integer = value;
}

void record_real(struct record *r, const char *key, double value)
{
    if (isfinite(value))
        add_field(r, key, RECORD_REAL)->value.real = value;
    else
        record_null(r, key);
}

void record_bool(struct record *r, const char *key, bool value)
{
    add_field(r, key, RECORD_BOOL)->value.truth = value;
}

void record_text(struct record *r, const char *key, const char *value)
{
    add_field(r, key, RECORD_TEXT)->value.text = value;
}

void record_reals(struct record *r, const char *key, const double *values, int64_t n)
{
    struct record_field *f = add_field(r, key, RECORD_REALS);
    f->value.reals = values;
    f->n = n;
}

void record_group(struct record *r, const char *key)
{
    add_field(r, key, RECORD_GROUP);
}

void record_group_end(struct record *r)
{
    add_field(r, NULL, RECORD_GROUP_END);
}

/* -- finding ------------------------------------------------------------------------- */

const struct record_field *record_find(const struct record *r, const char *key)
{
    int depth = 0;
    for (int i = 0; i < r->n_fields; i++) {
        const struct record_field *f = &r->fields[i];
        depth -= f->type == RECORD_GROUP_END;
        if (depth == 0 && f->key && strcmp(f->key, key) == 0)
            return f;
        depth += f->type == RECORD_GROUP;
    }
    return NULL;
}

const char *record_find_text(const struct record *r, const char *key)
{
    const struct record_field *f = record_find(r, key);
    return f && f->type == RECORD_TEXT ? f->value.text : NULL;
}

/* -- JSON ---------------------------------------------------------------------------- */

struct json_out {
    char *at, *end;
    bool is_full;
};

PRINTF_LIKE(2, 3) static void put(struct json_out *out, const char *format, ...)
{
    va_list args;
    if (out->is_full)
        return;
    va_start(args, format);
    int n = vsnprintf(out->at, (size_t)(out->end - out->at), format, args);
    va_end(args);
    out->is_full = n < 0 || n >= out->end - out->at;
    if (!out->is_full)
        out->at += n;
}

static void put_real(struct json_out *out, double x)
{
    if (isfinite(x))
        put(out, "%.9g", x);
    else
        put(out, "null");
}

static void put_text(struct json_out *out, const char *text)
{
    size_t left = strlen(text), n;
    uint32_t code;
    put(out, "\"");
    for (; left > 0 && !out->is_full; text += n, left -= n) {
        n = utf8_decode(text, left, &code);
        if (n == 0)
            put(out, "?");
        else if (code == '"' || code == '\\')
            put(out, "\\%c", (int)code);
        else if (code == '\n')
            put(out, "\\n");
        else if (code < 0x20 || code == 0x7F)
            put(out, "\\u%04x", code);
        else
            put(out, "%.*s", (int)n, text);
        n += n == 0;
    }
    put(out, "\"");
}

static void put_array(struct json_out *out, const struct record_field *f)
{
    put(out, "[");
    for (int64_t i = 0; i < f->n && !out->is_full; i++) {
        if (i > 0)
            put(out, ", ");
        put_real(out, f->value.reals[i]);
    }
    put(out, "]");
}

static void put_value(struct json_out *out, const struct record_field *f)
{
    switch (f->type) {
    case RECORD_INT:
        put(out, "%lld", (long long)f->value.integer);
        break;
    case RECORD_REAL:
        put_real(out, f->value.real);
        break;
    case RECORD_BOOL:
        put(out, "%s", f->value.truth ? "true" : "false");
        break;
    case RECORD_TEXT:
        put_text(out, f->value.text);
        break;
    case RECORD_REALS:
        put_array(out, f);
        break;
    default:
        put(out, "null");
        break;
    }
}

int64_t record_json(const struct record *r, char *out, size_t size)
{
    struct json_out to = {.at = out, .end = out + size};
    bool is_first = false; // in its object
    put(&to, "{\"step\": %lld", (long long)r->step);
    for (int i = 0; i < r->n_fields; i++) {
        const struct record_field *f = &r->fields[i];
        if (f->type == RECORD_GROUP_END) {
            put(&to, "}");
            is_first = false;
            continue;
        }
        put(&to, "%s\"%s\": ", is_first ? "" : ", ", f->key);
        is_first = f->type == RECORD_GROUP;
        if (is_first)
            put(&to, "{");
        else
            put_value(&to, f);
    }
    put(&to, ", \"time\": %.3f}\n", r->time);
    return to.is_full ? -1 : to.at - out;
}

double record_as_read(double value)
{
    char text[REAL_BYTES];
    if (!isfinite(value))
        return value;
    snprintf(text, sizeof text, "%.9g", value);
    return strtod(text, NULL);
}
