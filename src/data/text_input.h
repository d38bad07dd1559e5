/*
 * text_input - the bytes of a text file, unpacked where it is packed.
 *
 * gzip (any number of members) and zstd (any number of frames, windows up to 128 MiB) are
 * told by their first bytes, never by the name of the file. Files that are surely no text
 * (other archives, token files) are refused by their first bytes too. A file that ends in
 * the middle of packed data is an error, not a short text.
 *
 * Pipes and named pipes are fine. Memory: a fixed buffer, and what the unpacker needs.
 */
#ifndef DATA_TEXT_INPUT_H
#define DATA_TEXT_INPUT_H

#include "base/base.h"
#include "base/error.h"

struct text_input; // opaque

struct text_watch { // how a caller looks in on long work
    /* Called before each read, and some times a second while there is nothing to read;
     * -1 with *err ends the reading. */
    int (*tick)(void *context, struct error *err);
    void *context;
};

/* `path` and watch->context are borrowed until text_input_close(). */
MUST_CHECK int text_input_open(struct text_input **out, const char *path,
                               const struct text_watch *watch, struct error *err);

/* Read at least one and at most `size` unpacked bytes; *n is 0 at the end. */
MUST_CHECK int text_input_read(struct text_input *in, char *buf, size_t size, size_t *n,
                               struct error *err);

const char *text_input_path(const struct text_input *in);
/* How far the reading is: in the file itself, and unpacked. */
int64_t text_input_file_bytes(const struct text_input *in);
int64_t text_input_text_bytes(const struct text_input *in);

void text_input_close(struct text_input *in); // NULL is fine

#endif
