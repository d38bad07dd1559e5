#include "cli/device_report.h"

#include "base/fs.h"
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdicts[] = {[VERDICT_NONE] = "-",
                                       [VERDICT_GOOD] = "good",
                                       [VERDICT_BAD] = "BAD",
                                       [VERDICT_SKIPPED] = "skipped"};

int device_report_open(struct device_report *r, json_t *head, struct error *err)
{
    *r = (struct device_report){.root = head, .rows = json_array()};
    if (!r->root || !r->rows || json_object_set(r->root, "rows", r->rows))
        return error_set(err, ERROR_RUNTIME, "out of memory for the report");
    printf("%-10s  %-36s  %-8s  %22s  %-7s  %s\n", "section", "what", "type", "result",
           "verdict", "note");
    return 0;
}

void device_report_close(struct device_report *r)
{
    json_decref(r->rows);
    json_decref(r->root);
}

static void print_row(const struct device_row *row)
{
    char value[64] = "";
    if (row->unit)
        snprintf(value, sizeof value, "%.4g %s", row->value, row->unit);
    printf("%-10s  %-36s  %-8s  %22s  %-7s  %s\n", row->section, row->what,
           row->type ? row->type : "", value, verdicts[row->verdict],
           row->note ? row->note : "");
    fflush(stdout);
}

void device_report_row(struct device_report *r, const struct device_row *row)
{
    json_t *object = json_object();
    report_set_text(object, "section", row->section);
    report_set_text(object, "what", row->what);
    if (row->type)
        report_set_text(object, "type", row->type);
    if (row->unit) { // JSON has no infinity
        report_set(object, "value",
                   isfinite(row->value) ? json_real(row->value) : json_null());
        report_set_text(object, "unit", row->unit);
    }
    report_set_text(object, "verdict", verdicts[row->verdict]);
    if (row->note)
        report_set_text(object, "note", row->note);
    report_append(r->rows, object);
    r->n_rows[row->verdict]++;
    if (!row->is_only_in_file || row->verdict == VERDICT_BAD)
        print_row(row);
}

int device_report_write(const struct device_report *r, const char *path,
                        struct error *err)
{
    json_t *counts = json_object();
    for (int v = VERDICT_GOOD; v <= VERDICT_SKIPPED; v++)
        report_set_int(counts, verdicts[v], r->n_rows[v]);
    report_set(r->root, "verdicts", counts);
    char *text = json_dumps(r->root, JSON_INDENT(1));
    if (!text)
        return error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path);
    int rc = fs_write_atomic(path, text, strlen(text), err);
    free(text);
    if (rc)
        return -1;
    printf("%d good, %d bad, %d skipped\n", r->n_rows[VERDICT_GOOD],
           r->n_rows[VERDICT_BAD], r->n_rows[VERDICT_SKIPPED]);
    printf("all of it is in '%s', without names of users, machines or paths: please send "
           "it back\n",
           path);
    return 0;
}
