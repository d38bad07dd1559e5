/*
 * text_documents - documents out of text files, in pieces, so that a document never has
 * to fit in memory (a line of JSON does, up to TEXT_MAX_LINE_BYTES). Packed files are
 * unpacked, as text_input.h says.
 *
 * For one thread that takes documents as they are; encode_pipeline.h is for many.
 */
#ifndef DATA_TEXT_TEXT_DOCUMENTS_H
#define DATA_TEXT_TEXT_DOCUMENTS_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_records.h"

struct text_sink { // where documents go; functions return 0 or -1 with *err
    int (*append)(void *context, const char *bytes, size_t n, struct error *err);
    int (*end_document)(void *context, struct error *err);
    /* A line that is no document, with its reason; -1 stops the reading. */
    int (*bad_line)(void *context, const char *path, int64_t line, const char *reason,
                    struct error *err);
    /* n more bytes of text were read, or none while there are none; -1 stops the
     * reading. */
    int (*progress)(void *context, size_t n, struct error *err);
    void *context;
};

/* Read the file to its end. Of each value of JSON, the string form->json_key is a
 * document. */
MUST_CHECK int text_documents_read(const char *path, const struct text_form *form,
                                   const struct text_sink *sink, struct error *err);

#endif
