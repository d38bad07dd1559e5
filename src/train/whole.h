/*
 * whole - the three flat buffers of the whole model, brought together from the parts that
 * the processes of one replica hold, and taken apart again.
 *
 * A checkpoint knows no layout: it holds logical tensors. With one process the parts are
 * the whole and nothing is copied. Otherwise rank 0 holds 12 bytes a parameter of the
 * whole model while it saves, and every rank while it loads.
 */
#ifndef TRAIN_WHOLE_H
#define TRAIN_WHOLE_H

#include "train/train.h"

struct whole {
    struct param_table table;
    float *params, *exp_avg, *exp_avg_sq;
    bool is_borrowed; // the train's own buffers
    struct arena arena;
};

/* Room for the whole model; the train's own buffers when they are that. */
MUST_CHECK int whole_open(struct whole *w, struct train *t, struct error *err);
void whole_close(struct whole *w);

/* Rank 0's *w := all parts. Others pass NULL. [collective] */
MUST_CHECK int whole_gather(struct whole *w, struct train *t, struct error *err);
/* This rank's part := its share of *w. (local) */
void whole_take_part(const struct whole *w, struct train *t);

#endif
