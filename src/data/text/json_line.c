#include "data/text/json_line.h"

#include "data/text/text_guess.h"
#include "data/text/utf8_check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\v\f", line[i]) || line[i] == 0)
            return false;
    return true;
}

/* Add the name of a key, made harmless for a terminal; false when there is no room. */
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

/* The keys that have strings, which the text must be one of; or else all. */
static void list_keys(json_t *root, char *text, size_t size)
{
    text[0] = 0;
    for (int pass = 0; pass < 2 && !text[0]; pass++)
        for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at))
            if ((pass == 1 || json_is_string(json_object_iter_value(at))) &&
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
    list_keys(root, keys, sizeof keys);
    snprintf(out->reason, sizeof out->reason, "%s \"%.60s\"%s%s%s",
             json_object_get(root, key) ? "no string under the key" : "no key", key,
             keys[0] ? "; there is " : "", keys,
             keys[0] ? ": name the key of the text with --json_key" : "");
}

/* -- a text whose last word stands apart -- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* object[key] := its context, a space, and the word after it. False, with out->reason set
 * where it can be told, when it does not have them. */
static bool join_cloze(struct json_line *out, json_t *root, const char *key)
{
    const json_t *context = json_object_get(root, "context");
    const json_t *rest = json_object_get(root, "continuation");
    if (json_object_get(root, key) || !json_is_string(context) || !json_is_string(rest))
        return false;
    const char *word = json_string_value(rest);
    size_t n = json_string_length(context), n_word = json_string_length(rest);
    while (n_word > 0 && is_space(word[0])) {
        word++;
        n_word--;
    }
    while (n_word > 0 && is_space(word[n_word - 1]))
        n_word--;
    for (size_t i = 0; i < n_word; i++)
        if (is_space(word[i])) {
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

/* Integers are read as reals, because large ones in other keys are none of our business.
 */
static enum json_line_kind read_line(struct json_line *out, const char *line, size_t n,
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

enum json_line_kind json_line_read(struct json_line *out, const char *line, size_t n,
                                   const char *key)
{
    return read_line(out, line, n, key, false);
}

enum json_line_kind json_line_read_cloze(struct json_line *out, const char *line,
                                         size_t n, const char *key)
{
    return read_line(out, line, n, key, true);
}

void json_line_release(struct json_line *l)
{
    json_decref(l->owner);
    l->owner = NULL;
}
