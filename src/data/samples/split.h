/*
 * split - the documents of a corpus divided into train, valid and test, in order.
 *
 * As FleetX and Megatron do it: weights are normalised, each part gets round(w * n)
 * documents (halves to even), and what rounding gave too much or too little is taken from
 * every boundary. Where that would put a boundary before document 0, it is 0 here.
 */
#ifndef DATA_SAMPLES_SPLIT_H
#define DATA_SAMPLES_SPLIT_H

#include "base/base.h"
#include "base/error.h"

#define SPLIT_PARTS 3

enum split_part { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST };

/* "train", "valid", "test". */
const char *split_part_name(enum split_part part);

/* Part p is the documents [bounds[p], bounds[p+1]). Weights must be finite, not negative,
 * and not all zero. */
MUST_CHECK int split_documents(const double weights[SPLIT_PARTS], int64_t n_documents,
                               int64_t bounds[SPLIT_PARTS + 1], struct error *err);

#endif
