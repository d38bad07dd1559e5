/*
 * grid - which part of the model and of the batch this process has, and whom it talks to.
 *
 * Four axes, slowest to fastest: data, pipe, sharding, model:
 *
 *     rank = ((dp * PP + pp) * SH + sh) * MP + mp
 *
 * so that the ranks that talk most (model) are neighbours. Nobody computes ranks
 * elsewhere. Groups of one rank are there too, and do nothing: callers never write
 * `if (size > 1)`.
 */
#ifndef COMM_GRID_H
#define COMM_GRID_H

#include "base/base.h"
#include "base/error.h"
#include "comm/comm.h"

struct grid_shape { // processes along each axis, all >= 1
    int dp, pp, sharding, mp;
};

struct grid_coord { // a place in it, 0 <= each < its degree
    int dp, pp, sharding, mp;
};

/* -- arithmetic (pure) --------------------------------------------------------------- */

/* The product of the degrees; INT64_MAX where that would overflow. */
int64_t grid_size(const struct grid_shape *shape);
struct grid_coord grid_coord_of(const struct grid_shape *shape, int rank);
int grid_rank_of(const struct grid_shape *shape, struct grid_coord at);

/* Check that `shape` takes exactly n_processes. dp 0 stands for "what is left" and is
 * filled in. A shape that does not fit is ERROR_INPUT; the sentence names the number of
 * processes it needs and the layouts of n_processes nearest to it. Opens nothing: made
 * for checking a configuration before any process is started. */
MUST_CHECK int grid_fit(struct grid_shape *shape, int64_t n_processes, struct error *err);

/* "dp 2 x mp 3": the degrees above one, "dp 1" when there are none. */
void grid_describe(const struct grid_shape *shape, char *text, size_t text_bytes);

/* Whether a layout suits the caller. */
typedef bool grid_accept_fn(void *context, const struct grid_shape *shape);

/* The layouts of n_processes nearest to `shape`, nearest first, as "dp 8; dp 4 x mp 2";
 * at most `n_most` of them, of those that `accepts` (NULL: all); none for more than 2^20
 * processes. shape's degrees are >= 1. */
void grid_suggest(const struct grid_shape *shape, int64_t n_processes, int n_most,
                  grid_accept_fn *accepts, void *context, char *text, size_t text_bytes);

/* -- this process in the grid -------------------------------------------------------- */

struct grid {
    struct grid_shape shape;
    struct grid_coord coord;
    struct comm *world;    // borrowed; rank in it as above
    struct comm *dp;       // equal pp, sharding, mp
    struct comm *pipe;     // equal dp, sharding, mp; rank in it = stage
    struct comm *sharding; // equal dp, pp, mp
    struct comm *model;    // equal dp, pp, sharding
    struct comm *data;     // equal pp, mp; rank in it = data_rank = dp * SH + sh
    struct comm *tied; // first and last stage of my pipe: rank 0 and 1; alone elsewhere
    struct comm *replica; // equal dp: one whole model, of ranks (pp * SH + sh) * MP + mp
    int data_rank, data_size;
    bool is_first_stage, is_last_stage;
};

/* Lay the ranks of `world` out as `shape`, which must fit (grid_fit). The ranks
 * agree on the outcome; on failure nothing is left open. [collective] */
MUST_CHECK int grid_open(struct grid *grid, struct comm *world,
                         const struct grid_shape *shape, struct error *err);
/* Tensors in the buffers of all groups are `dev`'s from now on, see comm_set_device(), and
 * where the devices of all ranks reach each other they pass from one to the other. The
 * device stays open until the grid is closed. [collective] */
MUST_CHECK int grid_use_device(struct grid *grid, struct device *dev, struct error *err);
/* Closes the groups, not the world. A grid of zeros is fine. [collective] */
void grid_close(struct grid *grid);

#endif
