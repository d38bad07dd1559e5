/*
 * inspect_tensors - checkpoints, safetensors and GGUF files as reports, one JSON object
 * each. Every returned object is the caller's, and NULL means *err is filled.
 */
#ifndef CLI_INSPECT_TENSORS_H
#define CLI_INSPECT_TENSORS_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

/* The checkpoint in the directory `dir`; with `verifies` every byte of it was read. One that
 * is damaged is an error that says so. */
json_t *inspect_checkpoint(const char *dir, bool verifies, struct error *err);
/* *rows := an array with a row for each checkpoint in the directory `dir`, by name, empty
 * when there is none; *taken := the one that a run or a command given `dir` would take
 * (ckpt_find.h), or NULL, with the reason in *why. With `verifies`
 * *n_damaged counts those that a run could be continued from
 * otherwise (NAME.damaged was set aside already); one that cannot be read now is an
 * error. */
MUST_CHECK int inspect_checkpoints(const char *dir, bool verifies, json_t **rows,
                                   json_t **taken, struct error *why, int64_t *n_damaged,
                                   struct error *err);
/* A file of tensors. */
json_t *inspect_safetensors(const char *path, struct error *err);
/* A GGUF file: what it says of itself, and its tensors. */
json_t *inspect_gguf(const char *path, struct error *err);

#endif
