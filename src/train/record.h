/*
 * record - one thing that a run reports: a step, an evaluation, an event. Built once,
 * where it happens, and read by everybody who is told of it: metrics.jsonl as JSON, the
 * others (sinks.h) by its fields.
 *
 * Nothing is allocated. Keys, texts and arrays are borrowed: they must stay until the
 * record was told.
 */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include "base/base.h"

#define RECORD_FIELDS_MOST 48

enum record_type {
    RECORD_NULL,
    RECORD_INT,
    RECORD_REAL,
    RECORD_BOOL,
    RECORD_TEXT,
    RECORD_REALS,
    RECORD_GROUP, // the fields up to RECORD_GROUP_END are of an object inside
    RECORD_GROUP_END,
};

struct record_field {
    const char *key; // plain ASCII, without quotes
    enum record_type type;
    union {
        int64_t integer;
        double real;
        bool truth;
        const char *text;
        const double *reals; // (n)
    } value;
    int64_t n;
};

struct record {
    int64_t step;
    double time; // Unix seconds
    int n_fields;
    struct record_field fields[RECORD_FIELDS_MOST];
};

/* An empty one, of now. */
void record_begin(struct record *r, int64_t step);

void record_null(struct record *r, const char *key);
void record_i64(struct record *r, const char *key, int64_t value);
/* Of a number that is none or infinite: null. */
void record_real(struct record *r, const char *key, double value);
void record_bool(struct record *r, const char *key, bool value);
void record_text(struct record *r, const char *key, const char *value);
void record_reals(struct record *r, const char *key, const double *values, int64_t n);
/* An object in the object: what follows up to its end. */
void record_group(struct record *r, const char *key);
void record_group_end(struct record *r);

/* The field outside of groups with this key; NULL: there is none. */
const struct record_field *record_find(const struct record *r, const char *key);
/* Its text; NULL: it has none. */
const char *record_find_text(const struct record *r, const char *key);

/* One line of JSON with its newline and a NUL: "step", the fields in their order, "time"
 * with 3 decimals; reals with 9 significant digits, and what is no UTF-8 in a text, as a
 * path may be, as question marks. Its length; -1: it does not fit. */
int64_t record_json(const struct record *r, char *out, size_t size);

/* The number that a reader of the line gets for `value`. */
double record_as_read(double value);

#endif
