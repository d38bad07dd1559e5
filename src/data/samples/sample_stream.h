/*
 * sample_stream - the samples of one part (train, valid, test) of a run's data, in the
 * order they are used, whether they come from one corpus or from several by weight.
 *
 * From one corpus, position i is position i of its sample index. From several, a blend
 * says whose turn position i is and how many samples that corpus has given before: they
 * are the positions of its own index, so each goes through its own epochs. Neither
 * changes when more samples are asked for, nor has an end.
 *
 * Threads: any number after opening; one reads at a time.
 */
#ifndef DATA_SAMPLES_SAMPLE_STREAM_H
#define DATA_SAMPLES_SAMPLE_STREAM_H

#include "base/base.h"
#include "base/error.h"
#include "data/samples/blend.h"
#include "data/samples/input_set.h"
#include "data/samples/sample_index.h"

#include <pthread.h>

struct sample_stream { // read-only for everybody but sample_stream.c
    int64_t seq_len;   // S
    int64_t n_samples; // positions that exist: at least as many as were asked for
    bool has_document_start;
    struct sample_index *indexes; // (n_indexes) one for each corpus
    int64_t n_indexes;
    struct blend blend; // of several indexes; zeros for one
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

/* What the order of samples takes, as sample_index_bytes() and its neighbour say. */
double sample_stream_bytes(const struct sample_stream *stream);
double sample_stream_making_bytes(const struct sample_stream *stream);

/* Fill *out with the sample at position pos >= 0. */
MUST_CHECK int sample_stream_read(struct sample_stream *stream, int64_t pos,
                                  struct sample *out, struct error *err);

#endif
