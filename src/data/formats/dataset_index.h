/*
 * dataset_index - where the documents of a dataset end, as the index files of the two
 * families say it.
 *
 * Megatron's X.idx, beside X.bin:
 *
 *             0  9 bytes  "MMIDIDX\0\0"
 *             9  u64      version 1
 *            17  u8       type of the tokens
 *            18  u64      S, sequences
 *            26  u64      D, documents + 1
 *            34  i32[S]   tokens of each sequence
 *     34 +  4 S  i64[S]   byte offset of each in X.bin
 *     34 + 12 S  i64[D]   first sequence of each document, and S at the end
 *
 * Refused: floating-point tokens, the older TNTIDX files, multimodal ones (which have one
 * byte more per sequence), offsets that are not the running sum of the lengths.
 *
 * FleetX's X_idx.npz (or the old X_ids.npz):
 *
 *     lens  tokens of each sentence (int32 by FleetX; any integers are read)
 *     docs  first sentence of each document, and the number of sentences; without it
 *           every sentence is a document
 */
#ifndef DATA_FORMATS_DATASET_INDEX_H
#define DATA_FORMATS_DATASET_INDEX_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/disk_int.h"
#include "data/formats/npz.h"

struct dataset_index {
    enum disk_int type; // of the tokens; FleetX's index does not say
    int64_t n_documents;
    int64_t n_tokens;
    int64_t *document_ends; // (n_documents) running sum of tokens; owned
};
void dataset_index_release(struct dataset_index *idx);

/* Read and check the whole of X.idx; bin_bytes is the size of X.bin, which must be what
 * the index says. `name` and `bin_name` are for errors. */
MUST_CHECK int megatron_index_read(struct dataset_index *idx, int fd, const char *name,
                                   uint64_t bin_bytes, const char *bin_name,
                                   struct error *err);

#define MEGATRON_HEADER_BYTES 34
/* The header of an X.idx, for writing. */
void megatron_index_header(uint8_t header[MEGATRON_HEADER_BYTES], enum disk_int type,
                           int64_t n_sequences, int64_t n_documents);

/* n_tokens, how many ids there are, bounds how many lengths are believed. */
MUST_CHECK int fleetx_index_read(struct dataset_index *idx, const struct npz *archive,
                                 int64_t n_tokens, struct error *err);

#endif
