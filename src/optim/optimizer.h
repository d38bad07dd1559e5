/*
 * optimizer - AdamW or Adam, with clipping by the global norm, over the elements that
 * this process owns.
 *
 * Its state is laid out by a shard_map: two moments, and float32 master weights where the
 * parameters have fewer bits; in memory, or offloaded to files that a step streams
 * through. Parameters and gradients are the caller's, wherever they lie.
 *
 * The norm is summed in double over fixed chunks of each parameter, in the order of the
 * table; each parameter counts once. Chunks are never cut, so that the sum is the same
 * whoever owns them.
 *
 * Layer: base, config, kernels, model (the tables only) <- optim.
 */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "base/arena.h"
#include "base/offload.h"
#include "config/config.h"
#include "device/kernels.h"
#include "params/shard_map.h"

enum optimizer_buffer { OPTIMIZER_EXP_AVG, OPTIMIZER_EXP_AVG_SQ, OPTIMIZER_MASTER };
#define OPTIMIZER_BUFFERS 3

struct optimizer_options {
    const struct shard_map *map; // borrowed
    const struct kernels *k;
    struct config_optim cfg;
    bool has_master;         // parameters are not the float32 ones themselves
    const char *offload_dir; // NULL: in memory
};

struct optimizer {
    struct optimizer_options opt;
    float *buffers[OPTIMIZER_BUFFERS];           // by `local`; master may be NULL
    struct offload *offloads[OPTIMIZER_BUFFERS]; // what holds them; NULL: memory
    int64_t *row_chunks;                         // (rows here + 1) first chunk of each
    double *squares;                             // sums of squares of all chunks here
    double *row_squares;                         // (rows of the whole model)
    struct arena arena;
};

struct optimizer_memory { // bytes
    size_t resident;
    size_t offloaded;
};
struct optimizer_memory optimizer_measure(const struct optimizer_options *opt);

MUST_CHECK int optimizer_open(struct optimizer *o, const struct optimizer_options *opt,
                              struct error *err);
void optimizer_close(struct optimizer *o);

/* -- the norm ------------------------------------------------------------------------ */

/* o->squares, optimizer_n_squares() values: those of the chunks owned, 0 for the others:
 * to be summed over the owners, in place, before optimizer_row_squares(). */
void optimizer_squares(struct optimizer *o, const struct shard_store *grads);
int64_t optimizer_n_squares(const struct optimizer *o);
/* The sum of the squares of each parameter's gradient, by its row in the whole model; 0
 * for what this process does not hold or another one counts. n_params_whole values, to be
 * summed over the processes of a model, in place, before optimizer_norm(). */
double *optimizer_row_squares(struct optimizer *o);
/* The Euclidean norm of all gradients, from those sums. */
double optimizer_norm(const struct optimizer *o);

/* -- the update ---------------------------------------------------------------------- */

struct optimizer_update {
    const struct shard_store *params, *grads;
    double lr;
    double grad_norm;  // of the gradients times grad_scale
    double grad_scale; // what the gradients are to be multiplied with, before clipping
    int64_t number;    // from 1
    /* Layer i of the map has been updated, and layers come in order. May be NULL. */
    void (*on_layer)(void *context, int i);
    /* Layer i is about to be updated: its parameters must be there. May be NULL. */
    void (*before_layer)(void *context, int i);
    void *context;
};

/* Clip, decay, move. */
MUST_CHECK int optimizer_step(struct optimizer *o, const struct optimizer_update *update,
                              struct error *err);

/* -- for checkpoints ----------------------------------------------------------------- */

/* Elements [first, first + n) of a buffer, by `local`: into x, or from x. */
MUST_CHECK int optimizer_read(struct optimizer *o, enum optimizer_buffer b, int64_t first,
                              int64_t n, float *x, struct error *err);
MUST_CHECK int optimizer_write(struct optimizer *o, enum optimizer_buffer b,
                               int64_t first, int64_t n, const float *x,
                               struct error *err);

#endif
