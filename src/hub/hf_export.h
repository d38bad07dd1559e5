/*
 * hf_export - a checkpoint as a directory that `transformers` loads as it is:
 *
 *     config.json, generation_config.json
 *     model.safetensors, or model-00001-of-0000N.safetensors with
 *         model.safetensors.index.json
 *     tokenizer.json, vocab.json, merges.txt, ...   where the tokenizer is known
 *
 * The directory appears complete or not at all: it is written under another name beside
 * it, synced, and renamed.
 */
#ifndef HUB_HF_EXPORT_H
#define HUB_HF_EXPORT_H

#include "hub/hub_tensors.h"
#include "text/tokenizer.h"

#define HF_MAX_FILE_BYTES ((int64_t)5000000000) // as transformers cuts

struct hf_export_options {
    enum dtype dtype;                  // of all tensors
    int64_t max_file_bytes;            // a larger tensor has a file to itself
    const struct tokenizer *tokenizer; // NULL: write none
};

/* `output` must not exist, or be an empty directory; its parents are made. */
MUST_CHECK int hf_export(struct hub_source *src, const struct hf_export_options *opt,
                         const char *output, struct error *err);

#endif
