/*
 * ckpt_tokenizer - the tokenizer that belongs to a run: saved beside its checkpoints, and
 * found there by commands that encode text or export.
 *
 * It is, in this order: the one the user names; the files in "tokenizer" beside the
 * checkpoint, where a run and an import leave them; the files in "tokenizer-HASH", where
 * a later run in the same directory has moved them; the tokenizer of the datasets of its
 * configuration; bytes, if the model's vocabulary can be theirs.
 *
 * A checkpoint records the hash of its tokenizer (tokenizer_hash()). One with another hash
 * is never used with it: the next in the order is looked at, and if none is left, or the
 * user has named the wrong one, the command is refused. Checkpoints of earlier versions
 * have no hash and take the first, and so do those of data that does not say its
 * tokenizer; if tokenizers of other runs are beside them, the user has to name one.
 */
#ifndef CKPT_CKPT_TOKENIZER_H
#define CKPT_CKPT_TOKENIZER_H

#include "base/error.h"
#include "config/config.h"
#include "text/tokenizer.h"

#define CKPT_TOKENIZER_DIR "tokenizer" // in the directory of checkpoints

/* Write the files of the tokenizer called `name` (tokenizer_open()) there, all or none;
 * bytes need none. Those of another tokenizer, of an earlier run, go to
 * "tokenizer-HASH". */
MUST_CHECK int ckpt_tokenizer_keep(const char *output_dir, const char *name,
                                   struct error *err);
/* The same with what the datasets at `inputs` were prepared with, where they say: the
 * data may be gone when a model is to generate. */
MUST_CHECK int ckpt_tokenizer_keep_of(const char *output_dir,
                                      const struct config_paths *inputs,
                                      struct error *err);

/* For a run that begins in output_dir and does not know its tokenizer: that of another run
 * goes to "tokenizer-HASH", so that no command takes it for this run's. Files that no
 * checkpoint there knows stay: the user has put them there. */
MUST_CHECK int ckpt_tokenizer_clear(const char *output_dir, const char *run_id,
                                    struct error *err);

/* The hash of the tokenizer that the datasets at `inputs` were prepared with, also where
 * its files are gone or have changed since (data of version 2.0.0: as they are now); ""
 * where they do not say. */
MUST_CHECK int ckpt_tokenizer_hash_of(const struct config_paths *inputs,
                                      char hash[TOKENIZER_HASH_BYTES], struct error *err);

/* `given` NULL: not named. `path` is the checkpoint's directory, `hash` the hash that it
 * records ("": none), `cfg` its configuration. A tokenizer with more tokens than the model
 * is refused. An unknown tokenizer is an error with the remedy; with is_optional it is a
 * success with *out NULL. */
MUST_CHECK int ckpt_tokenizer_open(struct tokenizer **out, const char *given,
                                   const char *path, const char *hash,
                                   const struct config *cfg, bool is_optional,
                                   struct error *err);

#endif
