/*
 * dataset - one pair of token and index files, whichever format it has.
 *
 * The three formats, by the ends of their names:
 *   megatron       X.bin        X.idx
 *   fleetx         X_ids.npy    X_idx.npz   lens: tokens of each sentence, docs: first
 *                                           sentence of each document and the count
 *   fleetx, old    X_ids.npz                ids and lens in one archive
 */
#ifndef DATA_FORMATS_DATASET_H
#define DATA_FORMATS_DATASET_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/disk_int.h"

#include <sys/stat.h>

enum dataset_format {
    DATASET_MEGATRON,
    DATASET_FLEETX,
    DATASET_FLEETX_OLD,
    N_DATASET_FORMATS
};

struct dataset_format_names {
    const char *name;
    const char *data_suffix;
    const char *index_suffix; // the same as data_suffix when there is one file
};
extern const struct dataset_format_names dataset_formats[N_DATASET_FORMATS];

/* X.meta.json, what `trefoil prepare` knows about the dataset X:
 *
 *     {"tokenizer": "bytes", "vocab_size": 257, "eos_token_id": 256,
 *      "documents": 31102, "tokens": 4329341, "tokenizer_hash": "bcd5fff9d78883e7"}
 *
 * Datasets made by others do not have one, and version 2.0.0 recorded no hash. */
#define DATASET_HASH_BYTES 17 // 16 hexadecimal digits

/* The file of text that a dataset was made from, to find out whether it has changed. */
struct dataset_source {
    int64_t n_bytes, mtime_ns;
    char tokenizer_hash[DATASET_HASH_BYTES]; // "": nothing is recorded
};

struct dataset_meta {
    char tokenizer[4096]; // its name, or the full path of its files
    int64_t vocab_size;
    int64_t eos_token_id;
    int64_t n_documents;
    int64_t n_tokens;
    char tokenizer_hash[DATASET_HASH_BYTES]; // tokenizer_hash(); "": not recorded
    struct dataset_source source;
};

struct dataset { // all strings and arrays owned
    enum dataset_format format;
    char *data_path;
    char *index_path;
    struct stat data_stat, index_stat; // as they were when opened
    int fd;                            // of the data file
    int64_t data_offset;               // of token 0 in it
    uint8_t *memory;                   // NULL, or all tokens, unpacked from an archive
    enum disk_int type;
    int64_t n_tokens;
    int64_t n_documents;
    int64_t *document_ends; // (n_documents) running sum of tokens
    bool has_meta;
    struct dataset_meta meta;
};

/* Open X of the given format; sizes, index and (when there is one) X.meta.json are
 * checked, token ids are not. */
MUST_CHECK int dataset_open(struct dataset *d, const char *prefix,
                            enum dataset_format format, struct error *err);
void dataset_close(struct dataset *d);

/* tokens := tokens [first, first + n). Ids of 2^31 and more do not survive: check
 * before. */
MUST_CHECK int dataset_read(const struct dataset *d, int64_t first, int64_t n,
                            int32_t *tokens, struct error *err);

/* The largest id, taken as unsigned (a negative one is larger than all others). */
MUST_CHECK int dataset_max_token(const struct dataset *d, uint64_t *max,
                                 struct error *err);

/* The position and value of the first id outside [0, vocab_size), if there is one. */
MUST_CHECK int dataset_find_bad_token(const struct dataset *d, int64_t vocab_size,
                                      int64_t *position, int64_t *id, bool *is_found,
                                      struct error *err);

/* *is_there: the file exists; then it must be complete. */
MUST_CHECK int dataset_meta_read(const char *path, struct dataset_meta *meta,
                                 bool *is_there, struct error *err);

/* Write the file whole, or leave it as it was. A path must be UTF-8. */
MUST_CHECK int dataset_meta_write(const char *path, const struct dataset_meta *meta,
                                  struct error *err);

#endif
