/*
 * text_source - the bytes of a file that a command was given to read: a regular file, a
 * pipe, a terminal, or "-", which is standard input.
 *
 * Nothing here waits for ever without a word. Devices that never end are refused; of a
 * named pipe that nobody has opened for writing it is said that it is waited for, and
 * after a while it is given up.
 */
#ifndef DATA_TEXT_TEXT_SOURCE_H
#define DATA_TEXT_TEXT_SOURCE_H

#include "base/base.h"
#include "base/error.h"

#define TEXT_STANDARD_INPUT "-"

struct text_watch { // how a caller looks in on long work
    /* Called before each read, and some times a second while there is nothing to read;
     * -1 with *err ends the reading. NULL: nobody looks in. */
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
    bool has_told;              // that it waits for one
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

#endif
