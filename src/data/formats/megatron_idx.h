/*
 * megatron_idx - the index file of Megatron's X.bin + X.idx.
 *
 *     0  9 bytes  "MMIDIDX\0\0"          34         i32[S] tokens of each sequence
 *     9  u64      version 1              34 +  4 S  i64[S] byte offset of each in X.bin
 *    17  u8       type of the tokens     34 + 12 S  i64[D] first sequence of each
 * document, 18  u64      S, sequences                             and S at the end 26 u64
 * D, documents + 1
 *
 * Refused: floating-point tokens, the older TNTIDX files, multimodal ones (which have one
 * byte more a sequence), offsets that are not the running sum of the lengths.
 */
#ifndef DATA_FORMATS_MEGATRON_IDX_H
#define DATA_FORMATS_MEGATRON_IDX_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/disk_int.h"

#define MEGATRON_IDX_HEADER_BYTES 34

struct megatron_idx {
    enum disk_int type;
    int64_t n_documents;
    int64_t n_tokens;
    int64_t *document_ends; // (n_documents) running sum of tokens; owned
};

/* Read and check the whole index; bin_bytes is the size of X.bin, which must be what the
 * index says. `name` and `bin_name` are for errors. */
MUST_CHECK int megatron_idx_read(struct megatron_idx *idx, int fd, const char *name,
                                 uint64_t bin_bytes, const char *bin_name,
                                 struct error *err);
void megatron_idx_release(struct megatron_idx *idx);

/* The header and the code of a type, for writing. */
void megatron_idx_write_header(uint8_t header[MEGATRON_IDX_HEADER_BYTES],
                               enum disk_int type, int64_t n_sequences,
                               int64_t n_documents);

#endif
