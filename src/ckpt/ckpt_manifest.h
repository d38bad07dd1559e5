/*
 * ckpt_manifest - trainer.json: what a checkpoint is, and how to know that it is whole.
 *
 *     {
 *       "format": "trefoil-checkpoint", "format_version": 2, "program_version": "...",
 *       "step": N, "epoch": E, "consumed_samples": n, "n_parameters": n,
 *       "data_fingerprint": "...", "run_id": "...", "tokenizer_hash": "...",
 *       "loss_scaler": {"scale": x, "good_steps": n, "bad_steps": n, "n_skipped": n},
 *       "config": {...},
 *       "hash_block_bytes": 1048576,
 *       "files": {
 *         "model.safetensors": {
 *           "bytes": n, "header_xxh3_64": "...", "tensors": {"NAME": ["...", ...], ...}
 *         },
 *         "NAME.index.json": {"bytes": n, "xxh3_64": "..."}, ...
 *       },
 *       "self_xxh3_64": "..."
 *     }
 *
 * run_id and tokenizer_hash (tokenizer.h) are missing where they are not known. A hash is
 * 16 hex digits. A tensor has one for each hash_block_bytes of its data, a sum as in
 * ckpt_format.h; the others are XXH3-64 with seed 0. The last member covers all bytes
 * before the comma that precedes it. Unknown members are ignored: a later version may add
 * some, and raises format_version only when old readers would misread the rest.
 *
 * `is_damaged`, where a function takes it, is set to true when what is wrong is that the
 * files are not what was written; it is left alone otherwise.
 */
#ifndef CKPT_CKPT_MANIFEST_H
#define CKPT_CKPT_MANIFEST_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_format.h"
#include "text/tokenizer.h"

#include <jansson.h>

#define CKPT_MANIFEST_NAME "trainer.json"

#define CKPT_FINGERPRINT_BYTES 64
#define CKPT_RUN_ID_BYTES 17 // 16 hexadecimal digits
#define CKPT_HASH_BYTES 17   // the same

struct ckpt_scaler { // of losses; scale 0: it does not change, if there is one
    double scale;
    int64_t good_steps, bad_steps;
    int64_t n_skipped; // steps left out so far
};

/* How far a run is: what a checkpoint holds apart from tensors. */
struct ckpt_progress {
    int64_t step; // optimizer updates done
    int64_t epoch;
    int64_t consumed_samples;
    struct ckpt_scaler scaler;
    char data_fingerprint[CKPT_FINGERPRINT_BYTES]; // of the dataset; "": unknown
    char run_id[CKPT_RUN_ID_BYTES];            // of the run it belongs to; "": unknown
    char tokenizer_hash[TOKENIZER_HASH_BYTES]; // of its data's tokenizer; "": unknown
    const char *config_json; // a JSON object, borrowed; only saving reads it
};

struct ckpt_manifest {
    struct ckpt_progress progress; // config_json is not used: see `config`
    int64_t n_parameters;
    char program_version[32];
    json_t *config; // owned
    json_t *files;  // owned; by name, as above
};

/* The manifest of a checkpoint that is being made: files of the layout with the hashes in
 * `sums`. */
MUST_CHECK int ckpt_manifest_init(struct ckpt_manifest *m,
                                  const struct ckpt_progress *progress,
                                  const struct ckpt_layout *layout,
                                  const struct ckpt_sums *sums, struct error *err);
void ckpt_manifest_release(struct ckpt_manifest *m);

/* Note a file without tensors that has this content. */
MUST_CHECK int ckpt_manifest_add_plain_file(struct ckpt_manifest *m, const char *name,
                                            const char *text, struct error *err);

/* Write `dir`/trainer.json and sync it. */
MUST_CHECK int ckpt_manifest_write(const struct ckpt_manifest *m, const char *dir,
                                   struct error *err);

/* Read it back: refused unless its own hash is right and every member is as above. */
MUST_CHECK int ckpt_manifest_read(struct ckpt_manifest *m, const char *dir,
                                  bool *is_damaged, struct error *err);

struct ckpt_info { // of one checkpoint, from its trainer.json
    struct ckpt_progress progress;
    int64_t n_parameters;
    char program_version[32];
    char *config_json; // owned
};
MUST_CHECK int ckpt_read_info(const char *path, struct ckpt_info *info,
                              struct error *err);
void ckpt_info_release(struct ckpt_info *info);

/* Is the file in `dir`, with the size its record says? Its content is not read. */
MUST_CHECK int ckpt_manifest_check_file(const char *dir, const char *name,
                                        const json_t *record, bool *is_damaged,
                                        struct error *err);
/* The same for all files of the manifest. */
MUST_CHECK int ckpt_manifest_check_files(const struct ckpt_manifest *m, const char *dir,
                                         struct error *err);
/* A file without tensors, its content too. */
MUST_CHECK int ckpt_manifest_check_plain_file(const char *dir, const char *name,
                                              const json_t *record, bool *is_damaged,
                                              struct error *err);

/* The hash of the whole trainer.json in `dir`: no two checkpoints have the same one. */
MUST_CHECK int ckpt_manifest_hash(const char *dir, char hash[CKPT_HASH_BYTES],
                                  struct error *err);

/* A hash as the 16 digits and the NUL of the manifest. */
void ckpt_hash_text(const void *bytes, size_t n, char text[CKPT_HASH_BYTES]);

#endif
