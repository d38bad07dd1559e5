/*
 * json_line - the text in one line of a JSON lines file, or one element of an array.
 *
 * Safe to call from several threads at once.
 */
#ifndef DATA_TEXT_JSON_LINE_H
#define DATA_TEXT_JSON_LINE_H

#include "base/base.h"

#define JSON_LINE_REASON_BYTES 400

enum json_line_kind {
    JSON_LINE_TEXT,
    JSON_LINE_BLANK, // nothing but white space: no document, and no mistake
    JSON_LINE_BAD,
};

struct json_line {
    const char *text; // n_text bytes, NULs possible; valid until json_line_release()
    size_t n_text;
    char reason[JSON_LINE_REASON_BYTES]; // what is wrong with a bad one
    void *owner;
};

/* Find the string under `key` in the JSON object that the n bytes at `line` are; a string
 * is a text by itself. A reason names the keys that are there. Every kind needs
 * json_line_release() afterwards. */
enum json_line_kind json_line_read(struct json_line *out, const char *line, size_t n,
                                   const char *key);
/* The same; but an object without the key may have a "context" and the one word after it
 * in "continuation", as some copies of LAMBADA do: then the text is both. */
enum json_line_kind json_line_read_cloze(struct json_line *out, const char *line,
                                         size_t n, const char *key);
void json_line_release(struct json_line *l);

#endif
