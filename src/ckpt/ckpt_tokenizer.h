/*
 * ckpt_tokenizer - the tokenizer that belongs to a run: saved beside its checkpoints, and
 * found there by commands that encode text or export.
 *
 * It is, in this order: the one the user names; the files in "tokenizer" beside the
 * checkpoint, where a run and an import leave them; what the datasets of its
 * configuration were prepared with; bytes, if the model's vocabulary can be theirs.
 */
#ifndef CKPT_CKPT_TOKENIZER_H
#define CKPT_CKPT_TOKENIZER_H

#include "base/error.h"
#include "config/config.h"
#include "text/tokenizer.h"

#define CKPT_TOKENIZER_DIR "tokenizer" // in the directory of checkpoints

/* Write the files of the tokenizer called `name` (tokenizer_open()) there, all or none;
 * bytes need none. Those of another tokenizer, of an earlier run, go to
 * "tokenizer.previous". */
MUST_CHECK int ckpt_tokenizer_keep(const char *output_dir, const char *name,
                                   struct error *err);
/* The same with what the datasets at `inputs` were prepared with, where they say: the
 * data may be gone when a model is to generate. */
MUST_CHECK int ckpt_tokenizer_keep_of(const char *output_dir,
                                      const struct config_paths *inputs,
                                      struct error *err);

/* `given` NULL: not named. `path` is the checkpoint's own directory, `cfg` its
 * configuration. One that has more tokens than the model is refused. When it is not known
 * at all: an error that says how to name it; with is_optional, success and *out NULL. */
MUST_CHECK int ckpt_tokenizer_open(struct tokenizer **out, const char *given,
                                   const char *path, const struct config *cfg,
                                   bool is_optional, struct error *err);

#endif
