/*
 * inspect_data - datasets and tokenizers as reports. Every returned value is the
 * caller's, and NULL means *err is filled.
 */
#ifndef CLI_INSPECT_DATA_H
#define CLI_INSPECT_DATA_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

struct inspect_options {
    const char *path;
    bool is_json;
    const char *tokenizer; // decodes samples; NULL: the one the dataset names
    int64_t n_samples;     // documents shown of a dataset, tokens of a tokenizer
    int64_t n_tokens;      // shown of a document
    bool verifies;         // reads every byte of a checkpoint
};

/* An array of the datasets that `input` means, by the rules of data/samples/corpus.h. */
json_t *inspect_datasets(const char *input, const struct inspect_options *opt,
                         struct error *err);
/* The tokenizer that `name` means to tokenizer_open(). */
json_t *inspect_tokenizer(const char *name, const struct inspect_options *opt,
                          struct error *err);

#endif
