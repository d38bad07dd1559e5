/*
 * gpt_rate - how fast products of a model's shape run on this process's threads: the
 * measure of its speed, taken in less than 50 ms.
 */
#ifndef MODEL_GPT_RATE_H
#define MODEL_GPT_RATE_H

#include "base/base.h"
#include "base/error.h"
#include "device/device.h"

struct gpt_rate {
    int64_t rows, inner, columns; // of the product that was measured
    double flops;                 // per second
};

/* Products x (rows, inner) by w (columns, inner), forward and back, of the device's type;
 * rows and columns are cut to what takes a few milliseconds. Memory is freed again. */
MUST_CHECK int gpt_rate_measure(struct gpt_rate *r, int64_t rows, int64_t inner,
                                int64_t columns, struct device *dev, struct error *err);

#endif
