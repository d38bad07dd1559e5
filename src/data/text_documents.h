/*
 * text_documents - documents out of text files, in pieces, so that a document never has
 * to fit in memory (a line of JSON does, up to TEXT_MAX_LINE_BYTES).
 *
 * Bytes are passed on exactly as they are. Only where blank lines separate documents,
 * these lines and the newline before them belong to no document.
 */
#ifndef DATA_TEXT_DOCUMENTS_H
#define DATA_TEXT_DOCUMENTS_H

#include "base/base.h"
#include "base/error.h"

#define TEXT_MAX_LINE_BYTES (256u << 20) // of JSON lines

struct text_sink { // where documents go; functions return 0 or -1 with *err
    int (*append)(void *context, const char *bytes, size_t n, struct error *err);
    int (*end_document)(void *context, struct error *err);
    /* A line that is no document, with its reason; -1 stops the reading. */
    int (*bad_line)(void *context, const char *path, int64_t line, const char *reason,
                    struct error *err);
    /* n more bytes were read; -1 stops the reading. */
    int (*progress)(void *context, size_t n, struct error *err);
    void *context;
};

enum text_kind {
    TEXT_BLANK_LINES, // documents are separated by lines of nothing but white space
    TEXT_WHOLE_FILE,  // the file is one document
    TEXT_JSON_LINES,  // each line is a JSON object; its string `json_key` is a document
};

/* Read the file to its end. A read waits for data or for `stop_fd` to become readable
 * (-1: never), which ends it with ERROR_STOPPED. */
MUST_CHECK int text_documents_read(const char *path, enum text_kind kind,
                                   const char *json_key, int stop_fd,
                                   const struct text_sink *sink, struct error *err);

#endif
