/*
 * inspect_run - the output directory of a run as a report: how far it came, how its loss
 * does, and what limited it.
 */
#ifndef CLI_INSPECT_RUN_H
#define CLI_INSPECT_RUN_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

/* What the run in `dir` has written about itself; an object that is the caller's, or NULL
 * with *err. */
json_t *inspect_run(const char *dir, struct error *err);

#endif
