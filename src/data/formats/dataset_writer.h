/*
 * dataset_writer - a new dataset, document by document, in either format.
 *
 * Everything is written to temporary names beside the final ones (X.bin.tmp ...) and
 * renamed by dataset_writer_commit(), the data file before the index, so that a dataset
 * under its final name is always whole. Memory does not grow with the number of tokens or
 * documents. A dataset of the same name and format is replaced.
 *
 * Temporary files of a run that was killed are reused by the next one; two runs at once
 * with one prefix are refused.
 */
#ifndef DATA_FORMATS_DATASET_WRITER_H
#define DATA_FORMATS_DATASET_WRITER_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/dataset.h"

struct dataset_writer; // opaque

/* `format` is DATASET_MEGATRON or DATASET_FLEETX. The tokens are stored as uint16 when
 * vocab_size < 65500, as Megatron does, and as int32 otherwise. Directories are made as
 * needed. */
MUST_CHECK int dataset_writer_open(struct dataset_writer **out, const char *prefix,
                                   enum dataset_format format, int64_t vocab_size,
                                   struct error *err);

/* Add n tokens to the document that is being written. */
MUST_CHECK int dataset_writer_append(struct dataset_writer *w, const int32_t *tokens,
                                     int64_t n, struct error *err);
/* End it. */
MUST_CHECK int dataset_writer_end_document(struct dataset_writer *w, struct error *err);

int64_t dataset_writer_n_tokens(const struct dataset_writer *w);

/* Write the index, rename everything, and write X.meta.json from `meta`, whose counts are
 * filled in here. */
MUST_CHECK int dataset_writer_commit(struct dataset_writer *w,
                                     const struct dataset_meta *meta, struct error *err);

/* Release; what was not committed is removed. NULL is fine. */
void dataset_writer_close(struct dataset_writer *w);

#endif
