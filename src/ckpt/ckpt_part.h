/*
 * ckpt_part - what one process has of a model, as checkpoints see it: runs of elements of
 * the logical tensors, and how to get at their numbers.
 *
 * Plain data: nothing here knows about ranks, grids or messages, so parts of any layout
 * can be written and read by one process, in turn.
 */
#ifndef CKPT_CKPT_PART_H
#define CKPT_CKPT_PART_H

#include "base/base.h"
#include "base/error.h"
#include "params/param_table.h"
#include "params/shard_map.h"

/* A `kind` is the number of a tensor among those that a parameter has (optimizer.h): the
 * weights, and 1 + i for state i of the update rule. */

/* Elements [first, first + n) of a process's part of one parameter. `runs` says where in
 * the whole parameter that part lies. */
struct ckpt_piece {
    const struct param *row; // of this process's table, borrowed
    int64_t id; // the caller's name for the piece: its place in the shard map
    struct param_runs runs;
    int64_t first, n;
};

struct ckpt_part {
    struct ckpt_piece *pieces; // (n_pieces) in the order of the table, owned
    int64_t n_pieces;
    int64_t n_elements; // of all of them
};

/* The pieces that `map` gives to its rank. `only_counted`: leave out what another process
 * of the same replica saves. */
MUST_CHECK int ckpt_part_init(struct ckpt_part *part, const struct shard_map *map,
                              bool only_counted, struct error *err);
void ckpt_part_release(struct ckpt_part *part);

/* Element i of the piece and those after it that follow it in the whole parameter:
 * returns how many, at most n, and the place of the first in *whole. */
int64_t ckpt_piece_run(const struct ckpt_piece *piece, int64_t i, int64_t n,
                       int64_t *whole);

/* Numbers to be written: elements [first, first + n) of the piece, either where they lie
 * or copied to `room` (of n floats). NULL: failed, with *err filled. */
struct ckpt_source {
    const float *(*view)(void *context, int kind, const struct ckpt_piece *piece,
                         int64_t first, int64_t n, float *room, struct error *err);
    void *context;
};

/* Where numbers go that were read: the same elements, from x. Called by several threads
 * at once, never for the same element. */
struct ckpt_sink {
    int (*take)(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err);
    void *context;
};

#endif
