/*
 * ckpt_manifest - trainer.json: what a checkpoint is, and how to know that it is whole.
 *
 *     {
 *       "format": "trefoil-checkpoint", "format_version": 1, "program_version": "...",
 *       "step": N, "epoch": E, "consumed_samples": n, "n_parameters": n,
 *       "config": {...},
 *       "hash_block_bytes": 4194304,
 *       "files": {
 *         "model.safetensors": {
 *           "bytes": n, "header_xxh3_64": "...", "tensors": {"NAME": ["...", ...], ...}
 *         }, ...
 *       },
 *       "self_xxh3_64": "..."
 *     }
 *
 * A hash is XXH3-64 with seed 0, as 16 hex digits. A tensor has one for each
 * hash_block_bytes of its bytes in the file, so any part of a large tensor can be hashed
 * and verified on its own, whoever wrote it. The last member covers all bytes before the
 * comma that precedes it. Unknown members are ignored: a later version may add some, and
 * raises format_version only when old readers would misread the rest.
 */
#ifndef CKPT_CKPT_MANIFEST_H
#define CKPT_CKPT_MANIFEST_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>

#define CKPT_MANIFEST_NAME "trainer.json"
#define CKPT_HASH_BLOCK_BYTES ((int64_t)4 << 20)

struct ckpt_manifest {
    int64_t step;
    int64_t epoch;
    int64_t consumed_samples;
    int64_t n_parameters;
    int64_t hash_block_bytes; // a positive multiple of 16
    char program_version[32];
    json_t *config; // owned
    json_t *files;  // owned; by name, as above
};

void ckpt_manifest_release(struct ckpt_manifest *m);

/* Write `dir`/trainer.json and sync it. */
MUST_CHECK int ckpt_manifest_write(const struct ckpt_manifest *m, const char *dir,
                                   struct error *err);

/* Read it back: refused unless its own hash is right and every member is as above. */
MUST_CHECK int ckpt_manifest_read(struct ckpt_manifest *m, const char *dir,
                                  struct error *err);

/* Are the files it names in `dir`, with the sizes it says? Their content is not read. */
MUST_CHECK int ckpt_manifest_check_files(const struct ckpt_manifest *m, const char *dir,
                                         struct error *err);

/* A hash as the 16 digits and the NUL of the manifest. */
void ckpt_hash_text(const void *bytes, size_t n, char text[17]);

#endif
