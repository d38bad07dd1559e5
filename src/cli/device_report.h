/*
 * device_report - what `trefoil selftest --device` found, row by row: a table on the
 * terminal and a JSON file with the same rows and more, for whoever has no such device.
 * Neither holds names of users, machines or paths.
 */
#ifndef CLI_DEVICE_REPORT_H
#define CLI_DEVICE_REPORT_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

enum device_verdict {
    VERDICT_NONE, // a figure, neither right nor wrong
    VERDICT_GOOD,
    VERDICT_BAD,
    VERDICT_SKIPPED,
};

struct device_report {
    json_t *root, *rows;
    int n_rows[VERDICT_SKIPPED + 1]; // by verdict
};

struct device_row {
    const char *section, *what;
    const char *type; // of a model's numbers, or NULL
    double value;
    const char *unit; // NULL: there is no value
    enum device_verdict verdict;
    const char *note;     // or NULL
    bool is_only_in_file; // one of many
};

/* `head` is taken over: what the file begins with. */
MUST_CHECK int device_report_open(struct device_report *r, json_t *head,
                                  struct error *err);
void device_report_close(struct device_report *r);
void device_report_row(struct device_report *r, const struct device_row *row);

/* Write the file; and what it all comes to, as the last lines of the table. */
MUST_CHECK int device_report_write(const struct device_report *r, const char *path,
                                   struct error *err);

#endif
