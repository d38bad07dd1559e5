/* keep_tokenizer - the tokenizer of a run beside its checkpoints, wherever they go. */
#ifndef CKPT_KEEP_TOKENIZER_H
#define CKPT_KEEP_TOKENIZER_H

#include "base/error.h"

#define CKPT_TOKENIZER_DIR "tokenizer" // in the directory of checkpoints
#define CKPT_TOKENIZER_FILE                                                              \
    CKPT_TOKENIZER_DIR "/tokenizer.json" // one is there if this is

/* Write the files of the tokenizer called `name` (tokenizer_open()) there, all or none;
 * bytes need none. Those of another tokenizer, of an earlier run, go to
 * "tokenizer.previous". */
MUST_CHECK int ckpt_keep_tokenizer(const char *output_dir, const char *name,
                                   struct error *err);

#endif
