/*
 * text_records - a text file taken apart into documents, or into values of JSON that have
 * documents in them: records. They come in chunks and need not fit in memory.
 *
 * Bytes are passed on exactly as they are. Only where blank lines separate documents,
 * these lines and the newline before them belong to no document.
 */
#ifndef DATA_TEXT_TEXT_RECORDS_H
#define DATA_TEXT_TEXT_RECORDS_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_input.h"

#define TEXT_MAX_LINE_BYTES (256u << 20) // a longer line of JSON is a bad one

struct text_record_sink { // where records go; functions return 0 or -1 with *err
    /* More of the record that is being read. */
    int (*append)(void *context, const char *bytes, size_t n, struct error *err);
    /* It is complete. `line` counts from 1 for JSON lines; it is 0 otherwise. */
    int (*end)(void *context, int64_t line, struct error *err);
    /* What was appended of this line is no record, with the reason. */
    int (*bad_line)(void *context, int64_t line, const char *reason, struct error *err);
    void *context;
};

/* What becomes of lines that are no documents: they are skipped, the first ones with a
 * warning; or the first one is an error. Zero-initialised, but for what is to be. */
struct bad_lines {
    bool is_strict;     // refuse the first
    const char *advice; // follows the last warning; NULL: nothing does
    int64_t n;          // skipped so far
    char first[512];    // "path:line, reason" of the first
};
MUST_CHECK int bad_lines_add(struct bad_lines *b, const char *path, int64_t line,
                             const char *reason, struct error *err);

/* Read the input to its end. A file of JSON that begins with "[", or with an object that
 * goes on in its next lines, is taken apart into the elements of its arrays and its
 * objects; any other into its lines. json_text.h finds the text in these. */
MUST_CHECK int text_records_read(struct text_input *in,
                                 const struct text_record_sink *sink, struct error *err);

#endif
