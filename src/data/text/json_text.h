/*
 * json_text - texts out of JSON: a file taken apart into values, and the text in one.
 */
#ifndef DATA_TEXT_JSON_TEXT_H
#define DATA_TEXT_JSON_TEXT_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_records.h"

/* -- a file into values -------------------------------------------------------------- */

/*
 * Without being parsed: the elements of arrays, and objects that stand by themselves.
 * They come in chunks and need not fit in memory; whether each is well-formed is for its
 * parser to say.
 */
struct json_values {
    const struct text_record_sink *sink;
    bool is_in_array;
    bool is_in_value, is_in_string, is_escaped;
    int64_t depth;      // of brackets and braces that the value has open
    int64_t line;       // that is being read, from 1
    int64_t value_line; // where the value begins
    size_t n_bytes;     // of the value so far
};

/* Does a file that begins so hold values over several lines, or an array? */
bool json_values_is_one(const char *start, size_t n);

/* `sink` is borrowed; its line is where a value begins. */
void json_values_init(struct json_values *v, const struct text_record_sink *sink);
MUST_CHECK int json_values_take(struct json_values *v, const char *bytes, size_t n,
                                struct error *err);
/* The file ends. A value or an array that does not is a bad line. */
MUST_CHECK int json_values_end(struct json_values *v, struct error *err);

/* -- the text in one value ----------------------------------------------------------- */

/* Safe to call from several threads at once. */

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
 * is a text by itself. A reason names the keys that are there. With
 * is_cloze, an object without the key may have a "context" and the one word after it in
 * "continuation", as some copies of LAMBADA do: then the text is both. Every kind needs
 * json_line_release() afterwards. */
enum json_line_kind json_line_read(struct json_line *out, const char *line, size_t n,
                                   const char *key, bool is_cloze);
void json_line_release(struct json_line *l);

#endif
