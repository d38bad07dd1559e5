/*
 * ckpt_read - reading a checkpoint, each process what it needs and no more than whole
 * blocks around it.
 *
 * A block is read, compared with its hash, and only then handed on. Since every element
 * of a model is needed by some process, all blocks have been verified when all processes
 * of a job have read their parts.
 */
#ifndef CKPT_CKPT_READ_H
#define CKPT_CKPT_READ_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_format.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/safetensors.h"

#include <limits.h>

struct ckpt_read_file {
    char path[PATH_MAX];
    int fd;
    int direct_fd; // past the page cache; -1: none
    struct safetensors st;
    uint64_t *hashes;    // of all blocks of its tensors, owned
    int64_t *first_hash; // (st.n_tensors) of each tensor, owned
};

struct ckpt_reader {
    char path[PATH_MAX];
    struct ckpt_manifest manifest;
    struct ckpt_read_file *files; // owned
    int n_files;
    int n_sets;                     // that are open
    int set_files[N_CKPT_SETS + 1]; // first file of each set
    struct ckpt_sum_keys keys;
    const struct update_rule *rule; // of ckpt_reader_check()
    /* After a failure: the checkpoint is not what was saved. Otherwise it does not fit,
     * or the machine failed, and another checkpoint would fare no better. */
    bool is_damaged;
};

/* Open the checkpoint at `path` with the tensors of sets [0, n_sets), manifest and
 * headers verified. ckpt_reader_close() is to be called after a failure too. */
MUST_CHECK int ckpt_reader_open(struct ckpt_reader *r, const char *path, int n_sets,
                                struct error *err);
/* The same, and one that is not called what it is (ckpt_check_name()) is damaged. */
MUST_CHECK int ckpt_reader_open_named(struct ckpt_reader *r, const char *path, int n_sets,
                                      struct error *err);
void ckpt_reader_close(struct ckpt_reader *r);

/* Read past the page cache what is not in it, where the file system can: without a copy
 * and without fresh memory for the cache. For files that no other process reads, which
 * would otherwise find them there. */
void ckpt_reader_bypass_cache(struct ckpt_reader *r);

/* 0 if the open sets hold the tensors of `whole` (all of the model) and of `rule`, which
 * may be NULL where the optimizer's set is not open, and no others. */
MUST_CHECK int ckpt_reader_check(struct ckpt_reader *r, const struct param_table *whole,
                                 const struct update_rule *rule, int n_sets,
                                 struct error *err);

/* Read the pieces of `part` to `sink`; after ckpt_reader_check(). */
MUST_CHECK int ckpt_reader_read(struct ckpt_reader *r, int n_sets,
                                const struct ckpt_part *part,
                                const struct ckpt_sink *sink, struct error *err);

/* Both, for all that is open: check, and read what `map` gives to this process. */
MUST_CHECK int ckpt_reader_load(struct ckpt_reader *r, const struct param_table *whole,
                                const struct update_rule *rule,
                                const struct shard_map *map, const struct ckpt_sink *sink,
                                struct error *err);

/* Read all that is open to nowhere, to see whether it is as it was written. */
MUST_CHECK int ckpt_reader_verify(struct ckpt_reader *r, struct error *err);

#endif
