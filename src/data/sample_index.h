/*
 * sample_index - which tokens sample i of a run consists of.
 *
 * The documents of one part (train, valid, test) are written out once for each epoch that
 * is needed, shuffled, and concatenated; sample k is the window of S+1 tokens that starts
 * at token k*S of that stream, so a window starts on the last token of the one before it
 * and crosses document borders. The samples are then shuffled.
 *
 * The order is that of Megatron and FleetX, bit for bit. One RandomState(seed) (numpy's
 * MT19937) serves each part, used in this order:
 *   1. shuffle the documents of all epochs together, or, when the last epoch stands
 *      apart, those of the first E-1 epochs together and then those of the last;
 *   2. shuffle the samples, likewise in one or in two pieces.
 * The last epoch stands apart when E > 1 and fewer than 80 % of an epoch's samples are
 * needed from it, so that what is left out is left out evenly.
 *
 * So the result depends on the corpus, the split, the part, S, n_samples and the seed:
 * these, and nothing else, are in the name of the cached file.
 *
 * Memory: 24 bytes a sample and 8 bytes a document and epoch.
 */
#ifndef DATA_SAMPLE_INDEX_H
#define DATA_SAMPLE_INDEX_H

#include "base/base.h"
#include "base/error.h"
#include "data/corpus.h"
#include "data/split.h"

struct sample_index_options {
    double split[SPLIT_PARTS]; // weights of train, valid, test
    enum split_part part;
    int64_t seq_len;       // S
    int64_t n_samples;     // needed; > 0
    int64_t seed;          // 0 .. 2^32-1, as numpy's
    const char *cache_dir; // "" or NULL: .trefoil_cache beside the data
};

struct sample_index {            // read-only for everybody but sample_index.c
    const struct corpus *corpus; // borrowed
    int64_t seq_len;
    int64_t n_samples;         // positions that exist: at least as many as were asked for
    int64_t n_epochs;          // E, passes over the part that they take
    int64_t samples_per_epoch; // for the epoch number in the log; at least 1
    int64_t tokens_per_epoch;
    int64_t n_documents; // entries of `documents`: E times those of the part
    bool last_epoch_is_apart;
    bool came_from_cache;

    const int64_t *documents; // (n_documents) document numbers, the stream's order
    const int64_t *starts;    // (n_samples, 2) entry of `documents`, token offset in it
    const int64_t *shuffle;   // (n_samples) position -> sample
    int64_t *values;          // owns the three above
};

/* Take the index from the cache, or build it and put it there. A cached file that is
 * damaged is built anew, with a warning; a directory that cannot be written only costs
 * the time to build again. An empty part is an error that says what to change. */
MUST_CHECK int sample_index_open(struct sample_index *index, const struct corpus *corpus,
                                 const struct sample_index_options *opt,
                                 struct error *err);
void sample_index_close(struct sample_index *index);

/* window[0..S] := the S+1 tokens of the sample at shuffled position 0 <= pos < n_samples.
 * Threads: any number. */
MUST_CHECK int sample_index_read(const struct sample_index *index, int64_t pos,
                                 int32_t *window, struct error *err);

#endif
