/*
 * plan - what one process of a run will hold, from the configuration and its place in the
 * grid alone, without tensors or communication: any process of any layout can be
 * planned on a laptop.
 *
 * The run is opened from its plan, and the memory report is the plan's: one description,
 * two uses.
 */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "comm/grid.h"
#include "config/config.h"
#include "data/samples/sample_stream.h"
#include "optim/optimizer.h"
#include "parallel/layout.h"

struct plan {
    struct layout layout;               // of the model
    struct optimizer_options optimizer; // its groups are the caller's to fill in
};

/* *cfg is borrowed. */
MUST_CHECK int plan_init(struct plan *p, const struct config *cfg, struct grid_coord at,
                         struct error *err);
void plan_release(struct plan *p);

/* -- data: known once the files can be read ------------------------------------------ */

struct plan_data {  // bytes
    double lengths; // of documents, in every process
    double batches; // of the loaders, in every process
    double order;   // of samples: mapped by every process, resident once per machine
};

/* Of a run whose streams are open; valid NULL: it does not evaluate. */
struct plan_data plan_data_of(const struct config *cfg, const struct input_set *set,
                              const struct sample_stream *train,
                              const struct sample_stream *valid);

/* The same by opening the files for a moment, their tokens unread. */
MUST_CHECK int plan_data_find(struct plan_data *d, const struct config *cfg,
                              struct error *err);

/* Samples that a run asks its training stream for: max_steps of them, or, where that is
 * left empty, those of num_train_epochs. */
MUST_CHECK int plan_data_samples(int64_t *n_samples, const struct config *cfg,
                                 const struct input_set *set, struct error *err);

/* -- memory -------------------------------------------------------------------------- */

struct plan_memory { // bytes
    double params, grads, optimizer, activations, comm, scratch;
    double workspace;  // of a GPU: of its products, and of what passes to and from it
    double on_gpu;     // all the above, where a GPU has memory of its own; else 0
    double nccl;       // of a GPU, beside that: an estimate of NCCL's buffers
    double state;      // offloaded by a GPU to this machine's memory
    double tables;     // beside a GPU: the host's own of a model, and pinned memory
    double staging;    // beside a GPU: of messages
    double saving;     // the copy that a checkpoint in flight is written from
    double data;       // lengths of documents, order of samples, batches
    double program;    // what a process has before anything of this
    double total;      // of this machine's memory: all the above but what is on a GPU
    double offloaded;  // on disk
    double shared;     // of `data`, resident once per machine
    double emulated;   // of a GPU that is emulated: this machine has it, too
    double in_machine; // total and emulated
};
/* About what CUDA takes for its context and all kernels when a GPU is opened. */
#define PLAN_CONTEXT_BYTES 500e6

/* *data NULL: it is not known. */
struct plan_memory plan_memory(const struct plan *p, const struct config *cfg,
                               const struct plan_data *data);

#endif
