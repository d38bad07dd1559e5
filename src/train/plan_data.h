/*
 * plan_data - what a run's data takes of memory: the lengths of documents, the order of
 * samples, batches that are read ahead. Known when the files are there to be asked.
 */
#ifndef TRAIN_PLAN_DATA_H
#define TRAIN_PLAN_DATA_H

#include "config/config.h"
#include "data/samples/sample_stream.h"

struct plan_data {  // bytes
    double lengths; // of documents, in every process
    double batches; // of the loaders, in every process
    double order;   // of samples: mapped by every process, there once for a machine
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

#endif
