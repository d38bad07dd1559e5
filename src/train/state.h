/*
 * state - the numbers that a checkpoint holds: the tensors that a parameter has, by the
 * number that the optimizer gives them (kind: weights, or a state of the rule), in
 * float32, wherever this process has them: in memory or offloaded, as they are or with
 * 16-bit copies, whole or in shards.
 *
 * A process owns the pieces of t->plan.layout.map. Those of the processes with dp rank 0
 * and rows that are counted make up the whole model, each element once.
 */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "params/shard_map.h"
#include "train/train.h"

/* x[0, n) := elements [first, first + n) of the piece (counted from its own first), which
 * this process owns; or the other way round. Several threads may be in here at once, for
 * different elements, unless state is offloaded: its windows are one thread's. (local) */
MUST_CHECK int state_read(struct train *t, int kind, const struct shard_piece *piece,
                          int64_t first, int64_t n, float *x, struct error *err);
MUST_CHECK int state_write(struct train *t, int kind, const struct shard_piece *piece,
                           int64_t first, int64_t n, const float *x, struct error *err);

/* All pieces have been written: make what else depends on the parameters (16-bit copies,
 * what other processes own). [collective] */
MUST_CHECK int state_written(struct train *t, struct error *err);

/* Draw initial weights; moments are zero. [collective] */
MUST_CHECK int state_init(struct train *t, struct error *err);

#endif
