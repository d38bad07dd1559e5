/*
 * ckpt - checkpoints: a directory of plain files without a layout, or nothing.
 *
 *     output_dir/epoch_E_step_N/
 *         model.safetensors       the logical tensors, named as in the parameter table
 *         optimizer.safetensors   "NAME.STATE" of each, for all states of the update rule
 *         trainer.json            counters, configuration, size and hashes of the above,
 *                                 and a hash of itself
 *     output_dir/latest           the name of the one saved last, a hint for people: read
 *                                 only to warn that another one is of a later step
 *     output_dir/tokenizer/       what the data was prepared with (keep_tokenizer.h)
 *     output_dir/NAME.damaged     what failed to load, or stood in a save's way
 *
 * Large models have several files and an index in place of one (ckpt_layout.h). A
 * directory of that name is complete: it was written under another name, synced, and
 * renamed. Every byte of its files is covered by a hash, and nothing is used before its
 * hash is verified.
 *
 * This header is what a process alone needs, with the whole model in memory. A job of
 * several uses the steps it is made of: ckpt_commit.h, ckpt_write.h, ckpt_read.h.
 *
 * Layer: base, comm, token, model (the parameter table) <- ckpt. Libraries: jansson,
 * xxHash. Threads: one call at a time on one output_dir.
 */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include "base/base.h"
#include "base/error.h"
#include "optim/optimizer.h"
#include "params/param_table.h"

#define CKPT_FINGERPRINT_BYTES 64
#define CKPT_RUN_ID_BYTES 17                      // 16 hexadecimal digits
#define CKPT_MAX_FILE_BYTES ((int64_t)5000000000) // what the Hugging Face world cuts at

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
    char run_id[CKPT_RUN_ID_BYTES]; // of the run it belongs to; "": unknown
    const char *config_json;        // a JSON object, borrowed; only saving reads it
};

/* A whole model in memory. All pointers are borrowed. */
struct ckpt_state {
    struct ckpt_progress progress;
    const struct param_table *table; // of the whole model, float32
    const struct update_rule *rule;
    /* By kind: flat buffers of table->n_flat elements laid out by `table`. */
    float *flat[1 + UPDATE_MAX_STATES];
};

struct ckpt_keep { // which older checkpoints stay; 0 and 0: all
    int64_t last;  // the newest so many; 0: all
    int64_t every; // and those whose step is a multiple; 0: none
};

/*
 * Write `state` to output_dir/epoch_E_step_N, which is made with its parents; an older
 * checkpoint of that name is replaced, anything else is set aside. Its path goes to
 * `path` (NULL: not wanted).
 *
 * After success, this run's checkpoints in output_dir up to this step are removed but for
 * those that `keep` names and those that look damaged; another run's are left alone, and
 * so are later steps, which are another's too. What cannot be tidied is a warning.
 *
 * On failure the older checkpoints are untouched, the temporary files are removed, and
 * the error names the file, and for a full disk the bytes needed and free. Another
 * process that writes to output_dir at the same time is an error too (ckpt_lock.h).
 */
MUST_CHECK int ckpt_save(const char *output_dir, const struct ckpt_state *state,
                         const struct ckpt_keep *keep, char *path, size_t path_size,
                         struct error *err);

/*
 * Which checkpoint `ckpt_dir` means to who needs sets [0, n_sets) of tensors (the first
 * is the model's weights: ckpt_layout.h), into `path`: itself, if it holds a trainer.json
 * (what is in it is then verified by whoever reads it); else the newest one in it whose
 * sets are valid to the last bit. Damaged ones are skipped with a warning that
 * says why. It is an error if there is none, or none valid, or if one cannot be read now.
 */
MUST_CHECK int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path,
                            size_t path_size, struct error *err);

/* The highest step of which `dir` holds a checkpoint, going by names alone; -1: none. */
int64_t ckpt_newest_step(const char *dir);

/*
 * A name for a run that begins in output_dir. The first run there is named by what it
 * computes, whatever the layout, so that the same state is the same bytes; one that
 * begins among the checkpoints of others gets a name that no other has.
 */
void ckpt_run_id_make(char id[CKPT_RUN_ID_BYTES], const char *output_dir,
                      const char *config_json, const char *data_fingerprint);

struct ckpt_info { // of one checkpoint, from its trainer.json
    struct ckpt_progress progress;
    int64_t n_parameters;
    char program_version[32];
    char *config_json; // owned
};
MUST_CHECK int ckpt_read_info(const char *path, struct ckpt_info *info,
                              struct error *err);
void ckpt_info_release(struct ckpt_info *info);

/*
 * Read the checkpoint at `path` into the three buffers of `state` (laid out by
 * state->table, which the caller sets, gaps left alone) and its progress. Names and
 * shapes must be the table's: otherwise the error lists what differs. On failure the
 * buffers hold nothing usable.
 */
MUST_CHECK int ckpt_load(const char *path, struct ckpt_state *state, struct error *err);

/* The parameters alone; the optimizer's files may even be missing. */
MUST_CHECK int ckpt_load_params(const char *path, const struct param_table *table,
                                float *params, struct error *err);

/* Room that one checkpoint takes: never less than will be written. */
uint64_t ckpt_bytes(const struct param_table *table, const struct update_rule *rule);

#endif
