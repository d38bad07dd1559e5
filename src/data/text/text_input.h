/*
 * text_input - the text of a file in UTF-8, unpacked where it is packed, converted where
 * its encoding is named.
 *
 * gzip (any number of members) and zstd (any number of frames, windows up to 2 GiB, as
 * `zstd --long=31` makes them) are told by their first bytes, never by the name of the
 * file. A file that ends in the middle of packed data is an error, not a short text.
 *
 * What is not text is refused with the name of what it is, and plain text that is not
 * UTF-8 with the place of its first bad byte and a guess of its encoding
 * (text_guess.h). Of JSON lines a single bad one is nothing to refuse a file for, so
 * only a file in a known other encoding is. A mark of the order of bytes at the beginning
 * of a text is not part of it.
 *
 * Pipes, named pipes and standard input are fine (text_source.h). Memory: fixed buffers,
 * and what the unpacker needs.
 */
#ifndef DATA_TEXT_TEXT_INPUT_H
#define DATA_TEXT_TEXT_INPUT_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_source.h"

struct text_input; // opaque

enum text_kind {
    TEXT_BLANK_LINES, // documents are separated by lines of nothing but white space
    TEXT_WHOLE_FILE,  // the file is one document
    TEXT_JSON_LINES,  // each line is a value of JSON, or the file is an array of them
};

struct text_form { // how a file is to be read
    enum text_kind kind;
    const char *encoding; // as text_encoding.h says; NULL: UTF-8
    const char *json_key; // of the text in a value of JSON
    bool is_cloze;        // its last word may stand apart (json_line_read_cloze())
};

/* `path`, what `form` names and watch->context are borrowed until text_input_close(). */
MUST_CHECK int text_input_open(struct text_input **out, const char *path,
                               const struct text_form *form,
                               const struct text_watch *watch, struct error *err);

/* Read at least one and at most `size` unpacked bytes; *n is 0 at the end. */
MUST_CHECK int text_input_read(struct text_input *in, char *buf, size_t size, size_t *n,
                               struct error *err);

const char *text_input_name(const struct text_input *in); // for people
enum text_kind text_input_kind(const struct text_input *in);
/* How far the reading is: in the file itself, and of the text that was given out. */
int64_t text_input_file_bytes(const struct text_input *in);
int64_t text_input_text_bytes(const struct text_input *in);

void text_input_close(struct text_input *in); // NULL is fine

#endif
