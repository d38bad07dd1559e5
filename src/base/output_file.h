/*
 * output_file - a file that the user names as output, written whole.
 *
 * A regular file, or one that is not there yet, is replaced at once or stays as it was
 * (fs_write_atomic()). Anything else is written to and never replaced: a device, a pipe,
 * and what /dev/stdout and its like stand for. A link stays a link: the file that it
 * names is what is replaced. (Files in directories of our own, where a link may have been
 * planted, are for fs_write_atomic() alone.)
 */
#ifndef BASE_OUTPUT_FILE_H
#define BASE_OUTPUT_FILE_H

#include "base/base.h"
#include "base/error.h"

/* A named pipe must find a reader within OUTPUT_FILE_READER_SECONDS. */
#define OUTPUT_FILE_READER_SECONDS 10
MUST_CHECK int output_file_write(const char *path, const void *data, size_t n,
                                 struct error *err);

/* Is there something at `path` that is written to, not replaced? What was written to it
 * cannot be taken back. */
bool output_file_is_stream(const char *path);

#endif
