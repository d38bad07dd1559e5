/*
 * inspect_model - a model's directory of the transformers library as a report.
 */
#ifndef CLI_INSPECT_MODEL_H
#define CLI_INSPECT_MODEL_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

#define INSPECT_HF_NAME "config.json" // what makes a directory one of that library

/* *model := what the config.json in `dir` says of its model, and whether it can be
 * imported, an object that is the caller's; NULL for a config.json of something else. */
MUST_CHECK int inspect_hf(json_t **model, const char *dir, struct error *err);

#endif
