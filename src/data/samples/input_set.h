/*
 * input_set - what `dataset.input_dir` names, opened and checked: the data of a run.
 *
 * Without weights all inputs are one corpus, whose documents follow each other. With
 * `dataset.weights` each input is a corpus of its own with its own split, epochs and
 * shuffle, and samples are drawn from them in proportion (data/blend.h).
 *
 * Layer: base, config <- data.
 */
#ifndef DATA_SAMPLES_INPUT_SET_H
#define DATA_SAMPLES_INPUT_SET_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/samples/corpus.h"
#include "data/samples/sample_index.h"

struct input_set { // read-only for everybody but input_set.c
    struct corpus **corpora;
    int64_t n_corpora;
    const double *weights; // (n_corpora) the configuration's; of no use for one
    int64_t eos;           // the token that ends a document; -1: unknown
    struct sample_index_options options; // of every part; part and n_samples not set
    bool has_document_start;             // samples are to say where documents begin
};

/* Open everything, refuse tokens outside of the model's vocabulary, and bring the eos of
 * datasets and configuration together. An input that is in the list twice, directly or in
 * a directory, is an error. `cfg` is borrowed and must outlive the set. */
MUST_CHECK int input_set_open(struct input_set *set, const struct config *cfg,
                              struct error *err);
/* The same without a look at the tokens: what the sizes and indexes tell. */
MUST_CHECK int input_set_open_unread(struct input_set *set, const struct config *cfg,
                                     struct error *err);
void input_set_close(struct input_set *set); // one of zeros is fine

/* What it keeps in memory: a number for each document. */
int64_t input_set_bytes(const struct input_set *set);

/* Names the content as corpus_fingerprint() does: of one corpus, the same; of several, it
 * depends on their order and weights too. */
void input_set_fingerprint(const struct input_set *set,
                           char hex[CORPUS_FINGERPRINT_BYTES]);

#endif
