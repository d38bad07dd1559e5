/*
 * token_sink - where the tokens of documents go: into a dataset, into memory, or as text
 * to a file descriptor.
 */
#ifndef DATA_TEXT_TOKEN_SINK_H
#define DATA_TEXT_TOKEN_SINK_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/dataset_writer.h"
#include "text/encoder.h"

struct token_sink {                 // zeros, but for one of the first three, and eos
    struct dataset_writer *dataset; // borrowed
    struct token_list *list;        // borrowed
    struct token_text *text;        // ids with a space between; token_text_open()
    int32_t eos; // follows each document; -1: nothing does, and documents are not ended
};

MUST_CHECK int token_sink_append(struct token_sink *s, const int32_t *tokens, int64_t n,
                                 struct error *err);
MUST_CHECK int token_sink_end_document(struct token_sink *s, struct error *err);

/* `name` says what is written to, for errors; both are borrowed. */
MUST_CHECK int token_text_open(struct token_text **out, int fd, const char *name,
                               struct error *err);
/* End the line and hand everything to the system. */
MUST_CHECK int token_text_finish(struct token_text *t, struct error *err);
void token_text_close(struct token_text *t); // NULL is fine

#endif
