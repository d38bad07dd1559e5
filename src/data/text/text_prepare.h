/*
 * text_prepare - text or JSON lines into a dataset of token files.
 *
 * The calling thread reads the files one after the other; the encode_pipeline turns
 * documents into tokens on all processors and writes them in order, each followed by the
 * token that ends a document. The dataset appears whole or not at all, and a signal
 * (base/stop.h) ends the work as any error does: nothing is left behind.
 */
#ifndef DATA_TEXT_TEXT_PREPARE_H
#define DATA_TEXT_TEXT_PREPARE_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/dataset.h"
#include "data/text/encode_pipeline.h"

struct text_prepare { // all borrowed
    char *const *inputs;
    int n_inputs;
    const char *output; // the dataset's prefix
    enum dataset_format format;
    const char *tokenizer; // for tokenizer_open()
    const char *json_key;
    const char *encoding;         // NULL: UTF-8
    int64_t n_threads;            // 0: all processors
    bool is_json;                 // whatever the names of the files
    bool is_whole_file;           // a file of plain text is one document
    bool is_strict;               // the first bad line is an error
    struct dataset_source source; // recorded in the dataset; all zero: nothing is
};

struct text_prepared {
    struct encode_counts counts;
    int64_t n_tokens; // with the ends of documents
    int64_t vocab_size, eos_token_id;
    int64_t n_threads;
    double seconds;
    bool has_blank_lines; // documents of plain text ended at blank lines
};

/* An existing dataset of that prefix is replaced. */
MUST_CHECK int text_prepare(const struct text_prepare *request,
                            struct text_prepared *done, struct error *err);

#endif
