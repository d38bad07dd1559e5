/*
 * report - what a command found, as JSON objects, and the same as text for people, which
 * therefore cannot say anything else than --json does. What is merely worth knowing is a
 * string in an object's "notes".
 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>
#include <stdio.h>

/* n bytes as a JSON string; what is not UTF-8 becomes U+FFFD. */
json_t *report_text(const char *bytes, size_t n);
/* Add a sentence to object["notes"]. */
void report_note(json_t *object, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* object[key] := value, which is taken over. */
void report_set(json_t *object, const char *key, json_t *value);
void report_set_int(json_t *object, const char *key, int64_t value);
void report_set_text(json_t *object, const char *key, const char *text);
void report_append(json_t *array, json_t *value);

/* The report for people: names and values, and a table for each array of objects. */
void report_print(const json_t *report, FILE *out);

#endif
