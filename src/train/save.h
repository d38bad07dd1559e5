/*
 * save - checkpoints of a running job: every process writes its own slices.
 *
 * Asynchronous where memory allows (save_load.async_save): a thread copies what the
 * process owns, and writes and syncs the copy while training goes on. The step loop waits
 * for the copy at most, where it would change the state, and commits at the first step
 * boundary where the threads of all processes are done. At most one save is in flight.
 * The last save of a run, and all saves where a copy does not fit, are written straight
 * from the state, while training waits.
 *
 * A save that fails on one process fails on all. That is a warning and an event in
 * metrics.jsonl, the next save is a new attempt; only for the last one it is an error.
 *
 * Rank 0 holds the lock on output_dir (ckpt_lock.h) from train_save_open() to
 * train_save_close().
 */
#ifndef TRAIN_SAVE_H
#define TRAIN_SAVE_H

#include "train/plan.h"
#include "train/train.h"

/* Bytes of the copy that this process keeps for asynchronous saves; 0: it has none. */
size_t train_save_bytes(const struct plan *plan, const struct config *cfg);

/* Lock output_dir and take what saves will need; after train_preflight(). [collective] */
MUST_CHECK int train_save_open(struct train *t, struct error *err);
/* The run has failed, on all ranks, with *why: if a save is in flight, whose state is
 * that of a good step, wait for it and commit it. Ranks that are not all here after a
 * minute end the job: then it is lost, as after a failure of communication. What goes
 * wrong with the save is a warning; *why is not touched. [collective] */
void train_save_rescue(struct train *t, const struct error *why);
/* Leaves no thread behind; what was not committed is lost. (local) */
void train_save_close(struct train *t);

/* Save the state as it is now. is_final: complete, or failed, when this returns.
 * [collective] */
MUST_CHECK int train_save(struct train *t, bool is_final, struct error *err);
/* Before parameters or moments change: wait until a save in flight has its copy. (local)
 */
void train_save_before_update(struct train *t);
/* At every step boundary: commit a save in flight if all have written it. [collective] */
MUST_CHECK int train_save_poll(struct train *t, struct error *err);

#endif
