/*
 * event_file - a file of records that TensorBoard reads.
 *
 * A reader waits for the rest of a record that is cut short, and gives a file up for good
 * at one that is wrong: so each record is written by one write(2), one that a full disk
 * takes in part is taken back, and what a crash left behind is cut off by
 * event_file_repair().
 */
#ifndef TRAIN_EVENT_FILE_H
#define TRAIN_EVENT_FILE_H

#include "base/base.h"
#include "base/error.h"
#include "train/event_record.h"

#include <limits.h>

struct event_file {
    int fd; // -1: not open
    char path[PATH_MAX];
    int64_t n_bytes;
};

/* A new file in the directory, whose name sorts behind those that are there: readers take
 * files in that order. */
MUST_CHECK int event_file_open(struct event_file *f, const char *dir, struct error *err);
void event_file_close(struct event_file *f); // one with fd -1, too
/* Append n bytes, which are whole records, or nothing: -1 with errno. */
MUST_CHECK int event_file_write(struct event_file *f, const void *records, size_t n);

/* Cut off what is no whole record at the end of the directory's newest file; `e` is any
 * open one. A wrong record before others is left, with a warning: nobody reads past it. */
MUST_CHECK int event_file_repair(const struct event_record *e, const char *dir,
                                 struct error *err);
/* Move the files of the directory to the directory `to`, whose own go; neither has to be
 * there, and what TensorBoard does not read stays where it is. */
MUST_CHECK int event_file_set_aside(const char *dir, const char *to, struct error *err);

#endif
