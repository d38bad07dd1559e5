/*
 * sample_stream - the data of a run: what `dataset.input_dir` names, opened and checked
 * (input_set), and the samples of one part of it (train, valid, test) in the order they
 * are used (sample_stream).
 *
 * Without weights all inputs are one corpus, whose documents follow each other. With
 * `dataset.weights` each input is a corpus of its own with its own split, epochs and
 * shuffle, and samples are drawn from them in proportion (blend.h).
 *
 * From one corpus, position i is position i of its sample index. From several, a blend
 * says whose turn position i is and how many samples that corpus has given before: they
 * are the positions of its own index, so each goes through its own epochs. Neither
 * changes when more samples are asked for, nor has an end.
 *
 * With `dataset.drop_last` a training epoch has floor(n / G) batches of G samples, n being
 * the samples of the first epoch, which has the fewest. The rest of each epoch's order is
 * dropped: positions count the samples that are used.
 *
 * Threads: any number after opening; one reads at a time.
 */
#ifndef DATA_SAMPLES_SAMPLE_STREAM_H
#define DATA_SAMPLES_SAMPLE_STREAM_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/samples/blend.h"
#include "data/samples/corpus.h"
#include "data/samples/sample_index.h"

#include <pthread.h>

/* -- inputs -------------------------------------------------------------------------- */

struct input_set { // read-only for everybody but sample_stream.c
    struct corpus **corpora;
    struct index_map
        *hashes; // (n_corpora) of documents; NULL unless the split needs them
    int64_t n_corpora;
    const double *weights; // (n_corpora) the configuration's; of no use for one
    int64_t eos;           // the token that ends a document; -1: unknown
    struct sample_index_options options; // of every part; part and n_samples not set
    bool has_document_start;             // samples are to say where documents begin
    int64_t padded_len; // tokens of a padded sample whose padding counts in the loss: the
                        // longest document's without the token that ends it, S at most;
                        // 0: padding does not count
    int64_t whole_batch; // samples of a batch, of which a training epoch has whole ones
                         // only; 0: batches continue across epochs
};

/* Open everything, refuse tokens outside of the model's vocabulary, and see that
 * datasets and configuration agree on the end of a document. An input that is in the list
 * twice, directly or in a directory, is an error. `cfg` is borrowed and must outlive the
 * set. */
MUST_CHECK int input_set_open(struct input_set *set, const struct config *cfg,
                              struct error *err);
/* The same without a check of the token ids. The tokens are read only for dataset.split_by
 * document, and only when their hashes are not in the cache. */
MUST_CHECK int input_set_open_unread(struct input_set *set, const struct config *cfg,
                                     struct error *err);
void input_set_close(struct input_set *set); // one of zeros is fine

/* What it holds in memory: one number per document. */
int64_t input_set_bytes(const struct input_set *set);
/* Hashes of documents, mapped and shared by all processes of a machine. */
int64_t input_set_hash_bytes(const struct input_set *set);

/* Names the content as corpus_fingerprint() does: of one corpus, the same; of several, it
 * depends on their order and weights too. */
void input_set_fingerprint(const struct input_set *set,
                           char hex[CORPUS_FINGERPRINT_BYTES]);

/* -- samples ------------------------------------------------------------------------- */

struct sample_stream { // read-only for everybody but sample_stream.c
    int64_t seq_len;   // S
    int64_t n_samples; // positions that exist: at least as many as were asked for
    bool has_document_start;
    int64_t padded_len;           // as of its inputs
    struct sample_index *indexes; // (n_indexes) one for each corpus
    int64_t n_indexes;
    struct blend blend; // of several indexes; zeros for one
    int64_t epoch_used; // positions of an epoch; 0: all that it has
    pthread_mutex_t reading;
};

/* `set` is borrowed and must outlive the stream; n_samples > 0. Nothing is made yet. */
MUST_CHECK int sample_stream_open(struct sample_stream *stream,
                                  const struct input_set *set, enum split_part part,
                                  int64_t n_samples, struct error *err);
void sample_stream_close(struct sample_stream *stream); // one of zeros is fine

/* Say in the log where the first n_samples come from. */
void sample_stream_log(const struct sample_stream *stream, int64_t n_samples);

/* An epoch of a blend is as many samples as one epoch of each corpus together; what they
 * are is up to the weights. The first position of an epoch (INT64_MAX when that is past
 * counting), and the epoch (from 0) of a position. */
int64_t sample_stream_epoch_start(const struct sample_stream *stream, int64_t epoch);
int64_t sample_stream_epoch_of(const struct sample_stream *stream, int64_t pos);

/* Memory of the order of samples, as sample_index_bytes() and its neighbour say. */
double sample_stream_bytes(const struct sample_stream *stream);
double sample_stream_making_bytes(const struct sample_stream *stream);
double sample_stream_list_bytes(const struct sample_stream *stream);

/* Fill *out with the sample at position pos >= 0. */
MUST_CHECK int sample_stream_read(struct sample_stream *stream, int64_t pos,
                                  struct sample *out, struct error *err);

#endif
