/*
 * hf_import - a GPT-2 of the transformers library as a checkpoint to go on from: step 0,
 * moments zero, its architecture and dropout in the recorded configuration.
 *
 * The tokenizer, where the directory has one, goes to OUTPUT_DIR/tokenizer. Memory: two
 * of the largest tensor.
 */
#ifndef HUB_HF_IMPORT_H
#define HUB_HF_IMPORT_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"

/* `output_dir` is made; one that holds checkpoints already is refused. A tensor with a
 * number that is none, or infinite, is refused. The path of the checkpoint goes to
 * `path`, the configuration it records to *cfg. */
MUST_CHECK int hf_import(const char *input, const char *output_dir, char *path,
                         size_t path_size, struct config *cfg, struct error *err);

#endif
