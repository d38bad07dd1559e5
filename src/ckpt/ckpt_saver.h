/*
 * ckpt_saver - checkpoints of a running job: every process writes its own slices.
 *
 * Asynchronous where it is wanted and memory allows: a thread copies what the process
 * owns, and writes and syncs the copy while the job goes on. The job waits for the copy
 * at most, where it would change the state, and commits at the first ckpt_saver_poll()
 * where the threads of all processes are done. At most one save is in flight. The last
 * save, and all saves where a copy does not fit, are written straight from the state.
 *
 * A save that fails on one process fails on all. That is a warning, and the next save is
 * a new attempt; only for the last one it is an error.
 *
 * Rank 0 holds the lock on output_dir (ckpt_lock.h) from ckpt_saver_open() to
 * ckpt_saver_close().
 */
#ifndef CKPT_CKPT_SAVER_H
#define CKPT_CKPT_SAVER_H

#include "base/trace.h"
#include "ckpt/ckpt_write.h"
#include "config/config.h"

struct ckpt_saver; // opaque

struct ckpt_saver_options { // pointers are borrowed
    struct comm *world;     // NULL: this process alone
    const char *output_dir; // made with its parents
    const struct param_table *whole;
    const struct update_rule *rule;
    const struct shard_map *map; // what this process owns
    bool is_replica;             // another process saves all that this one owns
    int64_t max_file_bytes;
    struct ckpt_keep keep;
    struct ckpt_source source;         // of the state
    const struct config_paths *inputs; // whose tokenizer is saved; NULL: none

    bool wants_copies;   // there are saves that the job goes on after
    bool copies_aside;   // the state may be read by a thread until it changes
    double other_bytes;  // of memory that this process is going to have, without the copy
    struct trace *trace; // NULL: none

    /* A save has ended, on rank 0: *err is NULL or says why it failed. May be NULL. */
    void (*on_end)(void *context, const char *path, const struct ckpt_progress *progress,
                   double seconds, const struct error *err);
    void *context;
};

/* Bytes of the copy that this process allocates for asynchronous saves. */
size_t ckpt_saver_copy_bytes(const struct shard_map *map, bool is_replica,
                             const struct update_rule *rule);

/* Lock output_dir and allocate what saves need. ckpt_saver_close() is to be called after
 * a failure too. [collective] */
MUST_CHECK int ckpt_saver_open(struct ckpt_saver **out,
                               const struct ckpt_saver_options *opt, struct error *err);
/* Leaves no thread behind; what was not committed is lost. NULL is fine. (local) */
void ckpt_saver_close(struct ckpt_saver *s);

/* Save the state as it is now. is_final: complete, or failed, when this returns. What
 * progress->config_json points to must stay until the save has ended. [collective] */
MUST_CHECK int ckpt_saver_save(struct ckpt_saver *s, const struct ckpt_progress *progress,
                               bool is_final, struct error *err);
/* Before the state changes: wait until a save in flight has its copy. (local) */
void ckpt_saver_await_copy(struct ckpt_saver *s);
/* At every step boundary, after `step` steps: commit a save in flight if all have written
 * it. [collective] */
MUST_CHECK int ckpt_saver_poll(struct ckpt_saver *s, int64_t step, struct error *err);
/* The job has failed, on all ranks, with *why: if a save is in flight, whose state is
 * that of a good step, wait for it and commit it. Ranks that are not all here after a
 * minute end the job: then it is lost, as after a failure of communication. What goes
 * wrong with the save is a warning; *why is not touched. [collective] */
void ckpt_saver_rescue(struct ckpt_saver *s, int64_t step, const struct error *why);

#endif
