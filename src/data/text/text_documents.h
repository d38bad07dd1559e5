/*
 * text_documents - documents out of text files, in chunks, so that a document never has
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
     * reading. May be NULL. */
    int (*progress)(void *context, size_t n, struct error *err);
    void *context;
};

/* Read the file to its end. Of each value of JSON, the string form->json_key is a
 * document. */
MUST_CHECK int text_documents_read(const char *path, const struct text_form *form,
                                   const struct text_sink *sink, struct error *err);

/* -- texts that are few enough to be held in memory ---------------------------------- */

enum text_list_kind {
    TEXT_LIST_WHOLE, // the file is one text
    TEXT_LIST_LINES, // each line is one, without its end; empty lines are none
    TEXT_LIST_JSON,  // of each value of JSON, the string under the key
    TEXT_LIST_CLOZE, // the same, or its context and continuation
};

struct text_list { // zero-initialised is empty
    struct text_list_item {
        char *text; // n bytes and a NUL, owned
        size_t n;
        int64_t line; // where it stands, from 1; 0: not known
    } * items;
    int64_t n_items, capacity;
};

/* `encoding` is as text_encoding.h says, `json_key` for TEXT_LIST_JSON. A line of JSON
 * without a text is an error that names it, and so is a file without any text.
 * text_list_release() is to be called after a failure too. */
MUST_CHECK int text_list_read(struct text_list *list, const char *path,
                              enum text_list_kind kind, const char *encoding,
                              const char *json_key, struct error *err);
void text_list_release(struct text_list *list);

#endif
