/*
 * json_values - a file of JSON taken apart into values without being parsed: the elements
 * of arrays, and objects that stand by themselves. They come in pieces and need not fit
 * in memory; whether each is well-formed is for who parses it.
 */
#ifndef DATA_TEXT_JSON_VALUES_H
#define DATA_TEXT_JSON_VALUES_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_records.h"

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

#endif
