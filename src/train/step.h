/*
 * step - one step of training, and one evaluation between steps.
 */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/train.h"

/* A batch, its gradients, the update, a line of metrics; or, where the gradients overflow
 * float16, all but the update. *signal := what asked some rank to stop, 0 if nothing did;
 * the same on all ranks. [collective] */
MUST_CHECK int train_step(struct train *t, int64_t *signal, struct error *err);

/* The mean loss over eval_iters global batches of the validation part, logged.
 * [collective] */
MUST_CHECK int train_evaluate(struct train *t, struct error *err);

/* Called on every rank when its own gradients of a step are complete and those of the
 * embedding are not yet summed over data ranks. Does nothing; a test program that defines
 * its own may spoil them. */
void train_grads_hook(struct train *t);

#endif
