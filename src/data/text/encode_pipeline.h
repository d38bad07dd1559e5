/*
 * encode_pipeline - text files to tokens on several threads, in the order of the text.
 *
 * The caller's thread reads and fills batches, `n_threads` threads encode them, and one
 * thread writes the tokens to the sink, batch by batch as they were read. So what is
 * written does not depend on the number of threads, and neither does the first error.
 *
 * Memory is bounded: the batches on their way hold at most a few MiB of text per thread.
 * A long document passes in parts, cut where encoder_last_cut() says that its parts
 * encode as the whole does; only a line of JSON, and a stretch of text in which there is
 * no place to cut, have to be in memory whole, and these end at TEXT_MAX_LINE_BYTES (but
 * for TEXT_RAW_FILE).
 */
#ifndef DATA_TEXT_ENCODE_PIPELINE_H
#define DATA_TEXT_ENCODE_PIPELINE_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_records.h"
#include "data/text/token_sink.h"

#define ENCODE_MAX_THREADS 1024

struct encode_settings {
    const struct tokenizer *tokenizer; // borrowed
    const char *json_key;              // borrowed
    const char *encoding;              // of the files (text_encoding.h); borrowed
    int n_threads;                     // that encode, 1..ENCODE_MAX_THREADS
    bool with_special;                 // special tokens in a text are what they say
    struct token_sink *sink;           // borrowed; the pipeline's until it is closed
    struct bad_lines *bad_lines;       // the same; NULL where there can be none
    struct text_watch watch;           // called from the caller's thread
};

struct encode_counts {
    int64_t n_file_bytes; // read
    int64_t n_text_bytes; // the same, unpacked
    int64_t n_documents;  // that have reached the sink, as all below
    int64_t n_tokens;
    int64_t n_empty; // documents without text, left out
    int64_t n_bad_lines;
};

struct encode_pipeline; // opaque

MUST_CHECK int encode_pipeline_open(struct encode_pipeline **out,
                                    const struct encode_settings *settings,
                                    struct error *err);

/* Read a file to its end; its last documents may still be on their way. `path` is
 * borrowed until encode_pipeline_close(). */
MUST_CHECK int encode_pipeline_read(struct encode_pipeline *p, const char *path,
                                    enum text_kind kind, struct error *err);

/* Wait until everything read has reached the sink. */
MUST_CHECK int encode_pipeline_finish(struct encode_pipeline *p, struct error *err);

/* How far it is; from the caller's thread. */
void encode_pipeline_counts(struct encode_pipeline *p, struct encode_counts *counts);

/* Stop the threads, whatever they do, and release. NULL is fine. */
void encode_pipeline_close(struct encode_pipeline *p);

#endif
