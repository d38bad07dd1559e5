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
 * predict and are no samples, unless padding is predicted too, in which case the token
 * that ends a document is padding. An epoch is every other document once, shuffled.
 *
 * Epoch e uses numpy's RandomState(seed + e): first for its documents, then, when packed,
 * for its samples. One packed epoch is thus Megatron's and FleetX's order bit for bit.
 * Over several they shuffle the epochs together, so that the order depends on how long
 * the run is meant to be; here it does not, and a run that is prolonged goes on as if it
 * had been that long.
 *
 * The order has no end: `n_samples` says how much of it a run means to use. A table of
 * the epochs at hand is opened when a position in it is read, and the next one is made
 * ahead by a thread, half a table before it is needed.
 *
 * Memory: two tables, shared by all processes of a machine (index_cache.h). Packed, one
 * has 24 bytes per sample and 8 per document of its epochs; padded, 8 per sample.
 */
#ifndef DATA_SAMPLES_SAMPLE_INDEX_H
#define DATA_SAMPLES_SAMPLE_INDEX_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/samples/corpus.h"
#include "data/samples/index_cache.h"
#include "data/samples/split.h"

struct sample_index_options {
    double split[SPLIT_PARTS]; // weights of train, valid, test
    enum config_split_by split_by;
    const struct index_map *hashes; // of the documents, see struct split_options
    enum split_part part;
    int64_t seq_len;       // S
    int64_t n_samples;     // needed; > 0
    int64_t seed;          // 0 .. 2^32-1, as numpy's
    const char *cache_dir; // "" or NULL: .trefoil_cache beside the data
    enum config_sample_mode mode;
    bool pad_loss;         // padding is predicted: every document is a padded sample
    int64_t eos;           // the token that ends a document; -1: unknown
    int32_t pad;           // what fills up a padded sample
    int64_t table_samples; // about; 0: as many as make a file worth while
};

struct sample_epochs {           // of one part of a corpus: what follows from its lengths
    const struct corpus *corpus; // borrowed
    enum config_sample_mode mode;
    int64_t seq_len;      // S
    int64_t seed;         // of epoch 0
    int64_t least_tokens; // of a document that is in an epoch
    struct split split;   // the part's documents
    int64_t n_tokens;     // T, of an epoch
    int64_t n_documents;  // D, of an epoch; padded: those that are samples
    int64_t epochs_per_table;
};

/* Samples of the first `epoch` epochs; INT64_MAX when that is past counting. Packed, one
 * that begins in an epoch and ends in the next belongs to the next. */
int64_t sample_epochs_before(const struct sample_epochs *e, int64_t epoch);
/* The epoch (from 0) of a sample or position. */
int64_t sample_epochs_of(const struct sample_epochs *e, int64_t pos);
/*
 * A table lists the samples of `epochs_per_table` epochs in a row: one, or as many as make
 * a table worth a file. An epoch has its own shuffle, so they can be listed without those
 * before. A table depends on the corpus, the part, the mode, S and the seed, not on how
 * long a run is.
 *
 *     packed   n | documents (n) | starts (n_samples, 2) | shuffle (n_samples)
 *     padded   n | documents (n)
 *
 * Packed, the documents begin with the one in which the first sample begins, which in all
 * tables but the first is near the end of the epoch before.
 */
struct sample_table { // read-only for everybody but sample_index.c
    struct index_map map;
    int64_t number;       // -1: none is open
    int64_t first_sample; // of its epochs; positions and samples count from it
    int64_t n_samples;
    int64_t n_documents;
    // where in the map they begin
    int64_t documents; // (n_documents) document numbers, the stream's order
                       // padded: position -> document, and the next two are empty
    int64_t starts;    // (n_samples, 2) entry of `documents`, token offset in it
    int64_t shuffle;   // (n_samples) position -> sample
};

struct sample_index { // read-only for everybody but sample_index.c
    struct sample_epochs epochs;
    int32_t pad;
    int64_t end_is_padding; // a token that is padding where it ends a document; -1: none
    int64_t n_samples;      // positions of n_epochs: at least as many as were asked for
    int64_t n_epochs;       // passes over the part that they take
    struct sample_table table; // of the position read last
    struct ahead *ahead;       // who makes the next one; NULL: nobody
    char *cache_dir;
    char key[33]; // names all that the tables depend on
    enum split_part part;
    bool is_reported; // that the cache cannot be written
};

/* Nothing is made yet. An empty part is an error that says what to change. */
MUST_CHECK int sample_index_open(struct sample_index *index, const struct corpus *corpus,
                                 const struct sample_index_options *opt,
                                 struct error *err);
void sample_index_close(struct sample_index *index);
/* Change the number of samples that are needed; n_samples > 0. */
MUST_CHECK int sample_index_need(struct sample_index *index, int64_t n_samples,
                                 struct error *err);

/* What the tables take, mapped and shared by all processes of a machine, in bytes; and
 * the most that making one takes besides, of the process that does. */
double sample_index_bytes(const struct sample_index *index);
double sample_index_making_bytes(const struct sample_index *index);
/* The list of the part's documents, in bytes, in each process. */
double sample_index_list_bytes(const struct sample_index *index);

struct sample {              // the caller's memory for one
    int32_t *window;         // (S + 1) tokens
    int32_t *document_start; // (S) or NULL, which means not wanted: for each token where
                             // in the window its document begins; 0 for one that began
                             // before the window
    int64_t n_real;          // window[n_real .. S] is padding; S + 1 when packed
};

/* Fill *out with the sample at shuffled position pos >= 0. Documents are what the corpus
 * says they are: a token that ends one, such as eos, is its last. The table comes from
 * the cache, or is made and put there; a cached file that is damaged is made anew, with a
 * warning. Threads: one at a time. */
MUST_CHECK int sample_index_read(struct sample_index *index, int64_t pos,
                                 struct sample *out, struct error *err);

#endif
