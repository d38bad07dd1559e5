/*
 * sample_index - which tokens sample i of a run consists of.
 *
 * Packed: the documents of one part (train, valid, test) are written out once for each
 * epoch that is needed, each epoch shuffled, and concatenated; sample k is the window of
 * S+1 tokens that starts at token k*S of that stream, so a window starts on the last
 * token of the one before it and crosses document borders. The samples of an epoch are
 * then shuffled; one that begins in an epoch and ends in the next belongs to the next.
 *
 * Padded: a sample is one document, its first S+1 tokens if it has more, filled up at the
 * end with `pad` if it has fewer. Documents of fewer than two tokens have nothing to
 * predict and are no samples. An epoch is every other document once, shuffled.
 *
 * Epoch e uses numpy's RandomState(seed + e): first for its documents, then, when packed,
 * for its samples. One packed epoch is thus Megatron's and FleetX's order bit for bit.
 * Over several they shuffle the epochs together, so that the order depends on how long
 * the run is meant to be; here it does not, and a run that is prolonged goes on as if it
 * had been that long.
 *
 * So the result depends on the corpus, the split, the part, the mode, S, the epochs and
 * the seed: these, and nothing else, are in the name of the cached file.
 *
 * Memory: packed, 24 bytes a sample and 8 bytes a document and epoch; padded, 8 bytes a
 * sample.
 */
#ifndef DATA_SAMPLE_INDEX_H
#define DATA_SAMPLE_INDEX_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/corpus.h"
#include "data/split.h"

struct sample_index_options {
    double split[SPLIT_PARTS]; // weights of train, valid, test
    enum split_part part;
    int64_t seq_len;       // S
    int64_t n_samples;     // needed; > 0
    int64_t seed;          // 0 .. 2^32-1, as numpy's
    const char *cache_dir; // "" or NULL: .trefoil_cache beside the data
    enum config_sample_mode mode;
    int32_t pad; // what fills up a padded sample
};

struct sample_index {            // read-only for everybody but sample_index.c
    const struct corpus *corpus; // borrowed
    enum config_sample_mode mode;
    int32_t pad;
    int64_t seq_len;
    int64_t n_samples; // positions that exist: at least as many as were asked for
    int64_t n_epochs;  // E, passes over the part that they take
    int64_t tokens_per_epoch;
    int64_t documents_per_epoch;
    int64_t n_documents; // entries of `documents`: E epochs of them
    bool came_from_cache;

    const int64_t *documents; // (n_documents) document numbers, the stream's order
                              // padded: position -> document, and the next two are NULL
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

/* The first position of an epoch (INT64_MAX when that is past counting), and the epoch
 * (from 0) of a position. */
int64_t sample_index_epoch_start(const struct sample_index *index, int64_t epoch);
int64_t sample_index_epoch_of(const struct sample_index *index, int64_t pos);

struct sample {              // the caller's room for one
    int32_t *window;         // (S + 1) tokens
    int32_t *document_start; // (S) or NULL, which means not wanted: for each token where
                             // in the window its document begins; 0 for one that began
                             // before the window
    int64_t n_real;          // window[n_real .. S] is padding; S + 1 when packed
};

/* Fill *out with the sample at shuffled position 0 <= pos < n_samples. Documents are what
 * the corpus says they are: a token that ends one, such as eos, is its last. Threads: any
 * number. */
MUST_CHECK int sample_index_read(const struct sample_index *index, int64_t pos,
                                 struct sample *out, struct error *err);

#endif
