/*
 * loader - batches, ready when they are asked for.
 *
 * A reader thread fills a ring of batches ahead of the consumer. All memory is allocated
 * by loader_open(). Data rank r reads, for step t, the shuffled positions
 *     [t*global_batch + r*local_batch, + local_batch)
 * so the ranks together read each global batch once, whatever their number.
 *
 * Threads: one consumer. The reader thread blocks all signals.
 */
#ifndef DATA_SAMPLES_LOADER_H
#define DATA_SAMPLES_LOADER_H

#include "base/base.h"
#include "base/batch.h"
#include "base/error.h"
#include "data/samples/sample_stream.h"

struct loader_options {
    int64_t global_batch; // samples of a step on all data ranks
    int64_t local_batch;  // samples of a step on this one; global = local * n_data_ranks
    int data_rank;
    int n_data_ranks;
    int64_t first_step; // of the first loader_next(); counted from 0
    bool wraps;         // start again after the stream's n_samples: evaluation
    bool eod_mask_loss; // positions whose input token is `eos` do not count
    int32_t eos;        // used by eod_mask_loss only
};

struct loader; // opaque

/* `stream` is borrowed and must outlive the loader. */
MUST_CHECK int loader_open(struct loader **out, struct sample_stream *stream,
                           const struct loader_options *opt, struct error *err);

/* Bytes that a loader of so many samples per step allocates. */
size_t loader_bytes(int64_t local_batch, const struct sample_stream *stream);

/* Wait for the next step's batch, which is borrowed until the next call: all of what is
 * in the files, nothing of what is made of it. A read error appears here at the step it
 * belongs to, and again at every later call. */
MUST_CHECK int loader_next(struct loader *l, struct batch *b, struct error *err);

/* Stop the reader thread and release everything, in any state. NULL is fine. */
void loader_close(struct loader *l);

#endif
