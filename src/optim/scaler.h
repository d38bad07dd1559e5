/*
 * scaler - the factor on the loss that keeps float16 gradients in range.
 *
 * Dynamic: doubled after SCALER_CLEAN_STEPS steps without overflow, halved after
 * SCALER_BAD_STEPS in a row with one, never below 1. A step whose gradients overflow is
 * left out: data and learning rate go on, weights and moments stay.
 *
 * The same on every rank: its input is what all ranks have agreed on.
 */
#ifndef OPTIM_SCALER_H
#define OPTIM_SCALER_H

#include "base/base.h"

#define SCALER_CLEAN_STEPS 1000
#define SCALER_BAD_STEPS 2
#define SCALER_HOPELESS_STEPS 100 // overflows in a row with a scale of 1

struct scaler {
    double scale;       // 1 when nothing is scaled
    int64_t good_steps; // since the scale changed or a step overflowed
    int64_t bad_steps;  // in a row
    int64_t n_skipped;  // steps left out so far
    bool is_dynamic;
};

/* The gradients of a step were finite, or not. */
void scaler_update(struct scaler *s, bool is_finite);

/* No scale will help: the numbers themselves are wrong. */
bool scaler_is_hopeless(const struct scaler *s);

#endif
