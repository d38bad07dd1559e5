/*
 * text_list - texts of a file that are few enough to be held in memory: prompts, texts to
 * complete, one whole text. Packed files are unpacked (text_input.h).
 */
#ifndef DATA_TEXT_TEXT_LIST_H
#define DATA_TEXT_TEXT_LIST_H

#include "base/base.h"
#include "base/error.h"

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
