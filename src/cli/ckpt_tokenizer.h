/*
 * ckpt_tokenizer - the tokenizer that belongs to a checkpoint, for the commands that turn
 * text into tokens or write a tokenizer out.
 *
 * In this order: the one the user names; the files in "tokenizer" beside the checkpoint,
 * where a run and an import leave them; what the datasets of its configuration were
 * prepared with; bytes, if the model's vocabulary can be theirs.
 */
#ifndef CLI_CKPT_TOKENIZER_H
#define CLI_CKPT_TOKENIZER_H

#include "base/error.h"
#include "config/config.h"
#include "text/tokenizer.h"

/* `given` NULL: not named. `path` is the checkpoint's own directory, `cfg` its
 * configuration. One that has more tokens than the model is refused. When it is not known
 * at all: an error that says how to name it, or, with is_optional, success and *out NULL.
 */
MUST_CHECK int ckpt_tokenizer_open(struct tokenizer **out, const char *given,
                                   const char *path, const struct config *cfg,
                                   bool is_optional, struct error *err);

#endif
