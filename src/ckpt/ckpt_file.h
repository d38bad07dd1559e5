/*
 * ckpt_file - one tensor file of a checkpoint: which tensors it holds, where they come
 * from and go to, and their hashes.
 *
 * Tensors stream through one block of memory, hashed on the way; there is never a copy
 * of the model.
 */
#ifndef CKPT_CKPT_FILE_H
#define CKPT_CKPT_FILE_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_manifest.h"

#define CKPT_MODEL_NAME "model.safetensors"
#define CKPT_OPTIMIZER_NAME "optimizer.safetensors"

/* Write the file called `name` of the table's tensors in `state` to `dir`, sync it, and
 * add its record to m->files. */
MUST_CHECK int ckpt_file_write(const char *dir, const char *name,
                               const struct ckpt_state *state, struct ckpt_manifest *m,
                               struct error *err);

/* Read it to `state`. Everything is verified: its record in `m`, and that its tensors
 * are the table's. */
MUST_CHECK int ckpt_file_read(const char *dir, const char *name,
                              const struct ckpt_manifest *m, struct ckpt_state *state,
                              struct error *err);

/* Read it to nowhere, to see whether every byte is as recorded. */
MUST_CHECK int ckpt_file_verify(const char *dir, const char *name,
                                const struct ckpt_manifest *m, struct error *err);

/* Bytes of all files of a checkpoint but the manifest, without their headers. */
uint64_t ckpt_file_data_bytes(const struct param_table *table);
/* How many tensors they hold. */
int64_t ckpt_file_n_tensors(const struct param_table *table);

#endif
