/*
 * selftest_run - a tiny model, trained by this very program under a layout.
 *
 * Everything lies in one temporary directory: the corpus, the configuration, and for each
 * layout what its run wrote and its log.
 */
#ifndef CLI_SELFTEST_RUN_H
#define CLI_SELFTEST_RUN_H

#include "cli/selftest_layout.h"

struct selftest {
    char dir[1024];
    int64_t n_steps;
    int64_t n_runs; // so far; each has its directory
};

/* Make the directory, the corpus and the configuration. */
MUST_CHECK int selftest_open(struct selftest *st, int64_t n_steps, struct error *err);
/* Remove the directory. */
void selftest_close(struct selftest *st);

/* Train under `layout` and read the losses. A run that fails is an error whose sentence
 * ends with the last lines of its log; one that was interrupted is ERROR_STOPPED. */
MUST_CHECK int selftest_run(struct selftest *st, const struct selftest_layout *layout,
                            struct selftest_curve *curve, struct error *err);

#endif
