/*
 * fit - whether a run fits in the memory of a machine, and what would make it fit.
 *
 * The processes of one machine share its memory and ask for it at the same time: each has
 * its part of what is free, and the fullest of them decides. The copy that checkpoints
 * are written from is not counted, since saves can do without.
 */
#ifndef TRAIN_FIT_H
#define TRAIN_FIT_H

#include "config/config.h"
#include "train/plan.h"

/* The memory of its machine that a process needs, as one of n_local there. */
double fit_needed(const struct plan_memory *mem, int n_local);

/* The fullest process of the layout: *mem is its memory, *rank its number. */
MUST_CHECK int fit_fullest(struct plan_memory *mem, int *rank, const struct config *cfg,
                           const struct plan_data *data, struct error *err);

/* -1, with a sentence: process `rank` needs `needed` bytes and `available` are there for
 * each of the n_local processes here; and the changes. */
int fit_refuse(const struct plan_memory *mem, int rank, double needed, double available,
               const struct config *cfg, const struct plan_data *data, int n_local,
               struct error *err);

/* The same of a GPU, of which so much is left. */
MUST_CHECK int fit_check_gpu(const struct plan_memory *mem, int rank, double available,
                             const struct config *cfg, const struct plan_data *data,
                             int n_local, struct error *err);

#define FIT_CHANGE_BYTES 512                            // the words of one change
#define FIT_CHANGES_BYTES (3 * (FIT_CHANGE_BYTES + 16)) // of all, with what they need

/* Up to three changes of the configuration with which its fullest process needs no more
 * than `available`, and no more than on_gpu of a GPU's memory, where it has one; the
 * cheapest first, in words; "" when there are none. A change that the configuration does
 * not accept is none. */
void fit_changes(char words[FIT_CHANGES_BYTES], const struct config *cfg,
                 const struct plan_data *data, int n_local, double available,
                 double on_gpu);

/* Refuse a run of which this machine would get n_ranks (0: not known) and cannot hold
 * them, ranks and memory in one sentence: ERROR_INPUT when there are too many ranks
 * (thread_is_crowded()) and the user has not asked for that, else ERROR_RUNTIME. */
MUST_CHECK int fit_check_machine(int64_t n_ranks, bool is_oversubscribed,
                                 const struct config *cfg, struct error *err);

#endif
