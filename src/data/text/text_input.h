/*
 * text_input - the text of a file in UTF-8, unpacked where it is packed, converted where
 * its encoding is named.
 *
 * gzip (any number of members) and zstd (any number of frames, windows up to 2 GiB, as
 * `zstd --long=31` makes them) are recognised by their first bytes, never by the name of
 * the file. A file that ends in the middle of packed data is an error, not a short text.
 *
 * What is not text is refused with the name of what it is, and plain text that is not
 * UTF-8 with the place of its first bad byte and a guess of its encoding
 * (text_encoding.h). Of JSON lines a single bad one is nothing to refuse a file for, so
 * only a file in a known other encoding is. A mark of the order of bytes at the beginning
 * of a text is not part of it.
 *
 * Pipes, named pipes and standard input are fine (text_source below). Memory: fixed
 * buffers, and what the unpacker needs.
 */
#ifndef DATA_TEXT_TEXT_INPUT_H
#define DATA_TEXT_TEXT_INPUT_H

#include "base/base.h"
#include "base/error.h"

/* -- the bytes of a file ------------------------------------------------------------- */

/*
 * A regular file, a pipe, a terminal, or "-", which is standard input.
 *
 * Nothing here waits forever. Devices that never end are refused; waiting for a named
 * pipe without a writer is logged, and ends with an error after a while.
 */
#define TEXT_STANDARD_INPUT "-"

struct text_watch { // a caller's hook in long work
    /* Called before each read, and several times per second while nothing comes;
     * -1 with *err ends the reading. May be NULL. */
    int (*tick)(void *context, struct error *err);
    void *context;
    double writer_seconds; // a named pipe may be without a writer; 0: the usual 60
};

struct text_source {
    const char *name; // of the file, for people; borrowed
    struct text_watch watch;
    int fd;
    bool is_at_end;
    bool is_waiting_for_writer; // a named pipe that nobody has opened for writing yet
    bool is_reported;           // that it waits for one
    double open_seconds;        // when it was opened, by the clock
    int64_t n_bytes;            // read
};

/* `path` is borrowed. text_source_close() is to be called after a failure too. */
MUST_CHECK int text_source_open(struct text_source *s, const char *path,
                                const struct text_watch *watch, struct error *err);
/* Read once, at most `size` bytes; *n is 0 only at the end of the file. */
MUST_CHECK int text_source_read(struct text_source *s, void *buf, size_t size, size_t *n,
                                struct error *err);
void text_source_close(struct text_source *s);

/* What people call the file at `path`. */
const char *text_source_name(const char *path);

/* -- the text in it ------------------------------------------------------------------ */

struct text_input; // opaque

enum text_kind {
    TEXT_BLANK_LINES, // documents are separated by lines of nothing but white space
    TEXT_WHOLE_FILE,  // the file is one document
    TEXT_JSON_LINES,  // each line is a value of JSON, or the file is an array of them
    TEXT_RAW_FILE,    // one document, the bytes of the file as they are: neither unpacked
                      // nor checked nor converted
};

struct text_form { // how a file is to be read
    enum text_kind kind;
    const char *encoding; // as text_encoding.h says; NULL: UTF-8
    const char *json_key; // of the text in a value of JSON
    bool is_cloze;        // its last word may stand apart (json_text.h)
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
