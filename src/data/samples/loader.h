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

/*
 * Padding stands at the end of a sample, and attention is causal: no token that counts
 * sees any, so there is no mask of it. What it computes is left out by loss_mask.
 */
struct batch { // borrowed from the loader until its next call
    int64_t n_samples;
    int64_t S;
    const int32_t *tokens;  // (n_samples, S)
    const int32_t *targets; // (n_samples, S) the token after each
    const float *loss_mask; // (n_samples, S) 1 counts, 0 does not: eod_mask_loss, padding
    const int32_t *document_start; // (n_samples, S) where in its sequence the document of
                                   // each token begins, which is the first key it sees
                                   // and has position 0; NULL: documents do not matter
    int64_t n_counted;             // ones in loss_mask
    int64_t first_sample;          // index in the global batch of sample 0
    int64_t step;
};

struct loader; // opaque

/* `stream` is borrowed and must outlive the loader. */
MUST_CHECK int loader_open(struct loader **out, struct sample_stream *stream,
                           const struct loader_options *opt, struct error *err);

/* What a loader of so many samples for each step takes. */
size_t loader_bytes(int64_t local_batch, const struct sample_stream *stream);

/* Wait for the next step's batch. A read error appears here at the step it belongs to,
 * and again at every later call. */
MUST_CHECK int loader_next(struct loader *l, struct batch *b, struct error *err);

/* Stop the reader thread and release everything, in any state. NULL is fine. */
void loader_close(struct loader *l);

#endif
