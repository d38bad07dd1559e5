/*
 * dataset_meta - X.meta.json, what `trefoil prepare` knows about the dataset X:
 *
 *     {"tokenizer": "bytes", "vocab_size": 257, "eos_token_id": 256,
 *      "documents": 31102, "tokens": 4329341}
 *
 * Datasets made by others do not have one.
 */
#ifndef DATA_FORMATS_DATASET_META_H
#define DATA_FORMATS_DATASET_META_H

#include "base/base.h"
#include "base/error.h"

struct dataset_meta {
    char tokenizer[4096]; // its name, or the full path of its files
    int64_t vocab_size;
    int64_t eos_token_id;
    int64_t n_documents;
    int64_t n_tokens;
};

/* *is_there tells whether the file exists; one that does must be complete. */
MUST_CHECK int dataset_meta_read(const char *path, struct dataset_meta *meta,
                                 bool *is_there, struct error *err);

/* Write the file whole, or leave it as it was. A path that is no UTF-8 cannot be in it.
 */
MUST_CHECK int dataset_meta_write(const char *path, const struct dataset_meta *meta,
                                  struct error *err);

#endif
