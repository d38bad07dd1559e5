/*
 * rank_log - what each rank of a job says in its own log: its place, its part of the
 * model, its memory. Rank 0 says it for all, in tables.
 */
#ifndef TRAIN_RANK_LOG_H
#define TRAIN_RANK_LOG_H

#include "train/train.h"

/* Before the first step, and after the last. (local) */
void rank_log_begin(const struct train *t);
void rank_log_end(const struct train *t);

#endif
