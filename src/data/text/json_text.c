#include "data/text/json_text.h"

#include "base/utf8.h"
#include "data/text/text_encoding.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* -- a file into values -------------------------------------------------------------- */

/*
 * Only strings, brackets and commas matter: a value ends with the bracket that closes its
 * first, with the quote that closes a string, or before the comma, the white space or the
 * bracket after anything else.
 */
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

static int append_value(struct json_values *v, const char *bytes, size_t n,
                        struct error *err)
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

enum value_end { GOES_ON, ENDS_BEFORE, ENDS_AFTER };

/* Where `c`, a byte of a value or the one after, leaves it. */
static enum value_end read_byte(struct json_values *v, char c, bool is_first)
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
        enum value_end ends = GOES_ON;
        if (is_first && begins_value(v, bytes[i]))
            begin = i;
        if (v->is_in_value)
            ends = read_byte(v, bytes[i], is_first);
        size_t end = ends == ENDS_AFTER ? i + 1 : i;
        if (ends != GOES_ON &&
            (append_value(v, bytes + begin, end - begin, err) || end_value(v, err)))
            return -1;
        if (ends == ENDS_BEFORE)
            i--; // once more, as what stands between values
        else
            v->line += bytes[i] == '\n';
    }
    return v->is_in_value ? append_value(v, bytes + begin, n - begin, err) : 0;
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

/* -- the text in one value ----------------------------------------------------------- */

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\v\f", line[i]) || line[i] == 0)
            return false;
    return true;
}

/* Add the name of a key, made harmless for a terminal; false when it does not fit. */
static bool add_key(char *text, size_t size, const char *key)
{
    size_t used = strlen(text);
    int n = snprintf(text + used, size - used, "%s\"%.40s\"", used ? ", " : "", key);
    if (n >= (int)(size - used)) {
        text[used] = 0;
        return false;
    }
    for (char *c = text + used; *c; c++)
        if ((uint8_t)*c < ' ' || *c == 0x7F)
            *c = '?';
    return true;
}

/* The keys that have strings, which the text must be one of; or else all but `key`. */
static void list_keys(json_t *root, const char *key, char *text, size_t size)
{
    text[0] = 0;
    for (int pass = 0; pass < 2 && !text[0]; pass++)
        for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at))
            if ((pass == 1 || json_is_string(json_object_iter_value(at))) &&
                strcmp(json_object_iter_key(at), key) != 0 &&
                !add_key(text, size, json_object_iter_key(at)))
                return;
}

static void refuse_json(struct json_line *out, const char *line, size_t n,
                        const json_error_t *where)
{
    if (utf8_find_bad(line, n) == n) {
        snprintf(out->reason, sizeof out->reason, "not JSON: %s", where->text);
        return;
    }
    const char *guess = text_guess_encoding(line, n);
    snprintf(out->reason, sizeof out->reason, "not UTF-8%s%s%s",
             guess ? "; it looks like " : "", guess ? guess : "",
             guess ? ", which --encoding can name" : "");
}

static void refuse_object(struct json_line *out, json_t *root, const char *key)
{
    char keys[JSON_LINE_REASON_BYTES / 2];
    list_keys(root, key, keys, sizeof keys);
    snprintf(out->reason, sizeof out->reason, "%s \"%.60s\"%s%s%s",
             json_object_get(root, key) ? "no string under the key" : "no key", key,
             keys[0] ? "; there is " : "", keys,
             keys[0] ? ": name the key of the text with --json_key" : "");
}

/* object[key] := its context, a space, and the word after it. False, with out->reason set
 * where there is one to give, when it does not have them. */
static bool join_cloze(struct json_line *out, json_t *root, const char *key)
{
    const json_t *context = json_object_get(root, "context");
    const json_t *rest = json_object_get(root, "continuation");
    if (json_object_get(root, key) || !json_is_string(context) || !json_is_string(rest))
        return false;
    const char *word = json_string_value(rest);
    size_t n = json_string_length(context), n_word = json_string_length(rest);
    while (n_word > 0 && is_white(word[0])) {
        word++;
        n_word--;
    }
    while (n_word > 0 && is_white(word[n_word - 1]))
        n_word--;
    for (size_t i = 0; i < n_word; i++)
        if (is_white(word[i])) {
            snprintf(out->reason, sizeof out->reason,
                     "\"continuation\" has several words; one can be asked for");
            return false;
        }
    char *text = malloc(n + n_word + 1);
    if (!text)
        return false;
    memcpy(text, json_string_value(context), n);
    text[n] = ' ';
    memcpy(text + n + 1, word, n_word);
    json_object_set_new(root, key, json_stringn(text, n + 1 + n_word));
    free(text);
    return true;
}

/* Integers are read as reals, so that large ones in other keys do no harm. */
enum json_line_kind json_line_read(struct json_line *out, const char *line, size_t n,
                                   const char *key, bool is_cloze)
{
    json_error_t where;
    out->text = NULL;
    out->owner = NULL;
    out->reason[0] = 0;
    if (is_blank(line, n))
        return JSON_LINE_BLANK;
    json_t *root = json_loadb(line, n,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
                                  JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY,
                              &where);
    out->owner = root;
    if (is_cloze && json_is_object(root) && !join_cloze(out, root, key) && out->reason[0])
        return JSON_LINE_BAD;
    const json_t *text = json_is_string(root) ? root : json_object_get(root, key);
    if (json_is_string(text)) {
        out->text = json_string_value(text);
        out->n_text = json_string_length(text);
        return JSON_LINE_TEXT;
    }
    if (!root)
        refuse_json(out, line, n, &where);
    else if (!json_is_object(root))
        snprintf(out->reason, sizeof out->reason, "not a JSON object or string");
    else
        refuse_object(out, root, key);
    return JSON_LINE_BAD;
}

void json_line_release(struct json_line *l)
{
    json_decref(l->owner);
    l->owner = NULL;
}
