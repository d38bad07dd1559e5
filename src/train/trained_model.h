/*
 * trained_model - the model of a checkpoint, spread over the processes of a job for
 * passes forward: no optimizer, no gradients, and the stash of one block only.
 *
 * Any layout of data, model and pipe ranks will do, whatever the checkpoint was trained
 * on. Each rank reads its own part of it. Arithmetic and storage are float32, from the
 * optimizer's float32 weights; but decoding, whose time is that of reading the weights,
 * has them in the type that training's forward used.
 */
#ifndef TRAIN_TRAINED_MODEL_H
#define TRAIN_TRAINED_MODEL_H

#include "config/config.h"
#include "parallel/runner.h"
#include "text/tokenizer.h"

#include <limits.h>

struct trained_options {
    const char *ckpt; // a checkpoint, or a directory of them (ckpt_find.h)
    int64_t dp_degree, mp_degree, pp_degree; // dp 0: what the processes leave
    int64_t micro_batch_size;                // windows of one forward
    int64_t max_seq_len;                     // of a window; 0: as it was trained
    enum layout_use use; // LAYOUT_EVALUATE, or LAYOUT_DECODE: windows have all positions
    enum device_kind device; // whatever it was trained on
};

struct trained_model {
    char path[PATH_MAX]; // of the checkpoint
    int64_t step;
    char tokenizer_hash[TOKENIZER_HASH_BYTES]; // that it records; "": none
    struct config cfg; // of the checkpoint, with this layout and these windows
    struct grid grid;
    struct layout layout;
    struct device *dev; // of the layout; open
    struct runner runner;
};

/* Refuse, before any process is started, options that do not fit each other, the model of
 * the checkpoint that will be loaded, or the processes that there are (0: as many as
 * the layout needs, which is set in *n_wanted). (local) */
MUST_CHECK int trained_model_check(const struct trained_options *opt, int64_t n_processes,
                                   int64_t *n_wanted, struct error *err);

/* trained_model_close() takes a half-opened one, and one of zeros. Both [collective]. */
MUST_CHECK int trained_model_open(struct trained_model *m,
                                  const struct trained_options *opt, struct comm *world,
                                  struct error *err);
void trained_model_close(struct trained_model *m);

#endif
