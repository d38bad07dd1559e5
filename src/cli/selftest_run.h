/*
 * selftest_run - runs of a self-test: this very program, training a tiny model, or one that
 * settings make of it, under a layout, in a temporary directory.
 */
#ifndef CLI_SELFTEST_RUN_H
#define CLI_SELFTEST_RUN_H

#include "cli/selftest_layout.h"
#include "device/kernel_sets.h"

#include <jansson.h>

struct selftest {
    int64_t n_steps; // of a run
    enum kernel_set cpu_kernels;
    const char *device;          // a value of the key
    const char *const *settings; // more of them, KEY=VALUE, up to a NULL; or NULL
    char dir[1024];              // of all that follows
    int64_t n_runs;              // so far; each has its directory and its log
};

/* Make the directory, the model's configuration and its data; remove it all. */
MUST_CHECK int selftest_open(struct selftest *st, struct error *err);
void selftest_close(struct selftest *st);

/* Train under `layout`. A run that fails is an error whose sentence ends with the last
 * lines of its log; one that was interrupted is ERROR_STOPPED. */
MUST_CHECK int selftest_train(struct selftest *st, const struct selftest_layout *layout,
                              struct error *err);
/* Calls `take` for each object of metrics.jsonl of the last run, until it returns -1. */
MUST_CHECK int selftest_lines(const struct selftest *st,
                              int (*take)(void *context, const json_t *line),
                              void *context, struct error *err);
/* Train and read the losses. */
MUST_CHECK int selftest_run(struct selftest *st, const struct selftest_layout *layout,
                            struct selftest_curve *curve, struct error *err);

#endif
