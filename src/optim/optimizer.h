/*
 * optimizer - an update rule with clipping by the global norm, over the elements that
 * this process owns.
 *
 * A parameter has float32 tensors here: number 0 its weights, 1 + i the state i of the
 * rule. They are laid out by a shard_map, in memory or offloaded to files that a step
 * streams through. What is offloaded from a device with memory of its own, to files or to
 * the host's memory, is updated by the processor: gradients come down and parameters go
 * up, block by block, while it computes. Where the model's parameters are float32 they are the weights
 * themselves and this stores none. Parameters and gradients are the caller's, wherever
 * they lie. Code that saves, plans or offloads state goes by this list and knows no rule.
 *
 * The norm is summed in double over fixed chunks of each parameter, in the order of the
 * table; each parameter counts once. Chunks are never cut, so that the sum is the same
 * whoever owns them.
 */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "base/arena.h"
#include "base/offload.h"
#include "comm/comm.h"
#include "config/config.h"
#include "device/device.h"
#include "params/shard_map.h"

/* -- a rule -------------------------------------------------------------------------- */

#define UPDATE_MAX_STATES 4
#define OPTIMIZER_WEIGHTS 0 // the number of the weights among a parameter's tensors

/* Elements that are updated together, n of each. */
struct update_range {
    float *weights;
    void *param; // what weights are rounded to; the same memory when that is float32
    enum dtype param_dtype;
    const void *grad;
    enum dtype grad_dtype;
    float *states[UPDATE_MAX_STATES]; // of the rule, in its order
    int64_t n;
};

struct update_step {
    const struct config_optim *cfg;
    double lr;
    double decay;      // of this parameter
    double grad_scale; // what gradients are to be multiplied with: unscaled and clipped
    int64_t number;    // of the update, from 1
};

struct update_rule {
    int n_states;
    struct {
        const char *name; // "NAME.name" in checkpoints
        const char *what; // for messages: "the first moments"
    } states[UPDATE_MAX_STATES];
    /* States are zero before the first update. An element's bits do not depend on where
     * ranges are cut. */
    void (*update)(struct stream *s, const struct update_range *range,
                   const struct update_step *step);
};

/* The row of UPDATE_RULES() that the configuration names. */
const struct update_rule *update_rule_of(const struct config_optim *cfg);
/* Tensors that a parameter has with this rule: the weights and the states. */
int update_rule_n_tensors(const struct update_rule *rule);

/* -- the optimizer ------------------------------------------------------------------- */

struct optimizer_options {
    const struct shard_map *map; // borrowed
    struct device *dev;
    struct config_optim cfg;
    bool has_master;         // parameters are not the float32 ones themselves
    const char *offload_dir; // NULL: in memory
    bool is_in_host;         // in the host's memory, where the device has its own
    bool params_are_in_host; // so are the parameters
    /* Who owns other elements of the same parameters, and who holds others of the model;
     * NULL: this process has them all. */
    struct comm *sharding, *model, *pipe;
};

struct optimizer_tensor {
    float *data;          // by `local`; NULL: not stored here
    struct offload *held; // what holds it; NULL: memory
};

/* A block of elements on its way through the processor, pinned. */
struct optimizer_stage {
    void *grad, *param;
};

struct optimizer {
    struct optimizer_options opt;
    const struct update_rule *rule;
    struct optimizer_tensor tensors[1 + UPDATE_MAX_STATES];
    int64_t *row_chunks;              // (rows here + 1) first chunk of each
    double *squares;                  // sums of squares of all chunks here
    double *row_squares;              // (rows of the whole model)
    struct optimizer_stage stages[2]; // where the processor updates: in use, coming down
    struct event updated;             // the last step, on the stream that computes
    struct event copied;              // parameters of a layer have gone up
    struct arena arena, arena_tables; // of opt.dev, and the host's
    struct arena arena_pinned;        // what the device copies to and from
};

struct optimizer_memory { // bytes
    size_t resident;      // offloaded or not
    size_t host;      // of these, what is not opt.dev's, where it has memory of its own
    size_t offloaded; // on disk
};
struct optimizer_memory optimizer_measure(const struct optimizer_options *opt);

MUST_CHECK int optimizer_open(struct optimizer *o, const struct optimizer_options *opt,
                              struct error *err);
void optimizer_close(struct optimizer *o);

/* The Euclidean norm of all gradients of the model, the same number on every rank.
 * [collective] */
MUST_CHECK int optimizer_norm(struct optimizer *o, const struct shard_store *grads,
                              double *norm, struct error *err);

/* norms[i] := the norm of the gradients of layer i of the whole model, as the last
 * optimizer_norm() found them: the embedding, its n_blocks blocks, and what follows them.
 * How many there are, n_blocks + 2; 0: this process holds no block to tell by. */
int64_t optimizer_layer_norms(const struct optimizer *o, int64_t n_blocks, double *norms);

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

/* Elements [first, first + n) of a tensor stored here, by `local`: into x, or from x. */
MUST_CHECK int optimizer_read(struct optimizer *o, int tensor, int64_t first, int64_t n,
                              float *x, struct error *err);
MUST_CHECK int optimizer_write(struct optimizer *o, int tensor, int64_t first, int64_t n,
                               const float *x, struct error *err);

#endif
