/*
 * sample_table - the order of the samples of a few epochs.
 *
 * An epoch has its own shuffle, so its samples can be listed without those before it. A
 * table is that list for `epochs_per_table` epochs in a row: one, or as many as make a
 * table worth a file. It depends on the corpus, the part, the mode, S and the seed, not
 * on how long a run is.
 *
 *     packed   n | documents (n) | starts (n_samples, 2) | shuffle (n_samples)
 *     padded   n | documents (n)
 *
 * Packed, the documents begin with the one in which the first sample begins, which in all
 * tables but the first is near the end of the epoch before.
 *
 * Memory: packed, 24 bytes for each sample and 8 for each document of an epoch; padded, 8
 * for each sample. It is shared by all processes of a machine (index_cache.h).
 */
#ifndef DATA_SAMPLES_SAMPLE_TABLE_H
#define DATA_SAMPLES_SAMPLE_TABLE_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/samples/corpus.h"
#include "data/samples/index_cache.h"

struct sample_epochs {           // of one part of a corpus: what follows from its lengths
    const struct corpus *corpus; // borrowed
    enum config_sample_mode mode;
    int64_t seq_len;            // S
    int64_t seed;               // of epoch 0
    int64_t first_doc, end_doc; // of the part
    int64_t n_tokens;           // T, of an epoch
    int64_t n_documents;        // D, of an epoch; padded: those that are samples
    int64_t epochs_per_table;
};

/* epochs_per_table for tables of about `n_samples`. */
int64_t sample_table_epochs(const struct sample_epochs *e, int64_t n_samples);

/* Samples of the first `epoch` epochs; INT64_MAX when that is past counting. Packed, one
 * that begins in an epoch and ends in the next belongs to the next. */
int64_t sample_epochs_before(const struct sample_epochs *e, int64_t epoch);
/* The epoch (from 0) of a sample or position. */
int64_t sample_epochs_of(const struct sample_epochs *e, int64_t pos);
/* Whether a document is in an epoch at all. */
bool sample_epochs_has(const struct sample_epochs *e, int64_t doc);

struct sample_table { // read-only for everybody but sample_table.c
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

/* The table of the epochs from number * epochs_per_table on. `place` has no key yet:
 * `key` is a name of all that the tables depend on. */
MUST_CHECK int sample_table_open(struct sample_table *t, const struct sample_epochs *e,
                                 int64_t number, struct index_place place,
                                 const char *key, struct error *err);
void sample_table_close(struct sample_table *t);

/* Bytes of one table, and of what making it takes besides, about. */
double sample_table_bytes(const struct sample_epochs *e);
double sample_table_making_bytes(const struct sample_epochs *e);

#endif
