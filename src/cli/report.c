/*
 * A JSON object as text: scalars as "name value" lines, objects as indented blocks,
 * arrays of objects as tables whose columns are the members of their first row. Control
 * characters are written as escapes, so a file's content cannot play with the terminal.
 */
#include "cli/report.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NAME_COLUMNS 32
#define MOST_COLUMNS 16 // of a table

/* -- building ------------------------------------------------------------------------ */

void report_set(json_t *object, const char *key, json_t *value)
{
    CHECK(json_object_set_new(object, key, value) == 0, "cannot set '%s'", key);
}

void report_set_int(json_t *object, const char *key, int64_t value)
{
    report_set(object, key, json_integer(value));
}

void report_set_text(json_t *object, const char *key, const char *text)
{
    report_set(object, key, report_text(text, strlen(text)));
}

void report_append(json_t *array, json_t *value)
{
    CHECK(json_array_append_new(array, value) == 0, "cannot append");
}

void report_note(json_t *object, const char *fmt, ...)
{
    char text[sizeof((struct error *)0)->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!json_object_get(object, "notes"))
        report_set(object, "notes", json_array());
    report_append(json_object_get(object, "notes"), report_text(text, strlen(text)));
}

json_t *report_text(const char *bytes, size_t n)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    char *text = malloc(3 * n + 1);
    size_t used = 0;
    uint32_t code;
    CHECK(text, "out of memory");
    for (size_t i = 0; i < n;) {
        size_t length = utf8_decode(bytes + i, n - i, &code);
        memcpy(text + used, length ? bytes + i : replacement, length ? length : 3);
        used += length ? length : 3;
        i += length ? length : 1;
    }
    json_t *value = json_stringn(text, used);
    free(text);
    CHECK(value, "out of memory");
    return value;
}

/* -- printing ------------------------------------------------------------------------ */

static void write_escaped(const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_c1 = c == 0xC2 && i + 1 < n && (unsigned char)text[i + 1] < 0xA0;
        if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c < 0x20 || c == 0x7F)
            fprintf(out, "\\x%02x", c);
        else if (is_c1)
            fprintf(out, "\\x%02x", (unsigned char)text[++i]);
        else
            fputc(c, out);
    }
}

static void write_value(const json_t *value, FILE *out)
{
    size_t i;
    const json_t *element;
    switch (json_typeof(value)) {
    case JSON_STRING:
        if (json_string_length(value) == 0)
            fputs("''", out);
        write_escaped(json_string_value(value), json_string_length(value), out);
        break;
    case JSON_INTEGER:
        fprintf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        fprintf(out, "%.6g", json_real_value(value));
        break;
    case JSON_ARRAY:
        fputc('[', out);
        json_array_foreach(value, i, element)
        {
            fputs(i ? ", " : "", out);
            write_value(element, out);
        }
        fputc(']', out);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        fputs(json_is_true(value) ? "True" : "False", out);
        break;
    case JSON_NULL:
    case JSON_OBJECT: // in a table or a list: there is none
        fputs("none", out);
        break;
    }
}

/* The value as one malloc'ed line. */
static char *value_line(const json_t *value)
{
    char *line = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&line, &n);
    CHECK(out, "out of memory");
    if (value)
        write_value(value, out);
    CHECK(fclose(out) == 0, "out of memory");
    return line;
}

/* Characters, not bytes: continuation bytes take no column. */
static int columns_of(const char *line)
{
    int n = 0;
    for (; *line; line++)
        n += ((unsigned char)*line & 0xC0) != 0x80;
    return n;
}

struct column {
    const char *name;
    int width;
    bool is_number;
};

static int make_columns(const json_t *rows, struct column columns[MOST_COLUMNS])
{
    const char *name;
    json_t *value;
    size_t i;
    const json_t *row;
    int n = 0;
    json_object_foreach(json_array_get(rows, 0), name, value)
    {
        CHECK(n < MOST_COLUMNS, "more columns than a table has");
        columns[n++] = (struct column){name, columns_of(name), json_is_number(value)};
    }
    json_array_foreach(rows, i, row)
    {
        for (int k = 0; k < n; k++) {
            char *line = value_line(json_object_get(row, columns[k].name));
            int width = columns_of(line);
            columns[k].width = width > columns[k].width ? width : columns[k].width;
            free(line);
        }
    }
    return n;
}

static void print_cell(const struct column *column, const char *text, bool is_last,
                       FILE *out)
{
    int padding = column->width - columns_of(text);
    if (column->is_number)
        fprintf(out, "%*s%s", padding, "", text);
    else
        fprintf(out, "%s%*s", text, is_last ? 0 : padding, "");
    fputs(is_last ? "\n" : "  ", out);
}

static void print_table(const json_t *rows, int indent, FILE *out)
{
    struct column columns[MOST_COLUMNS];
    size_t i;
    const json_t *row;
    int n = make_columns(rows, columns);
    fprintf(out, "%*s", indent, "");
    for (int k = 0; k < n; k++)
        print_cell(&columns[k], columns[k].name, k + 1 == n, out);
    json_array_foreach(rows, i, row)
    {
        fprintf(out, "%*s", indent, "");
        for (int k = 0; k < n; k++) {
            char *line = value_line(json_object_get(row, columns[k].name));
            print_cell(&columns[k], line, k + 1 == n, out);
            free(line);
        }
    }
}

/* A row is an object without blocks of its own. */
static bool is_table(const json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    json_t *row;
    if (!json_is_object(json_array_get(value, 0)))
        return false;
    json_array_foreach(value, i, row)
    {
        json_object_foreach(row, name, member)
        {
            if (json_is_object(member) || json_is_object(json_array_get(member, 0)))
                return false;
        }
    }
    return true;
}

static void print_object(const json_t *object, int indent, FILE *out);

static void print_member(const char *name, const json_t *value, int indent, FILE *out)
{
    size_t i;
    const json_t *element;
    bool has_objects = json_is_object(json_array_get(value, 0));
    bool is_notes = strcmp(name, "notes") == 0;
    if (!json_is_object(value) && !has_objects && !is_notes) {
        fprintf(out, "%*s%-*s ", indent, "", NAME_COLUMNS - indent, name);
        write_value(value, out);
        fputc('\n', out);
        return;
    }
    if (json_is_object(value) || is_table(value) || is_notes)
        fprintf(out, "%*s%s\n", indent, "", name);
    if (json_is_object(value)) {
        print_object(value, indent + 2, out);
    } else if (is_table(value)) {
        print_table(value, indent + 2, out);
    } else {
        json_array_foreach(value, i, element)
        {
            if (has_objects) {
                print_member(name, element, indent, out);
            } else {
                fprintf(out, "%*s", indent + 2, "");
                write_value(element, out);
                fputc('\n', out);
            }
        }
    }
}

static void print_object(const json_t *object, int indent, FILE *out)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
        print_member(name, value, indent, out);
}

void report_print(const json_t *report, FILE *out)
{
    print_object(report, 0, out);
}
