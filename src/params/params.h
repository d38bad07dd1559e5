/*
 * params - the parameters and gradients of one process's part of a model, as the model
 * uses them: a weight for each row of the table, and in each store.
 *
 * They lie in one storage that the table lays out, or belong to an owner (ZeRO), which is
 * called before and after each use of a layer and binds it to where it then lies. This is
 * all that the two know of each other.
 */
#ifndef PARAMS_PARAMS_H
#define PARAMS_PARAMS_H

#include "device/weight.h"
#include "params/param_table.h"

/* Layers are indices of the table. Functions may be NULL. */
struct params_owner {
    void *context;
    /* The parameters of `layer`, and for is_backward its gradients, are about to be used;
     * after it, those of `next` will be (-1: none known). */
    void (*open)(void *context, int layer, int next, bool is_backward);
    /* They have been used. With is_backward the gradients of this micro-batch are there,
     * and with is_last those of the step; those of a late layer only after the step. */
    void (*close)(void *context, int layer, bool is_backward, bool is_last);
    bool takes_grads; // after each micro-batch; the next one starts afresh, but for late
                      // layers
};

struct params {
    const struct param_table *table;  // borrowed
    void *storage[N_STORES];          // NULL: the owner's; or gradients not wanted
    struct weight *weights[N_STORES]; // (rows of the table), owned
    struct params_owner owner;
};

/* Weights without storage. */
MUST_CHECK int params_init(struct params *p, const struct param_table *table,
                           struct error *err);
void params_release(struct params *p);

/* All rows lie in `storage`, which stays the caller's. */
void params_bind(struct params *p, enum param_store store, void *storage);
/* The rows of one layer do, where its part of a storage begins at `base`. */
void params_bind_layer(struct params *p, enum param_store store, int layer, void *base);
/* All parameters have changed where they lie. */
void params_changed(struct params *p);

/* The weights of a layer, by the model's order of its rows; NULL when it is not here. A
 * layer whose row is tied has the weight that it is tied to. */
const struct weight *params_layer(const struct params *p, enum param_store store,
                                  enum param_layer_kind kind, int64_t block);

void params_open_layer(struct params *p, enum param_layer_kind kind, int64_t block,
                       int next, bool is_backward);
void params_close_layer(struct params *p, enum param_layer_kind kind, int64_t block,
                        bool is_backward, bool is_last);

#endif
