/*
 * param_draw - initial weights: each element by its seed and its place in the whole model
 * alone, so that they are the same on any layout.
 */
#ifndef PARAMS_PARAM_DRAW_H
#define PARAMS_PARAM_DRAW_H

#include "params/shard_map.h"

/* Where they go: elements [first, first + n) of a piece, counted from its own first. */
typedef int param_sink(void *context, const struct shard_piece *piece, int64_t first,
                       int64_t n, const float *x, struct error *err);

/* Draw all pieces of the map, block by block. (local) */
MUST_CHECK int param_draw(const struct shard_map *map, uint64_t seed, double std,
                          param_sink *sink, void *context, struct error *err);

#endif
