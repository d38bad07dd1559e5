/*
 * epoch - what happens when a pass over the training data ends: a line of log, and an
 * evaluation after every test_interval of them.
 *
 * Passes follow each other without a break, so a step may hold the end of one and the
 * beginning of the next: it belongs to the one it begins in. Where num_train_epochs
 * decides, the last step ends the last epoch, though a rest smaller than a batch is left.
 */
#ifndef TRAIN_EPOCH_H
#define TRAIN_EPOCH_H

#include "train/train.h"

struct epoch_end {
    bool is_end;   // the step that was just done is the last of `epoch`
    int64_t epoch; // from 0
    bool is_whole; // its mean covers all its steps: the run was not resumed within it
    bool is_test;  // test_interval asks for an evaluation
};

/* About the step that was just done. Local, the same on every rank. */
struct epoch_end epoch_end(const struct train *t);

/* A line about the training of the epoch; resets what it is about. Of rank 0. */
void epoch_log_train(struct train *t, const struct epoch_end *end);
/* A line about the evaluation that followed it. Of rank 0. */
void epoch_log_test(const struct train *t, const struct epoch_end *end);

#endif
