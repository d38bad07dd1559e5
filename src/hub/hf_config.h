/*
 * hf_config - the config.json of a GPT-2 of the transformers library, both ways.
 *
 * Trefoil's model is GPT-2's: pre-norm, GELU, attention scaled
 * by 1/sqrt(head size), tied embeddings. A config.json that says anything else is refused
 * with what it says.
 */
#ifndef HUB_HF_CONFIG_H
#define HUB_HF_CONFIG_H

#include "base/dtype.h"
#include "base/error.h"
#include "config/config.h"

#include <jansson.h>

struct hf_config {
    struct config_model model;
    int64_t eos; // -1: none
};

/* The text of config.json, malloc'ed for the caller to free; dtype is that of the
 * tensors beside it. NULL: out of memory. */
char *hf_config_text(const struct hf_config *config, enum dtype dtype);
/* The same of generation_config.json. */
char *hf_config_generation_text(const struct hf_config *config);

/* Read DIR/config.json. */
MUST_CHECK int hf_config_read(struct hf_config *config, const char *dir,
                              struct error *err);

/* A JSON file of at most so many bytes, to be released; NULL: err names the place. */
json_t *hf_json_read(const char *path, size_t most_bytes, struct error *err);

#endif
